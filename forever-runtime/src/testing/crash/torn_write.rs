//! Damages the end of a write-ahead log as a death may: any part of an unacknowledged commit may be
//! missing or overwritten.
//!
//! SQLite counts a frame only if its checksum and all before it are right, and a commit only if its
//! last frame is there (<https://sqlite.org/fileformat2.html#the_write_ahead_log>). So the commit
//! is either there or not, and earlier ones are.
use std::fs::OpenOptions;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use super::super::dice::Dice;
use crate::store::Pages;

/// Size in bytes.
const HEADER: usize = 32;
const FRAME_HEADER: u64 = 24;

/// Damages the part of the log between its length at the last acknowledged commit, in pages, and
/// its last length.
pub(super) fn torn_write(database: &Path, heard: Pages, last: Pages, dice: &mut Dice) -> std::io::Result<()> {
    let mut path = database.as_os_str().to_owned();
    path.push("-wal");
    let mut file = match OpenOptions::new().read(true).write(true).open(path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        file => file?,
    };
    let mut header = [0; HEADER];
    if file.read_exact(&mut header).is_err() {
        return Ok(());
    }
    let [_, _, _, _, _, _, _, _, a, b, c, d, ..] = header;
    let frame = FRAME_HEADER + u64::from(u32::from_be_bytes([a, b, c, d]));
    let at = |pages: u32| HEADER as u64 + u64::from(pages) * frame;
    // A log that has restarted since then holds no acknowledged commit.
    let from = if last < heard { 0 } else { at(heard) };
    let to = at(last).min(file.metadata()?.len());
    if from >= to {
        return Ok(());
    }
    let cut = from + dice.below(to - from);
    match dice.below(3) {
        0 => file.set_len(cut),
        kind => {
            // The earlier content, or a page that the disk never wrote.
            let byte = if kind == 1 { 0 } else { 0xa5 };
            let length = usize::try_from(to - cut).unwrap_or_default();
            file.seek(SeekFrom::Start(cut))?;
            file.write_all(&vec![byte; length])
        }
    }
}
