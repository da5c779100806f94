//! A descriptor that takes long to close, for tests of who is kept waiting by it.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// A descriptor that whoever closes the last copy of waits with for so many seconds: a connection with bytes that nobody takes. With it what
/// must be there meanwhile.
///
/// # Panics
///
/// The system gives no sockets.
pub fn lingering(seconds: u64) -> (TcpStream, (TcpListener, TcpStream)) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 4096).expect("a socket");
    let mut stream = TcpStream::connect(listener.local_addr().expect("it has one")).expect("it listens");
    let (other, _) = listener.accept().expect("somebody has connected");
    stream.set_nonblocking(true).expect("a socket");
    while stream.write(&[0; 65_536]).is_ok() {}
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::from_secs(seconds))).expect("a socket");
    (stream, (listener, other))
}
