//! A load reads all data of a fiber from one moment, whatever is written meanwhile.
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::{Connection, params};

use super::{Durability, open, rows, traced};
use crate::{LoadedFiber, Seq};

/// Puts a fiber into one of its moments: every value that a load reads is of that moment.
fn be(conn: &mut Connection, fiber: Seq, moment: u32) {
    let tx = conn.transaction().unwrap();
    let data = format!(r#"{{"at":"{moment}","locals":{{"part":{{"$part":"p"}}}},"call":null}}"#);
    tx.execute("UPDATE snapshots SET number = ?2, at = ?2, data = ?3 WHERE fiber = ?1", params![fiber, moment, data]).unwrap();
    tx.execute("INSERT OR REPLACE INTO parts (fiber, name, data) VALUES (?1, 'p', ?2)", params![fiber, moment.to_string()]).unwrap();
    tx.execute("INSERT OR IGNORE INTO streams (seq, fiber, name) VALUES (1, ?1, 'log/0')", [fiber]).unwrap();
    tx.execute(
        "INSERT OR REPLACE INTO stream_chunks (stream, first, count, data, stored_ms) VALUES (1, 0, 1, ?1, 0)",
        [moment.to_string()],
    )
    .unwrap();
    tx.execute("DELETE FROM ops WHERE fiber = ?1", [fiber]).unwrap();
    tx.execute(
        "INSERT INTO ops (fiber, number, id, kind, function, step, state, started_ms, changed_ms)
         VALUES (?1, ?2, ?2, 'effect', 'work', 'charge', 'started', 0, 0)",
        params![fiber, moment],
    )
    .unwrap();
    tx.commit().unwrap();
}

/// The moment that each piece of the loaded data is of.
fn moments(stored: &LoadedFiber) -> Vec<String> {
    let at: serde_json::Value = serde_json::from_str(stored.snapshot.as_deref().unwrap()).unwrap();
    let mut moments = vec![stored.number.to_string(), at["at"].as_str().unwrap().to_owned()];
    moments.extend(stored.rows.parts.values().map(ToString::to_string));
    moments.extend(stored.rows.logs.values().flatten().map(ToString::to_string));
    moments.extend(stored.ops.iter().map(|op| op.id.clone()));
    moments
}

#[test]
fn a_fiber_is_loaded_as_it_was_at_one_moment() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("fibers.db");
    let writer = open::writer(&path, Durability::Process, false).unwrap();
    writer
        .execute("INSERT INTO fibers (id, name, state, args, created_ms, changed_ms) VALUES ('f', 'work', 'running', '{}', 0, 0)", ())
        .unwrap();
    let fiber = writer.last_insert_rowid();
    writer.execute("INSERT INTO snapshots (fiber) VALUES (?1)", [fiber]).unwrap();
    let writer = Arc::new(Mutex::new(writer));
    let mut seen = Vec::new();
    // A checkpoint is committed before the first statement of a load, before the second, and so on
    // until there is none.
    for commits_before in 0.. {
        be(&mut writer.lock().unwrap(), fiber, 1);
        let statements = Arc::new(Mutex::new(0));
        let (of_trace, count) = (Arc::clone(&writer), Arc::clone(&statements));
        let reader = traced::before_statements(open::reader(&path).unwrap(), move || {
            let mut n = count.lock().unwrap_or_else(PoisonError::into_inner);
            if *n == commits_before {
                be(&mut of_trace.lock().unwrap(), fiber, 2);
            }
            *n += 1;
        });
        let moments = moments(&rows::load(&reader, fiber).unwrap());
        assert_eq!(moments, vec![moments[0].clone(); 5], "a checkpoint before statement {commits_before}");
        seen.push(moments[0].clone());
        if *statements.lock().unwrap() <= commits_before {
            break;
        }
    }
    // A commit before the first read of a table is seen, a later one is not.
    assert!(seen.contains(&"2".to_owned()) && seen.len() > 5, "{seen:?}");
    assert_eq!(seen.last().unwrap(), "1");
}
