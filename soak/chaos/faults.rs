//! Injected I/O faults: a library that is preloaded into workers (`faults.c`), and a plan of its
//! faults.
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context, ensure};
use forever_testkit::prng::Prng;

use super::worker::DATABASE;

/// Source of the preloaded library.
const SOURCE: &str = include_str!("faults.c");

/// Name of the preloaded library.
const LIBRARY: &str = "faults.so";

/// Name of the file that workers count in.
const COUNTS: &str = "faults";

/// Kinds of faults, in the order of the library's `enum kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FaultKind {
    /// A read fails with `EIO`.
    EioRead,
    /// A write fails with `EIO` before it has written anything.
    EioWrite,
    /// A write or an `ftruncate` fails with `ENOSPC`.
    NoSpace,
    /// A write stops in the middle, and the next one fails.
    ShortWrite,
    /// A write stops in the middle, and the process is killed by SIGKILL.
    TornWrite,
    /// `fsync` fails, with the data left in the page cache.
    Sync,
    /// `open` fails.
    Open,
    /// A lock of the file fails.
    Lock,
}

impl FaultKind {
    const ALL: [(FaultKind, &str); 8] = [
        (FaultKind::EioRead, "eio-read"),
        (FaultKind::EioWrite, "eio-write"),
        (FaultKind::NoSpace, "enospc"),
        (FaultKind::ShortWrite, "short"),
        (FaultKind::TornWrite, "torn"),
        (FaultKind::Sync, "fsync"),
        (FaultKind::Open, "open"),
        (FaultKind::Lock, "lock"),
    ];

    fn name(self) -> &'static str {
        FaultKind::ALL.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }
}

impl FromStr for FaultKind {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        FaultKind::ALL.iter().find(|(_, name)| *name == text).map(|(kind, _)| *kind).ok_or(())
    }
}

/// Number of injected faults, by kind.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct FaultCounts([u64; FaultKind::ALL.len()]);

impl FaultCounts {
    pub(crate) fn add(&mut self, more: FaultCounts) {
        self.0.iter_mut().zip(more.0).for_each(|(count, more)| *count += more);
    }

    pub(crate) fn all(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// `faults_eio_read=1 faults_eio_write=2 ..`
impl fmt::Display for FaultCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, ((_, name), count)) in FaultKind::ALL.iter().zip(self.0).enumerate() {
            let space = if n == 0 { "" } else { " " };
            write!(f, "{space}faults_{}={count}", name.replace('-', "_"))?;
        }
        Ok(())
    }
}

/// Period of a worker's life in which calls of one kind fail.
#[derive(Debug, Clone, Copy)]
struct Window {
    kind: FaultKind,
    /// Number of the call with which it begins, among those that can fail in this way.
    first: u32,
    /// Duration in microseconds; 0 for one call.
    micros: u32,
    /// One in this many calls fails.
    one_in: u32,
}

/// The faults in the life of one worker.
#[derive(Debug, Clone)]
pub(crate) struct Faults {
    windows: Vec<Window>,
    seed: u64,
}

/// The compiled library, and the faults that are asked for.
#[derive(Debug)]
pub(crate) struct Injector {
    library: PathBuf,
    only: Option<FaultKind>,
}

impl Injector {
    /// Compiles the library into a folder, with the C compiler of the system.
    pub(crate) fn compile(dir: &Path, only: Option<FaultKind>) -> anyhow::Result<Self> {
        ensure!(cfg!(target_os = "linux"), "faults are injected by LD_PRELOAD, which needs Linux");
        let (source, library) = (dir.join("faults.c"), dir.join(LIBRARY));
        std::fs::write(&source, SOURCE)?;
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let mut command = Command::new(&compiler);
        let output = command.args(["-O1", "-shared", "-fPIC", "-o"]).arg(&library).arg(&source).arg("-ldl").output();
        let output = output.with_context(|| format!("failed to run the C compiler `{}`", compiler.display()))?;
        ensure!(output.status.success(), "failed to compile the injected faults: {}", String::from_utf8_lossy(&output.stderr));
        Ok(Injector { library, only })
    }

    /// Draws the faults of one life. Those of the last life end by themselves, and none of them
    /// kills it.
    pub(crate) fn draw(&self, prng: &mut Prng, last: bool) -> Option<Faults> {
        let kinds = FaultKind::ALL.iter().map(|(kind, _)| *kind).filter(|kind| self.only.is_none_or(|only| only == *kind));
        let kinds: Vec<_> = kinds.filter(|kind| !last || *kind != FaultKind::TornWrite).collect();
        let count = u32::try_from(kinds.len()).unwrap_or(0);
        if count == 0 || prng.below(4) == 0 {
            return None;
        }
        let windows = (0..=prng.below(4)).map(|_| {
            let kind = kinds[prng.below(count) as usize];
            // While the database is opened, or later.
            let first = match (kind, prng.below(5)) {
                (FaultKind::Open, _) => prng.below(8),
                (_, 0) => prng.below(40),
                (FaultKind::Sync, _) => prng.below(60),
                (FaultKind::Lock, _) => prng.below(150),
                _ => 40 + prng.below(1000),
            };
            let micros = match (kind, prng.below(3)) {
                (FaultKind::TornWrite, _) | (_, 0) => 0,
                _ if last => prng.below(500_000),
                _ => prng.below(40_000),
            };
            let one_in = if prng.below(2) == 0 { 1 } else { 1 + prng.below(10) };
            Window { kind, first, micros, one_in }
        });
        Some(Faults { windows: windows.collect(), seed: prng.number() })
    }

    /// The environment of a worker with these faults; its folder is `dir`.
    pub(crate) fn environment(&self, dir: &Path, faults: &Faults) -> anyhow::Result<Vec<(&'static str, String)>> {
        let counts = dir.join(COUNTS);
        if !counts.exists() {
            std::fs::write(&counts, [0; size_of::<FaultCounts>()])?;
        }
        let mut windows = String::new();
        for Window { kind, first, micros, one_in } in &faults.windows {
            write!(windows, "{},{first},{micros},{one_in};", kind.name())?;
        }
        let text = |path: &Path| path.to_str().map(str::to_owned).context("a path that is not UTF-8");
        Ok(vec![
            ("LD_PRELOAD", text(&self.library)?),
            ("FOREVER_FAULTS", windows),
            ("FOREVER_FAULTS_SEED", faults.seed.to_string()),
            ("FOREVER_FAULTS_FILE", text(&dir.canonicalize()?.join(DATABASE))?),
            ("FOREVER_FAULTS_COUNTS", text(&counts)?),
        ])
    }
}

/// The faults that were injected into the workers of a folder.
pub(crate) fn counts(dir: &Path) -> anyhow::Result<FaultCounts> {
    let path = dir.join(COUNTS);
    let mut counts = FaultCounts::default();
    if path.exists() {
        let bytes = std::fs::read(&path)?;
        let numbers = bytes.as_chunks::<{ size_of::<u64>() }>().0.iter();
        counts.0.iter_mut().zip(numbers).for_each(|(count, bytes)| *count = u64::from_ne_bytes(*bytes));
    }
    Ok(counts)
}
