//! The workspace itself obeys the rules.

use std::path::Path;

#[test]
fn the_workspace_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tidy is a folder of the workspace");
    let findings = conic_tidy::inspect(root).expect("the workspace can be read");
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(lines.is_empty(), "{} findings:\n{}", lines.len(), lines.join("\n"));
}

#[test]
fn the_workspace_that_is_inspected_is_this_one() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tidy is a folder of the workspace");
    let tree = conic_tidy::tree::Tree::read(root).expect("the workspace can be read");
    for path in ["Cargo.toml", ".ci/run", "fabric/src/core.rs", "tidy/tests/tree.rs"] {
        assert!(tree.text(path).is_some(), "{path} was not read");
    }
    assert!(tree.files().all(|file| !file.path.starts_with("target/") && !file.path.starts_with(".git/")));
}
