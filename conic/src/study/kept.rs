//! Finished points in a folder: one file each, written whole or not at all.

use std::fs;
use std::path::{Path, PathBuf};

use conic_study::kept::{decode, encode, name};
use conic_study::workload::{Answer, Failure, Question};

/// The folder.
#[derive(Debug)]
pub struct Kept {
    folder: PathBuf,
    model: String,
    fresh: bool,
}

impl Kept {
    /// Points of this model in this folder, which is made. With `fresh`, what is there is not looked at.
    ///
    /// # Errors
    ///
    /// A message, if the folder cannot be made.
    pub fn new(folder: &Path, model: &str, fresh: bool) -> Result<Kept, String> {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Kept { folder: folder.to_owned(), model: model.to_owned(), fresh })
    }

    fn path(&self, question: &Question) -> PathBuf {
        self.folder.join(name(&self.model, question)).with_extension("json")
    }

    /// The answer that was kept. A file that cannot be read, is damaged, or is of another question or model counts as none.
    pub fn get(&self, question: &Question) -> Option<Answer> {
        if self.fresh {
            return None;
        }
        decode(&fs::read_to_string(self.path(question)).ok()?, &self.model, question)
    }

    /// Keeps an answer.
    ///
    /// # Errors
    ///
    /// The inner one if the answer is none that can be kept, which makes it a failure; the outer one, a message, if the folder
    /// takes no file.
    pub fn put(&self, question: &Question, answer: &Answer) -> Result<Result<(), Failure>, String> {
        let text = match encode(&self.model, question, answer) {
            Ok(text) => text,
            Err(failure) => return Ok(Err(failure)),
        };
        let path = self.path(question);
        // Another process may write the same point: each has a file of its own until it is whole.
        let part = path.with_extension(format!("{}.part", std::process::id()));
        let written = fs::write(&part, text).and_then(|()| fs::rename(&part, &path));
        written.map_err(|error| format!("{}: {error}", path.display())).map(Ok)
    }
}
