//! A word that is written by one thread while another reads it, which ThreadSanitizer must find.

struct Shared(*mut u64);
// SAFETY: none; the fault is planted.
unsafe impl Send for Shared {}

fn main() {
    let mut word = 0u64;
    let (writer, reader) = (Shared(&raw mut word), Shared(&raw mut word));
    let writing = std::thread::spawn(move || {
        let writer = writer;
        // SAFETY: none; the fault is planted.
        unsafe { *writer.0 = 1 };
    });
    let reading = std::thread::spawn(move || {
        let reader = reader;
        // SAFETY: none; the fault is planted.
        println!("{}", unsafe { *reader.0 });
    });
    writing.join().expect("the writer ends");
    reading.join().expect("the reader ends");
}
