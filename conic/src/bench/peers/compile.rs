//! The peers' program: carried as source, compiled where it is first needed.

use std::ffi::OsString;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::super::failure::Failure;
use super::super::temporary::Folder;

/// The program's files, by name.
const SOURCES: [(&str, &str); 6] = [
    ("loopback.c", include_str!("../../../../peers/loopback.c")),
    ("peer.c", include_str!("../../../../peers/peer.c")),
    ("traffic.c", include_str!("../../../../peers/traffic.c")),
    ("loopback.h", include_str!("../../../../peers/loopback.h")),
    ("payload.h", include_str!("../../../../peers/payload.h")),
    ("histogram.h", include_str!("../../../../peers/histogram.h")),
];

/// A program, and the folder that it goes with where it is not kept.
pub struct Compiled {
    pub program: PathBuf,
    _folder: Option<Folder>,
}

/// Compiles the program, unless this machine has done so before, and says where it is.
///
/// # Errors
///
/// What is missing, or what the compiler said.
pub fn program() -> Result<Compiled, Failure> {
    let flags = flags()?;
    let compiler = compiler()?;
    let version = output_of(Command::new(&compiler).arg("--version"))?;
    let parts = SOURCES.iter().flat_map(|(name, text)| [*name, *text]);
    let key = hash(parts.chain([flags.as_str(), version.as_str()]));
    let cache = cache_folder();
    let own = if cache.is_none() { Some(Folder::new("conic-peers")?) } else { None };
    let kept = cache.as_deref().or(own.as_deref()).unwrap_or(Path::new("."));
    let folder = kept.join(format!("peers-{key:016x}"));
    compile_into(&folder, &compiler, &flags)?;
    Ok(Compiled { program: folder.join("loopback"), _folder: own })
}

/// Compiles it into a folder, unless it is there.
fn compile_into(folder: &Path, compiler: &OsString, flags: &str) -> Result<(), Failure> {
    let program = folder.join("loopback");
    if program.exists() {
        return Ok(());
    }
    let place = folder.with_extension(std::process::id().to_string());
    let cannot = |error: std::io::Error| Failure::failed(format!("{}: {error}", place.display()));
    if let Some(parent) = place.parent() {
        fs::create_dir_all(parent).map_err(cannot)?;
    }
    // What one of this number that was killed has left there; mostly there is nothing.
    let _ = fs::remove_dir_all(&place);
    // Into a folder of its own first, so that nobody ever runs half a program; what is not moved from there goes with it.
    let building = Folder::at(place.clone())?;
    for (name, text) in SOURCES {
        fs::write(building.join(name), text).map_err(cannot)?;
    }
    compile(compiler, flags, &building)?;
    match fs::rename(&*building, folder) {
        Ok(()) => Ok(()),
        // Another run was faster.
        Err(_) if program.exists() => Ok(()),
        Err(error) => Err(cannot(error)),
    }
}

fn compile(compiler: &OsString, flags: &str, folder: &Path) -> Result<(), Failure> {
    let mut command = Command::new(compiler);
    command.current_dir(folder).args(["-O3", "-o", "loopback", "loopback.c", "peer.c", "traffic.c"]);
    command.args(flags.split_whitespace()).arg("-march=native");
    output_of(&mut command).map(drop)
}

/// The compiler's and linker's flags for DPDK.
fn flags() -> Result<String, Failure> {
    let found = Command::new("pkg-config").args(["--cflags", "--libs", "libdpdk"]).output();
    match found {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        Ok(_) => Err(missing("DPDK's development files (Debian: dpdk, dpdk-dev, libdpdk-dev)")),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(missing(
            "pkg-config, and perhaps DPDK's development files (Debian: pkg-config, dpdk, dpdk-dev, libdpdk-dev)",
        )),
        Err(error) => Err(Failure::failed(format!("pkg-config: {error}"))),
    }
}

fn compiler() -> Result<OsString, Failure> {
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    match Command::new(&compiler).arg("--version").output() {
        Ok(_) => Ok(compiler),
        Err(_) => Err(missing(&format!("a C compiler, {} (Debian: build-essential)", compiler.to_string_lossy()))),
    }
}

/// Says that something must be installed, and how.
pub fn missing(what: &str) -> Failure {
    Failure::missing(format!("missing: {what}; `make peers` installs all that is needed"))
}

/// What a command prints.
fn output_of(command: &mut Command) -> Result<String, Failure> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| Failure::failed(format!("{name}: {error}")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(Failure::failed(format!("{name}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim())))
}

/// Where programs that were compiled here are kept: this user's cache. One without a home has a folder of this run alone, because a
/// program that lies where everybody may write is not run.
fn cache_folder() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path: &PathBuf| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    cache.map(|cache| cache.join("conic"))
}

/// FNV-1a, 64 bits, over texts and where each ends.
fn hash<'a>(texts: impl Iterator<Item = &'a str>) -> u64 {
    let bytes = texts.flat_map(|text| text.bytes().chain([0]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_sources_have_another_hash() {
        let of = |texts: &[&'static str]| hash(texts.iter().copied());
        assert_ne!(of(&["ab", "c"]), of(&["a", "bc"]));
        assert_ne!(of(&["a"]), of(&["a", ""]));
        assert_eq!(of(&["a", "b"]), of(&["a", "b"]));
    }

    #[test]
    fn the_sources_include_nothing_that_is_not_carried() {
        for (name, text) in SOURCES {
            for included in text.lines().filter_map(|line| line.strip_prefix("#include \"")) {
                let file = included.trim_end_matches('"');
                assert!(SOURCES.iter().any(|(name, _)| *name == file), "{name} includes {file}");
            }
        }
    }
}
