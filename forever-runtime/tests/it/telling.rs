//! What a person can see of running fibers in their logs.
use std::fmt::{Debug, Write as _};
use std::path::Path;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::child;
use crate::fibers::{Three, three};
use crate::support::{Place, Probe, usual};

/// Writes down spans and events as lines.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Line<'a>(&'a mut String);

impl Visit for Line<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("forever")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = format!("span {}", span.metadata().name());
        span.record(&mut Line(&mut line));
        self.0.lock().unwrap().push(line);
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        let mut line = event.metadata().level().to_string();
        event.record(&mut Line(&mut line));
        self.0.lock().unwrap().push(line);
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

#[test]
fn a_run_is_a_span_that_says_which_fiber_it_is_and_whether_it_resumes() {
    // In a process of its own: whether a place in the code is listened to is decided once for all threads.
    let place = Place::new();
    let mut child = child::start("tell", &place);
    child.until_said("told").unwrap();
    assert!(child.wait().unwrap().success());
}

/// What the child does.
pub async fn tell(place: &Path) {
    let (probe, lines) = (Probe::default(), Lines::default());
    tracing::subscriber::set_global_default(lines.clone()).unwrap();
    let open = || usual(&probe).sqlite(place).open();
    probe.hold("a.two");
    let forever = open().await.unwrap();
    forever.spawn(three("a")).id("i").await.unwrap();
    probe.reached("a.two").await;
    drop(forever);
    probe.clear();
    let forever = open().await.unwrap();
    forever.fiber::<Three>("i").wait().await.unwrap();

    let lines = lines.0.lock().unwrap().clone();
    let spans: Vec<&String> = lines.iter().filter(|l| l.starts_with("span")).collect();
    assert_eq!(
        spans,
        [
            "span fiber fiber.id=i fiber.name=\"three\" forever.resuming=false",
            "span fiber fiber.id=i fiber.name=\"three\" forever.resuming=true"
        ]
    );
    assert!(lines.contains(&"DEBUG message=checkpoint at=\"two\" number=2 bytes=58".to_owned()), "{lines:#?}");
}
