//! The Python module, over the library that was built, against daemons of this process.

use std::path::Path;
use std::process::Command;

use conic_check::skipped;

use crate::common::{Nic, install, package, said};

#[test]
fn the_python_module_passes_its_tests() {
    if Command::new("python3").arg("--version").output().is_err() {
        return skipped("there is no python3; the Python module was not tried");
    }
    let installed = install();
    let loopback = Nic::start("[[network]]\nmode = \"loopback\"");
    let bridge = Nic::start("");
    let folder = package().join("../python");
    let mut command = Command::new("python3");
    command.args(["-B", "-m", "unittest", "-v", "tests/test_conic.py"]).current_dir(&folder);
    // scapy is where `make test` has put it, or where the system has it.
    let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("python");
    let paths = std::env::join_paths([&folder, &packages]).expect("paths");
    command.env("PYTHONPATH", paths).env("CONIC_LIBRARY", installed.path().join("lib/libconic.so"));
    command.env("CONIC_HEADER", installed.path().join("include"));
    command.env("CONIC_LOOPBACK", loopback.socket()).env("CONIC_BRIDGE", bridge.socket());
    let output = command.output().expect("python3 runs");
    assert!(output.status.success(), "{}", said(&output));
    let told = said(&output);
    told.lines().filter_map(|line| line.strip_prefix("skipped: ")).for_each(skipped);
    assert!(told.contains("Ran 25 tests"), "{told}");
}
