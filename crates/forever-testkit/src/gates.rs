//! Places at which a test stops what it tests.
use std::collections::BTreeSet;
use std::sync::Arc;

use tokio::sync::watch;

/// Gates by name, all closed at first. They stay open whatever becomes of runtimes; clones are the
/// same gates.
#[derive(Clone, Debug)]
pub struct Gates(Arc<watch::Sender<State>>);

#[derive(Debug, Default)]
struct State {
    open: BTreeSet<String>,
    reached: BTreeSet<String>,
}

impl Gates {
    /// Closed gates.
    #[must_use]
    pub fn new() -> Self {
        Gates(Arc::new(watch::Sender::new(State::default())))
    }

    /// Opens a gate for good.
    pub fn open(&self, name: &str) {
        self.0.send_modify(|state| {
            state.open.insert(name.to_owned());
        });
    }

    /// Waits at a gate until it is open.
    pub async fn pass(&self, name: &str) {
        self.0.send_modify(|state| {
            state.reached.insert(name.to_owned());
        });
        self.until(|state| state.open.contains(name)).await;
    }

    /// Waits until something has come to a gate.
    pub async fn reached(&self, name: &str) {
        self.until(|state| state.reached.contains(name)).await;
    }

    async fn until(&self, is_so: impl Fn(&State) -> bool) {
        // It cannot be closed: the sender is in `self`.
        let _ = self.0.subscribe().wait_for(|state| is_so(state)).await;
    }
}

impl Default for Gates {
    fn default() -> Self {
        Gates::new()
    }
}
