//! What a process has used up: time, syncs, bytes written. Counted where the system counts them, `None` where it does not.
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// The file in which `syncs.c` counts.
const SYNCS: &str = "FOREVER_SYNCS";

/// Counts the syncs of child processes: `syncs.c`, built where there is a C compiler and the loader takes it (Linux).
pub(crate) struct SyncCounter(Option<(PathBuf, PathBuf)>);

impl SyncCounter {
    pub(crate) fn build(dir: &Path) -> Self {
        let (library, count) = (dir.join("syncs.so"), dir.join("syncs"));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/support/syncs.c");
        let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
        let built = cfg!(target_os = "linux")
            && Command::new(compiler).args(["-shared", "-fPIC", "-O2", "-o"]).arg(&library).arg(source).status().is_ok_and(|s| s.success())
            && fs::write(&count, [0; 8]).is_ok();
        SyncCounter(built.then_some((library, count)))
    }

    /// Makes a child count.
    pub(crate) fn count(&self, command: &mut Command) {
        if let SyncCounter(Some((library, count))) = self {
            command.env("LD_PRELOAD", library).env(SYNCS, count);
        }
    }
}

/// What this process has used up so far.
pub(crate) struct Usage {
    at: Instant,
    syncs: Option<u64>,
    /// Bytes given to `write` and its kin.
    written: Option<u64>,
    /// Bytes that the system sent to the disk, or will.
    stored: Option<u64>,
}

impl Usage {
    #[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    pub(crate) fn now() -> Self {
        let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
        let field = |name: &str| io.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        let syncs = std::env::var(SYNCS).ok().and_then(|path| Some(u64::from_ne_bytes(fs::read(path).ok()?.try_into().ok()?)));
        Usage { at: Instant::now(), syncs, written: field("wchar:"), stored: field("write_bytes:") }
    }

    /// Tells the parent, in one line, what was used up since.
    pub(crate) fn tell(&self) {
        tell(&self.spent());
    }

    /// What was used up since; how long checkpoints took is measured elsewhere.
    pub(crate) fn spent(&self) -> Spent {
        let now = Usage::now();
        let since = |now: Option<u64>, then: Option<u64>| Some(now? - then?);
        Spent {
            seconds: (now.at - self.at).as_secs_f64(),
            syncs: since(now.syncs, self.syncs),
            written: since(now.written, self.written),
            stored: since(now.stored, self.stored),
            latency_us: None,
        }
    }
}

/// Tells the parent something, in one line.
pub(crate) fn tell(what: &impl serde::Serialize) {
    println!("{}", serde_json::to_string(what).expect("numbers are JSON"));
    let _ = std::io::stdout().flush();
}

/// How many bytes of this process are in memory.
pub(crate) fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let kib: u64 = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse().ok())?;
    Some(kib * 1024)
}

/// What one run has used up.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Spent {
    pub(crate) seconds: f64,
    pub(crate) syncs: Option<u64>,
    pub(crate) written: Option<u64>,
    pub(crate) stored: Option<u64>,
    /// How many microseconds a checkpoint took: the 50th and 99th of a hundred, and the longest.
    pub(crate) latency_us: Option<[f64; 3]>,
}
