//! Settings of the server, the database or the role that the statements of the store depend on.
//!
//! A session of the store's own sets what it needs when it is opened. What it cannot set, and what
//! a pooler's sessions have, is checked when the store is opened. A setting under which nothing, or
//! something else, would be stored is refused by name.
use std::sync::Arc;
use std::time::Duration;

use forever_store::{Error, ErrorKind};

use crate::pool::LOCKED;
use crate::sql::{Done, Fail, Tx, args};

/// What a setting has to be.
#[derive(Debug, Clone, Copy)]
enum Needed {
    /// This value.
    Exactly(&'static str),
    /// No time limit, or one that leaves a statement the time it needs.
    NoShortLimit,
}

use Needed::{Exactly, NoShortLimit};

/// Settings under which the store works. Versions of Postgres that do not know one pass over it.
const NEEDED: &[(&str, Needed)] = &[
    // Fixed when the database is created. Text of another language could not be stored.
    ("server_encoding", Exactly("UTF8")),
    ("default_transaction_read_only", Exactly("off")),
    // Backslashes in constants stand for themselves.
    ("standard_conforming_strings", Exactly("on")),
    // A replica runs no foreign keys, so rows would stay that go with others. Only a superuser can
    // set it.
    ("session_replication_role", Exactly("origin")),
    ("statement_timeout", NoShortLimit),
    ("lock_timeout", NoShortLimit),
    ("transaction_timeout", NoShortLimit),
    ("idle_in_transaction_session_timeout", NoShortLimit),
    ("idle_session_timeout", NoShortLimit),
];

/// The shortest time limit that is not refused.
const SHORTEST: Duration = Duration::from_secs(1);

/// SQL that a session of the store's own begins with.
///
/// `limit` is the time that a call may take: shorter limits of the server are raised to it.
pub(crate) fn of_session(limit: Duration) -> Arc<str> {
    let limit = limit.as_millis().clamp(1, i32::MAX.unsigned_abs().into());
    let exactly = |(name, value): (&str, &str)| format!("('{name}', '{value}')");
    let values: Vec<String> = NEEDED
        .iter()
        .filter_map(|(name, needed)| match needed {
            Exactly(value) => Some(exactly((name, value))),
            NoShortLimit => None,
        })
        // Connections of the pool may be idle for as long as nothing happens.
        .chain([exactly(("idle_session_timeout", "0")), exactly(("lock_timeout", &LOCKED.as_millis().to_string()))])
        .collect();
    // `user`: what everybody may set.
    format!(
        "SELECT pg_catalog.set_config(s.name, coalesce(v.value, '{limit}'), FALSE)
         FROM pg_catalog.pg_settings s LEFT JOIN (VALUES {}) v (name, value) ON v.name = s.name
         WHERE s.context = 'user' AND CASE
             WHEN v.value IS NOT NULL THEN s.setting <> v.value
             WHEN s.name IN ('statement_timeout', 'transaction_timeout', 'idle_in_transaction_session_timeout')
                 THEN s.setting::bigint BETWEEN 1 AND {limit} - 1
             ELSE FALSE END",
        values.join(", ")
    )
    .into()
}

/// Fails if a setting of the session is one under which the store does not work.
pub(crate) async fn check(tx: &Tx) -> Done<()> {
    let names: Vec<&str> = NEEDED.iter().map(|(name, _)| *name).collect();
    let sql = "SELECT name::text AS name, setting FROM pg_catalog.pg_settings WHERE name = ANY ($1) ORDER BY name";
    for row in tx.rows(sql, args![names]).await? {
        let (name, setting) = (row.text("name")?, row.text("setting")?);
        let needed = NEEDED.iter().find(|(needed, _)| *needed == name).map(|(_, needed)| *needed);
        let remedy = match needed {
            Some(Exactly(value)) if !value.eq_ignore_ascii_case(&setting) => format!("the store needs `{value}`"),
            Some(NoShortLimit) if is_short(&setting) => "the store needs a second at least, or 0 for none".to_owned(),
            _ => continue,
        };
        let unit = if matches!(needed, Some(NoShortLimit)) { " ms" } else { "" };
        let why = format!("the server's setting `{name}` is `{setting}`{unit} for this role and database: {remedy}");
        return Err(Fail::Refused(Error::new(ErrorKind::Setup, why)));
    }
    Ok(())
}

/// Whether a time limit in milliseconds leaves a statement too little time; 0 is none.
fn is_short(setting: &str) -> bool {
    setting.parse::<u128>().is_ok_and(|ms| ms != 0 && ms < SHORTEST.as_millis())
}
