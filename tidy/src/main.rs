//! Lists the findings of every rule; with `write-clippy`, writes the `clippy.toml` files from the seam's table first.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tidy is a folder of the workspace");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => conic_tidy::inspect(root),
        ["write-clippy"] => conic_tidy::clippy_config::write(root).and_then(|()| conic_tidy::inspect(root)),
        _ => {
            eprintln!("usage: conic-tidy [write-clippy]");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(findings) => {
            for finding in &findings {
                println!("{finding}");
            }
            println!("{} findings", findings.len());
            if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("the tree under {} cannot be read: {error}", root.display());
            ExitCode::from(2)
        }
    }
}
