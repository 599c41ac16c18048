//! Notifications between workers: `NOTIFY` after a commit, `LISTEN` on the direct connection.
//!
//! They are hints that shorten polls, and nothing depends on them. A worker sends them in a task
//! of its own, many changes in one, and only while there are other workers.
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use forever_store::{Notification, WorkerId};
use tokio::sync::Notify;

use crate::sql::{Done, Tx, args};

/// Shortest time between two notifications that a worker sends.
pub(crate) const PAUSE: Duration = Duration::from_millis(20);

/// Something changed that other workers may wait for.
pub(crate) const CHANGED: u8 = 1;
/// A fiber is ready, and no worker was notified of it.
pub(crate) const READY: u8 = 2;
/// A request to an agent, or its outcome, was stored.
pub(crate) const REQUESTED: u8 = 4;

/// Notifications to send, and those received.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    outgoing: AtomicU8,
    send: Notify,
    incoming: AtomicU8,
    received: Notify,
    /// Whether this worker counted as dead.
    pub(crate) fenced: AtomicBool,
    /// Whether there are other workers.
    pub(crate) has_others: AtomicBool,
}

impl Notices {
    /// Notes that a committed transaction changed something.
    pub(crate) fn raise(&self, kinds: u8) {
        if kinds != 0 && self.has_others.load(Ordering::Relaxed) {
            self.outgoing.fetch_or(kinds, Ordering::AcqRel);
            self.send.notify_one();
        }
    }

    /// Waits until there is something to send, and takes it.
    pub(crate) async fn outgoing(&self) -> u8 {
        loop {
            let kinds = self.outgoing.swap(0, Ordering::AcqRel);
            if kinds != 0 {
                return kinds;
            }
            self.send.notified().await;
        }
    }

    /// Takes in a notification that another worker, or this one, has sent.
    pub(crate) fn receive(&self, payload: &str, this: WorkerId) {
        let Some((worker, kinds)) = payload.split_once(' ') else { return };
        if worker.parse() != Ok(this)
            && let Ok(kinds) = kinds.parse()
        {
            self.incoming.fetch_or(kinds, Ordering::AcqRel);
            self.received.notify_one();
        }
    }

    /// Waits for a notification of another worker.
    pub(crate) async fn notified(&self) -> Notification {
        loop {
            let kinds = self.incoming.swap(0, Ordering::AcqRel);
            if kinds != 0 {
                return Notification { ready: kinds & READY != 0, requested: kinds & REQUESTED != 0 };
            }
            self.received.notified().await;
        }
    }
}

/// The channel of a schema, as SQL; `$1` is the name of the schema. Names of channels are short,
/// and names of schemas may not be.
const CHANNEL: &str = "'forever_' || md5($1)";

/// Sends a notification.
pub(crate) async fn send(tx: &Tx, schema: &str, worker: WorkerId, kinds: u8) -> Done<()> {
    let payload = format!("{worker} {kinds}");
    tx.rows(&format!("SELECT pg_notify({CHANNEL}, $2)::text AS sent"), args![schema, &payload]).await.map(drop)
}

/// The name of the channel of a schema.
pub(crate) fn channel() -> String {
    format!("SELECT {CHANNEL} AS channel")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn notifications_come_together_and_never_from_this_worker() {
        let notices = Notices::default();
        notices.raise(CHANGED);
        assert_eq!(notices.outgoing.load(Ordering::Relaxed), 0, "there is no other worker");
        notices.has_others.store(true, Ordering::Relaxed);
        notices.raise(CHANGED);
        notices.raise(READY);
        assert_eq!(notices.outgoing().await, CHANGED | READY);

        for payload in ["7 3", "", "x", "8 y"] {
            notices.receive(payload, 7);
        }
        assert_eq!(notices.incoming.load(Ordering::Relaxed), 0);
        notices.receive("8 1", 7);
        assert_eq!(notices.notified().await, Notification::default());
        notices.receive("8 1", 7);
        notices.receive("9 2", 7);
        assert_eq!(notices.notified().await, Notification { ready: true, requested: false });
        notices.receive("8 5", 7);
        assert_eq!(notices.notified().await, Notification { ready: false, requested: true });
    }
}
