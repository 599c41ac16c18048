//! Events of fibers as JSON, for other workers.
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::clock;
use crate::runtime::events::{Event, EventKind};
use crate::runtime::unread::UnreadTopic;

#[derive(Serialize, Deserialize)]
struct EventRow {
    fiber: String,
    name: String,
    ms: i64,
    kind: KindRow,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum KindRow {
    Spawned,
    Started { resuming: bool },
    StepStarted { step: String },
    StepFinished { step: String, checkpoint: u64 },
    StepRetried { step: String, failed: u32, error: String },
    Stashed,
    Waiting,
    Woken,
    Recovered { deaths: u32 },
    Interrupted { reason: String },
    Parked { reason: String },
    Completed,
    Failed { reason: String },
    Cancelled { reason: String },
    Unread { topics: Vec<(String, u64)> },
}

impl From<&EventKind> for KindRow {
    fn from(kind: &EventKind) -> Self {
        match kind {
            EventKind::Spawned => KindRow::Spawned,
            EventKind::Started { resuming } => KindRow::Started { resuming: *resuming },
            EventKind::StepStarted { step } => KindRow::StepStarted { step: step.to_string() },
            EventKind::StepFinished { step, checkpoint } => KindRow::StepFinished { step: step.to_string(), checkpoint: *checkpoint },
            EventKind::StepRetried { step, failed, error } => {
                KindRow::StepRetried { step: step.to_string(), failed: *failed, error: error.to_string() }
            }
            EventKind::Stashed => KindRow::Stashed,
            EventKind::Waiting => KindRow::Waiting,
            EventKind::Woken => KindRow::Woken,
            EventKind::Recovered { deaths } => KindRow::Recovered { deaths: *deaths },
            EventKind::Interrupted { reason } => KindRow::Interrupted { reason: reason.to_string() },
            EventKind::Parked { reason } => KindRow::Parked { reason: reason.to_string() },
            EventKind::Completed => KindRow::Completed,
            EventKind::Failed { reason } => KindRow::Failed { reason: reason.to_string() },
            EventKind::Cancelled { reason } => KindRow::Cancelled { reason: reason.to_string() },
            EventKind::Unread { topics } => {
                KindRow::Unread { topics: topics.iter().map(|topic| (topic.topic.clone(), topic.messages)).collect() }
            }
        }
    }
}

impl From<KindRow> for EventKind {
    fn from(row: KindRow) -> Self {
        match row {
            KindRow::Spawned => EventKind::Spawned,
            KindRow::Started { resuming } => EventKind::Started { resuming },
            KindRow::StepStarted { step } => EventKind::StepStarted { step: step.into() },
            KindRow::StepFinished { step, checkpoint } => EventKind::StepFinished { step: step.into(), checkpoint },
            KindRow::StepRetried { step, failed, error } => EventKind::StepRetried { step: step.into(), failed, error: error.into() },
            KindRow::Stashed => EventKind::Stashed,
            KindRow::Waiting => EventKind::Waiting,
            KindRow::Woken => EventKind::Woken,
            KindRow::Recovered { deaths } => EventKind::Recovered { deaths },
            KindRow::Interrupted { reason } => EventKind::Interrupted { reason: reason.into() },
            KindRow::Parked { reason } => EventKind::Parked { reason: reason.into() },
            KindRow::Completed => EventKind::Completed,
            KindRow::Failed { reason } => EventKind::Failed { reason: reason.into() },
            KindRow::Cancelled { reason } => EventKind::Cancelled { reason: reason.into() },
            KindRow::Unread { topics } => {
                let topics = topics.into_iter().map(|(topic, messages)| UnreadTopic { topic, messages });
                EventKind::Unread { topics: topics.collect() }
            }
        }
    }
}

pub(crate) fn write(event: &Event) -> String {
    let Event { fiber, name, time, kind } = event;
    let row = EventRow { fiber: fiber.to_string(), name: name.to_string(), ms: clock::ms(*time), kind: kind.into() };
    // Strings, numbers and flags can always be written.
    serde_json::to_string(&row).unwrap_or_default()
}

/// Reads an event; `None` where it is of a kind that this version does not know.
pub(crate) fn read(text: &str) -> Option<Event> {
    let EventRow { fiber, name, ms, kind } = serde_json::from_str(text).ok()?;
    let time: SystemTime = clock::from_ms(ms);
    Some(Event { fiber: fiber.into(), name: name.into(), time, kind: kind.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_event_comes_back_and_others_are_not_read() {
        let kinds = [
            EventKind::Spawned,
            EventKind::Started { resuming: true },
            EventKind::StepStarted { step: "pay".into() },
            EventKind::StepFinished { step: "pay".into(), checkpoint: 7 },
            EventKind::StepRetried { step: "pay".into(), failed: 2, error: "no\0".into() },
            EventKind::Stashed,
            EventKind::Waiting,
            EventKind::Woken,
            EventKind::Recovered { deaths: 3 },
            EventKind::Interrupted { reason: "died".into() },
            EventKind::Parked { reason: "drift".into() },
            EventKind::Completed,
            EventKind::Failed { reason: "no".into() },
            EventKind::Cancelled { reason: "enough".into() },
            EventKind::Unread { topics: vec![UnreadTopic { topic: "go".into(), messages: 3 }] },
        ];
        for kind in kinds {
            let event = Event { fiber: "f".into(), name: "work".into(), time: clock::from_ms(-5), kind };
            assert_eq!(read(&write(&event)), Some(event));
        }
        for text in ["", "{}", "null", r#"{"fiber":"f","name":"n","ms":1,"kind":"Exploded"}"#] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
