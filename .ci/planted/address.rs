//! A read of freed memory, which AddressSanitizer must find.

fn main() {
    let freed: *const u64 = {
        let owner = Box::new(7u64);
        std::hint::black_box(&raw const *owner)
    };
    // SAFETY: none; the fault is planted.
    println!("{}", unsafe { freed.read_volatile() });
}
