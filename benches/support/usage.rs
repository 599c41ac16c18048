//! What a process used: time, syncs, bytes written. `None` where the system does not count it.
use std::fs;
use std::io::Write;
use std::time::Instant;

/// Environment variable with the path of the file in which `syncs.c` counts.
pub(crate) const SYNCS: &str = "FOREVER_SYNCS";

/// What this process has used so far.
pub(crate) struct Usage {
    at: Instant,
    syncs: Option<u64>,
    /// Bytes passed to `write` and similar calls.
    written: Option<u64>,
    /// Bytes that the system has sent to the disk, or will send.
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

    /// What was used since; the latency of checkpoints is measured elsewhere.
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

/// Sends a value to the parent, in one line.
pub(crate) fn tell(what: &impl serde::Serialize) {
    say(&serde_json::to_string(what).expect("numbers are JSON"));
}

/// Sends a word to the parent.
pub(crate) fn say(word: &str) {
    println!("{word}");
    let _ = std::io::stdout().flush();
}

/// What one run used.
#[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]
pub(crate) struct Spent {
    pub(crate) seconds: f64,
    pub(crate) syncs: Option<u64>,
    pub(crate) written: Option<u64>,
    pub(crate) stored: Option<u64>,
    /// Latency of checkpoints in microseconds: 50th and 99th percentile, and maximum.
    pub(crate) latency_us: Option<[f64; 3]>,
}
