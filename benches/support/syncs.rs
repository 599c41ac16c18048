//! Counts the syncs of other processes, where the system allows it.
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::usage::SYNCS;

/// Counts the syncs of child processes with `syncs.c`, built where there is a C compiler and the
/// loader accepts it (Linux).
pub(crate) struct SyncCounter(Option<(PathBuf, PathBuf)>);

impl SyncCounter {
    pub(crate) fn build(dir: &Path) -> Self {
        let (library, source, count) = (dir.join("syncs.so"), dir.join("syncs.c"), dir.join("syncs"));
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let built = cfg!(target_os = "linux")
            && fs::write(&source, include_str!("syncs.c")).is_ok()
            && Command::new(compiler).args(["-shared", "-fPIC", "-O2", "-o"]).arg(&library).arg(source).status().is_ok_and(|s| s.success())
            && fs::write(&count, [0; 8]).is_ok();
        SyncCounter(built.then_some((library, count)))
    }

    /// Makes a child process count its syncs.
    pub(crate) fn count(&self, command: &mut Command) {
        if let SyncCounter(Some((library, count))) = self {
            command.env("LD_PRELOAD", library).env(SYNCS, count);
        }
    }
}
