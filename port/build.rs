//! Compiles the calls of DPDK, where the feature `dpdk` asks for them.

fn main() {
    println!("cargo::rerun-if-changed=src/dpdk/shim.c");
    #[cfg(feature = "dpdk")]
    dpdk();
}

#[cfg(feature = "dpdk")]
fn dpdk() {
    let ask = |what: &str| {
        let output = std::process::Command::new("pkg-config").args([what, "libdpdk"]).output();
        match output {
            Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
            _ => panic!(
                "the feature `dpdk` needs pkg-config and DPDK's development files: install libdpdk-dev pkg-config"
            ),
        }
    };
    let mut shim = cc::Build::new();
    ask("--cflags").split_whitespace().for_each(|flag| {
        shim.flag(flag);
    });
    // What tells of devices that go is experimental in DPDK 22.11, and has been the same since 18.05.
    shim.define("ALLOW_EXPERIMENTAL_API", None);
    // DPDK's headers have parameters that they do not use.
    shim.file("src/dpdk/shim.c").warnings(true).flag("-Wno-unused-parameter").compile("conic_dpdk_shim");
    for flag in ask("--libs").split_whitespace() {
        if let Some(path) = flag.strip_prefix("-L") {
            println!("cargo::rustc-link-search=native={path}");
        } else if let Some(library) = flag.strip_prefix("-l") {
            println!("cargo::rustc-link-lib=dylib={library}");
        }
    }
}
