//! Runs a fiber without a kill and killed after each of its checkpoints, and compares outcome and effects.
use std::sync::{Arc, Mutex};

use forever::Fiber;
use forever::testing::{From, Outcome, Played, Stage};

/// The outside world: what was done, in order, and how often each step finished.
#[derive(Clone, Debug, Default)]
pub struct Io(Arc<Mutex<Vec<String>>>);

impl Io {
    pub fn log(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    pub fn taken(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// A step's work: logged, gives its argument back.
    pub async fn did<T>(&self, what: impl Into<String>, value: T) -> anyhow::Result<T> {
        tokio::task::yield_now().await;
        self.log(what);
        Ok(value)
    }

    pub async fn fails(&self, what: &str) -> anyhow::Result<u32> {
        self.log(what);
        anyhow::bail!("{what} failed")
    }
}

fn text<T: std::fmt::Debug>(outcome: &Outcome<T>) -> String {
    format!("{outcome:?}")
}

async fn play<F: Fiber>(io: &Io, from: From<F>, kill: Option<usize>) -> Played<F::Output> {
    Stage::new().resource(io.clone()).play(from, kill).await
}

/// Plays the fiber in one go, then killed after each checkpoint, then killed after every checkpoint in a row.
/// Gives back the outcome, the log and the snapshots of the run in one go.
#[track_caller]
pub fn everywhere<F: Fiber>(make: impl Fn() -> F) -> (String, Vec<String>, Vec<String>)
where
    F::Output: std::fmt::Debug,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let io = Io::default();
        let whole = play(&io, From::Start(make()), None).await;
        let (want, log) = (text(&whole.outcome), io.taken());
        for k in 1..=whole.snapshots.len() {
            let io = Io::default();
            let killed = play(&io, From::Start(make()), Some(k)).await;
            assert!(matches!(killed.outcome, Outcome::Killed), "not killed at {k}: {:?}", killed.outcome);
            let snapshot = killed.snapshots.last().unwrap().clone();
            assert_eq!(snapshot, whole.snapshots[k - 1], "another snapshot at checkpoint {k}");
            let resumed = play::<F>(&io, From::Snapshot(snapshot.clone()), None).await;
            assert_eq!(text(&resumed.outcome), want, "killed after checkpoint {k}: {snapshot}");
            assert_eq!(io.taken(), log, "killed after checkpoint {k}: {snapshot}");
            assert_eq!(resumed.snapshots, whole.snapshots[k..], "killed after checkpoint {k}: {snapshot}");
        }
        if !whole.snapshots.is_empty() {
            let io = Io::default();
            let mut played = play(&io, From::Start(make()), Some(1)).await;
            let mut made = 1;
            while matches!(played.outcome, Outcome::Killed) {
                let snapshot = played.snapshots.last().unwrap().clone();
                played = play::<F>(&io, From::Snapshot(snapshot), Some(1)).await;
                made += played.snapshots.len();
            }
            assert_eq!(text(&played.outcome), want, "killed after every checkpoint");
            assert_eq!(io.taken(), log, "killed after every checkpoint");
            assert_eq!(made, whole.snapshots.len());
        }
        (want, log, whole.snapshots)
    })
}
