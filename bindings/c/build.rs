//! Gives the shared library its name for programs: the number changes when a program must be compiled again.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libconic.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
