//! A folder among the temporary files, for the examples that a person builds first: `tempfile` and
//! what it needs would take longer than all of them.
use std::fs;
use std::io::{ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::process;

/// A new folder, which is removed when this is dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Creates an empty folder.
    pub fn new() -> Result<Self> {
        let mut number = 0;
        loop {
            let path = std::env::temp_dir().join(format!("forever-{}-{number}", process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Folder(path)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Leaves the folder where it is.
    pub fn keep(mut self) -> PathBuf {
        std::mem::take(&mut self.0)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}
