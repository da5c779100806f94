//! What the arguments of ports mean, for whoever reads a help text.

/// A line for each argument, behind the kinds of ports that have it.
pub const ARGUMENTS: &str = "\
queues=       queues, which the network's threads share out; of AF_XDP each has a socket, of memif and vhost-user
              a ring each way that is offered or asked for
frames=       frames that a ring holds; of loopback frames that wait
offload       checksums and the cutting of TCP packets are left to who sends them on (tap, af-packet, vhost-user,
              virtio-user)
memory=       MiB that a peer may bring (memif, vhost-user); MB that DPDK sets aside (dpdk)
tap           mtu= bytes without the Ethernet header; address= of the kernel's side; down: it is not brought up
af-packet     traffic-control: frames that leave pass the kernel's queueing, and wait there;
              not-promiscuous: frames for the interface's own addresses alone
af-xdp        queue= the first of them; mode= whether the kernel may copy; generic: in the network stack, also
              where the driver could; complete-checksums: of frames whose sender left them to the hardware;
              forward=kernel: frames between two such ports pass the kernel's program alone
memif         role= server (uses memory that a client brings) or client; id=, secret= what both sides give;
              slots=, buffer= of a client's rings: their slots, a buffer's bytes
vhost-user    role= who makes the socket; slots= of each ring (virtio-user)
unsealed      memory is taken that the peer can cut: to do so ends this process
any-user      peers of other users are let in, and may connect to the socket's file
dpdk          huge: its memory is of huge pages
capture       replay= frames come from that file, once; forever: again and again; pace= so many times as fast as
              recorded (without: as fast as possible); record= frames that are sent go there
impair        loss=, duplicate=, reorder=, corrupt= how likely for a frame (1% or 0.01); reorder-by= how long it is
              held back; delay= how long each is under way, jitter= by how much that differs; rate= bits a second,
              with Ethernet's own; limit= frames under way in each direction (1024); direction= receive, transmit or
              both, which it is without; seed= what all draws begin with. Behind + stands the port to be impaired";
