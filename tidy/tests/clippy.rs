//! Clippy refuses, with the `clippy.toml` of the workspace, what the seam's table names.
//!
//! A planted crate uses some of everything; were a path in the table misspelt, or a lint no longer an error, clippy
//! would pass it.

use conic_tidy::{clippy_config, seam};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// What the planted crate says; with a line for every path of the standard library in the table.
fn planted() -> (String, Vec<&'static str>) {
    let (mut text, mut paths) = (String::from("//! Planted.\n"), Vec::new());
    for power in seam::POWERS {
        for path in power.types.iter().filter(|path| path.starts_with("std::")) {
            let generic = if path.ends_with("Ptr") || path.ends_with("HashSet") { "<u8>" } else { "" };
            let generic = if path.ends_with("HashMap") { "<u8, u8>" } else { generic };
            text.push_str(&format!("/// Planted.\npub type Type{} = {path}{generic};\n", paths.len()));
            paths.push(*path);
        }
        for path in power.methods.iter().filter(|path| path.starts_with("std::")) {
            let generic = if path.contains("::ptr::") { "::<u8>" } else { "" };
            let generic = if path.ends_with("::var") || path.ends_with("var_os") { "::<&str>" } else { generic };
            text.push_str(&format!("/// Planted.\npub fn function_{}() {{ let _ = {path}{generic}; }}\n", paths.len()));
            paths.push(*path);
        }
    }
    (text, paths)
}

/// What clippy says of the planted crate with the configuration of `room`, and whether it passed it.
fn clippy(room: &str) -> (String, bool) {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("planted-{room}"));
    fs::create_dir_all(folder.join("src")).expect("the folder can be made");
    let manifest = "[package]\nname = \"planted\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n";
    fs::write(folder.join("Cargo.toml"), manifest).expect("the manifest can be written");
    fs::write(folder.join("src/lib.rs"), planted().0).expect("the code can be written");
    fs::write(folder.join("clippy.toml"), clippy_config::text_for(room)).expect("the configuration can be written");
    let output = Command::new(env!("CARGO"))
        .args(["clippy", "--quiet", "--offline", "--", "-D", "warnings"])
        .current_dir(&folder)
        .env("CARGO_TARGET_DIR", folder.join("target"))
        .output()
        .expect("cargo runs");
    (String::from_utf8_lossy(&output.stderr).into_owned(), output.status.success())
}

#[test]
fn clippy_refuses_every_path_of_the_table() {
    let (said, passed) = clippy("interface");
    assert!(!passed, "clippy passed the planted crate:\n{said}");
    assert!(!said.contains("does not refer to"), "a path of the table names nothing:\n{said}");
    let unreported: Vec<&str> = planted().1.into_iter().filter(|path| !said.contains(&format!("`{path}`"))).collect();
    assert!(unreported.is_empty(), "not reported: {unreported:?}\n{said}");
}

#[test]
fn clippy_lets_a_room_use_what_it_owns_and_nothing_more() {
    let (said, passed) = clippy("native");
    assert!(!passed, "clippy passed the planted crate:\n{said}");
    assert!(said.contains("`std::collections::HashMap`"), "{said}");
    assert!(!said.contains("`std::time::Instant`") && !said.contains("`std::sync::atomic::AtomicU64`"), "{said}");
}
