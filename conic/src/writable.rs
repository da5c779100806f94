//! Whether results can be written where they are to go, asked before there are any.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use crate::bench::failure::Failure;

/// Makes a folder, and sees whether a file can be made in it.
///
/// # Errors
///
/// It cannot. `option` is what names another folder.
pub fn folder(folder: &Path, option: &str) -> Result<(), Failure> {
    let tried = fs::create_dir_all(folder).and_then(|()| {
        let probe = folder.join(format!(".conic-{}", std::process::id()));
        fs::write(&probe, "")?;
        fs::remove_file(&probe)
    });
    tried.map_err(|error| refused(folder, &error, &format!("name another folder with {option}")))
}

/// Makes a file's folder, and sees whether the file can be written; what is in it stays.
///
/// # Errors
///
/// It cannot. `option` is what names another file.
pub fn file(file: &Path, option: &str) -> Result<(), Failure> {
    let tried = (|| {
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent)?;
        }
        // Taken away only where it was made here: another run may write the same file at this time.
        match OpenOptions::new().write(true).create_new(true).open(file) {
            Ok(_) => fs::remove_file(file),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                OpenOptions::new().append(true).open(file).map(drop)
            }
            Err(error) => Err(error),
        }
    })();
    tried.map_err(|error| refused(file, &error, &format!("name another file with {option}")))
}

fn refused(path: &Path, error: &io::Error, remedy: &str) -> Failure {
    Failure::failed(format!("nothing can be written to {}: {error}; {remedy}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_written_is_left_as_it_was() {
        let place = tempfile::tempdir().expect("there is room for a folder");
        let (inner, kept, new) = (place.path().join("a/b"), place.path().join("kept"), place.path().join("c/new"));
        fs::write(&kept, "before").expect("it can be written");
        folder(&inner, "--output").expect("it can be made");
        file(&kept, "--svg").expect("it can be written");
        file(&new, "--svg").expect("it can be made");
        assert!(inner.read_dir().expect("it is there").next().is_none());
        assert_eq!(fs::read_to_string(&kept).expect("it is there"), "before");
        assert!(!new.exists());
    }

    #[test]
    fn what_cannot_is_named_with_the_option() {
        let place = tempfile::tempdir().expect("there is room for a folder");
        let in_the_way = place.path().join("file");
        fs::write(&in_the_way, "").expect("it can be written");
        let said = folder(&in_the_way.join("out"), "--output").expect_err("a file is no folder").message;
        assert!(said.contains("file/out") && said.contains("name another folder with --output"), "{said}");
        let said = file(place.path(), "--svg").expect_err("a folder is no file").message;
        assert!(said.contains("name another file with --svg"), "{said}");
    }
}
