//! Prints `conic.h` as it should be: `cargo run -p conic-c --example header > bindings/c/include/conic.h`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml"))?;
    let header = cbindgen::Builder::new().with_config(config).with_crate(folder).generate()?;
    header.write(std::io::stdout());
    Ok(())
}
