//! The statements of a connection, for tests, with every version of rusqlite: see
//! [`compat`](super::compat).
use std::cell::RefCell;
use std::time::Duration;

use rusqlite::{Connection, StatementStatus};

use super::compat::Outcome as _;

type Begins = Box<dyn FnMut()>;
type Ends = Box<dyn FnMut(&str, bool)>;

thread_local! {
    /// Called for the traced connection of this thread.
    static BEGINS: RefCell<Begins> = RefCell::new(Box::new(|| ()));
    static ENDS: RefCell<Ends> = RefCell::new(Box::new(|_, _| ()));
}

/// Calls `begins` before each statement of a connection of this thread, until the next trace on
/// this thread.
pub(super) fn before_statements(conn: Connection, begins: impl FnMut() + 'static) -> Connection {
    BEGINS.set(Box::new(begins));
    ENDS.set(Box::new(|_, _| ()));
    traced(conn, true)
}

/// Calls `ends` after each statement of a connection of this thread, with its text and whether
/// SQLite parsed it again. Before rusqlite 0.33 that is unknown, and never true.
pub(super) fn after_statements(conn: Connection, ends: impl FnMut(&str, bool) + 'static) -> Connection {
    BEGINS.set(Box::new(|| ()));
    ENDS.set(Box::new(ends));
    traced(conn, false)
}

fn traced(mut conn: Connection, before: bool) -> Connection {
    // Comes before the types of this module, if it has them.
    #[allow(unused_imports, clippy::wildcard_imports, reason = "not every version has the types")]
    use rusqlite::trace::*;

    // The method `trace_v2`, where there is one, takes the place of these. One of these takes the
    // place of the other.
    #[allow(deprecated, reason = "in versions that have `trace_v2` too")]
    if before {
        conn.trace(Some(|_| BEGINS.with_borrow_mut(|begins| begins())));
    } else {
        conn.profile(Some(|sql, _| ENDS.with_borrow_mut(|ends| ends(sql, false))));
    }
    let traced = conn.trace_v2(
        TraceEventCodes::all(),
        Some(|event: TraceEvent| match event {
            TraceEvent::Stmt(..) => BEGINS.with_borrow_mut(|begins| begins()),
            TraceEvent::Profile(statement, _) => {
                let again = statement.get_status(StatementStatus::RePrepare) > 0;
                ENDS.with_borrow_mut(|ends| ends(&statement.sql(), again));
            }
            _ => {}
        }),
    );
    traced.outcome().unwrap();
    conn
}

/// Methods that some versions do not have.
#[allow(dead_code, reason = "each is unused where the connection has the method itself")]
trait Missing {
    /// Until 0.40.
    fn trace(&mut self, _: Option<fn(&str)>) {}

    /// Until 0.40.
    fn profile(&mut self, _: Option<fn(&str, Duration)>) {}

    /// Since 0.33.
    fn trace_v2(&mut self, _: TraceEventCodes, _: Option<fn(TraceEvent)>) {}
}

impl Missing for Connection {}

/// In place of rusqlite's type, which is there since 0.33.
#[allow(dead_code, reason = "unused where rusqlite has its own")]
struct TraceEventCodes;

#[allow(dead_code, reason = "unused where rusqlite has its own")]
impl TraceEventCodes {
    fn all() -> Self {
        TraceEventCodes
    }
}

/// In place of rusqlite's type, which is there since 0.33.
#[allow(dead_code, reason = "unused where rusqlite has its own")]
enum TraceEvent {
    Stmt(Text, ()),
    Profile(Text, ()),
    Other,
}

#[allow(dead_code, reason = "unused where rusqlite has its own")]
struct Text(String);

#[allow(dead_code, clippy::unused_self, reason = "unused where rusqlite has its own")]
impl Text {
    fn sql(&self) -> &str {
        &self.0
    }

    fn get_status(&self, _: StatementStatus) -> i32 {
        0
    }
}
