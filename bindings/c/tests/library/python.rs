//! The Python module, over the library that was built, against daemons of this process.

use std::io::Write;
use std::process::Command;

use crate::common::{Nic, install, package, said};

/// Says it past the test harness, which keeps what passing tests print to itself.
fn skip(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}

#[test]
fn the_python_module_passes_its_tests() {
    if Command::new("python3").arg("--version").output().is_err() {
        return skip("skipped: there is no python3; the Python module was not tried");
    }
    let installed = install();
    let loopback = Nic::start("[[network]]\nmode = \"loopback\"");
    let bridge = Nic::start("");
    let folder = package().join("../python");
    let mut command = Command::new("python3");
    command.args(["-B", "-m", "unittest", "-v", "tests/test_conic.py"]).current_dir(&folder);
    command.env("PYTHONPATH", &folder).env("CONIC_LIBRARY", installed.path().join("lib/libconic.so"));
    command.env("CONIC_HEADER", installed.path().join("include"));
    command.env("CONIC_LOOPBACK", loopback.socket()).env("CONIC_BRIDGE", bridge.socket());
    let output = command.output().expect("python3 runs");
    assert!(output.status.success(), "{}", said(&output));
    let told = said(&output);
    told.lines().filter(|line| line.starts_with("skipped: ")).for_each(skip);
    assert!(told.contains("Ran 17 tests"), "{told}");
}
