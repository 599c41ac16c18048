//! What a process has used up: time, syncs, bytes written. Counted where the system counts them, `None` where it does not.
use std::fs;
use std::io::Write;
use std::time::Instant;

/// Names the file in which `syncs.c` counts.
pub(crate) const SYNCS: &str = "FOREVER_SYNCS";

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
    say(&serde_json::to_string(what).expect("numbers are JSON"));
}

/// Says something to the parent.
pub(crate) fn say(word: &str) {
    println!("{word}");
    let _ = std::io::stdout().flush();
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
