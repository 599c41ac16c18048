//! Places at which fibers wait, as the index of waiting fibers has them.
use rusqlite::{Connection, OptionalExtension, Row};
use sha2::{Digest, Sha256};

use crate::Seq;

/// Whether rows that came after a snapshot `s` of a fiber `f` were stored under a layout that is
/// none of the snapshot's.
pub(super) const MIXED: &str =
    "(EXISTS (SELECT 1 FROM branch_results b WHERE b.fiber = f.seq AND b.number = s.number AND b.layout IS NOT NULL
                              AND b.layout IS NOT s.layout AND instr(coalesce(s.callees, ''), b.layout) = 0)
                      OR EXISTS (SELECT 1 FROM ops b WHERE b.fiber = f.seq AND b.number = s.number AND b.layout IS NOT NULL
                                 AND b.layout IS NOT s.layout AND instr(coalesce(s.callees, ''), b.layout) = 0))";

/// Digest of the place at which a fiber waits; `None` for a closure, which no code resumes.
pub(super) fn of(conn: &Connection, seq: Seq) -> rusqlite::Result<Option<[u8; PLACE]>> {
    let sql = format!(
        "SELECT f.name, s.at, s.layout, s.callees, {MIXED} FROM fibers f LEFT JOIN snapshots s ON s.fiber = f.seq
         WHERE f.seq = ?1 AND f.kind = 'function'"
    );
    let place = |row: &Row<'_>| {
        // A damaged text is one as well.
        let text = |column| row.get_ref(column).map(|value| value.as_bytes().ok());
        Ok(digest([text(0)?, text(1)?, text(2)?, text(3)?], row.get(4)?))
    };
    conn.prepare_cached(&sql)?.query_row([seq], place).optional()
}

/// Bytes of the digest of a place.
const PLACE: usize = 16;

/// Digest of a function, a cut point, a layout and the layouts of called functions, and whether
/// other layouts are [mixed](MIXED) in. Fibers that wait are counted by it: the texts themselves
/// would be long in an index.
pub(super) fn digest(parts: [Option<&[u8]>; 4], mixed: bool) -> [u8; PLACE] {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part.map_or(u64::MAX, |text| text.len() as u64).to_be_bytes());
        digest.update(part.unwrap_or_default());
    }
    if mixed {
        digest.update(b"mixed");
    }
    let digest: [u8; 32] = digest.finalize().into();
    std::array::from_fn(|n| digest[n])
}
