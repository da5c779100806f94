//! `conic.h` is what the sources say, and every compiler takes it.

use std::path::{Path, PathBuf};
use std::process::Command;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_header_is_what_the_sources_say() {
    let config = cbindgen::Config::from_file(folder().join("cbindgen.toml")).expect("a sound configuration");
    let header = cbindgen::Builder::new().with_config(config).with_crate(folder()).generate().expect("sound sources");
    let mut should_be = Vec::new();
    header.write(&mut should_be);
    let is = std::fs::read_to_string(folder().join("include/conic.h")).expect("the header is there");
    assert!(
        is.as_bytes() == should_be,
        "conic.h is stale; run: cargo run -p conic-c --example header > bindings/c/include/conic.h"
    );
}

fn compiles(compiler: &str, standard: &str, language: &str, program: &Path) {
    let output = Command::new(compiler)
        .args(["-x", language, &format!("-std={standard}"), "-Wall", "-Wextra", "-Wpedantic", "-Werror"])
        .args(["-Wconversion", "-Wshadow", "-fsyntax-only", "-I"])
        .arg(folder().join("include"))
        .arg(program)
        .output();
    let output = output.unwrap_or_else(|error| panic!("{compiler}: {error}; this test needs a C and a C++ compiler"));
    assert!(output.status.success(), "{compiler} -std={standard}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn every_standard_of_c_and_cxx_takes_the_header_without_a_warning() {
    let program = tempfile::Builder::new().suffix(".c").tempfile().expect("a file");
    let header = std::fs::read_to_string(folder().join("include/conic.h")).expect("the header is there");
    let defined = header.lines().filter_map(|line| line.strip_prefix("#define ")?.split_once(' '));
    let constants: Vec<&str> = defined.map(|(name, _)| name).filter(|name| *name != "CONIC_H").collect();
    assert!(constants.contains(&"CONIC_META_BEGUN") && constants.contains(&"CONIC_BUF_NEXT"), "{constants:?}");
    // Each is used, because what is wrong with a macro is seen only there: 0 is none of them.
    let are_there = constants.join(" && ");
    let text = format!(
        "#include <conic.h>\n#include <conic.h>\n\
         int main(void) {{ return conic_get_queue(0, 0) == 0 && CONIC_ERROR_ARGUMENT < 0 && {are_there} ? 0 : 1; }}\n"
    );
    std::fs::write(program.path(), text).expect("it can be written");
    for standard in ["c99", "c11", "c17"] {
        compiles("cc", standard, "c", program.path());
    }
    for standard in ["c++11", "c++17", "c++20"] {
        compiles("c++", standard, "c++", program.path());
    }
}

#[test]
fn the_manual_page_tells_of_every_function() {
    let header = std::fs::read_to_string(folder().join("include/conic.h")).expect("the header is there");
    let page = std::fs::read_to_string(folder().join("man/conic.3")).expect("the page is there");
    let declared = header.lines().filter(|line| !line.starts_with([' ', '/', '*', '#']) && line.contains('('));
    let functions: Vec<&str> = declared
        .filter_map(|line| line.split('(').next()?.rsplit([' ', '*']).next())
        .filter(|name| name.starts_with("conic_"))
        .collect();
    assert!(functions.len() >= 10, "{functions:?}");
    for function in functions {
        assert!(
            page.contains(&format!(".BR {function} (3)")) || page.contains(&format!("\\fB{function}\\fP(")),
            "{function}"
        );
    }
}
