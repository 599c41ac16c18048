//! The database that is damaged, as two processes have left it one after the other, each of which was killed.
use std::path::Path;
use std::sync::OnceLock;

use forever::Forever;
use forever_testkit::waiting::eventually;
use rusqlite::Connection;

use crate::desk::{Desk, Standing};
use crate::programs;

/// The database as bytes. It needs no log.
pub(super) fn whole() -> &'static [u8] {
    static WHOLE: OnceLock<Vec<u8>> = OnceLock::new();
    WHOLE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let file = |n: u32| folder.path().join(format!("{n}.db"));
        for life in [1, 2] {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(live(life, &file(life), &file(life + 1)));
        }
        std::fs::read(file(3)).unwrap()
    })
}

/// Lives in the database until everything is held. Then the database is copied: so a process leaves it that is killed at this moment.
async fn live(life: u32, path: &Path, left: &Path) {
    let desk = Desk::new(life, &programs::holds());
    let builder = Forever::builder().sqlite(path).clock(Standing::default());
    let forever = programs::settings(programs::registered(builder, &desk), life).open().await.unwrap();
    programs::begin(&forever, &desk).await.unwrap();
    for work in desk.missing() {
        eventually(work, async || !desk.missing().contains(&work)).await;
    }
    programs::then(&forever, &desk).await.unwrap();
    let sql = Connection::open(path).unwrap();
    for (_, query) in programs::settled().into_iter().filter(|(of, _)| *of == life) {
        eventually(query, async || sql.query_row(query, (), |row| row.get(0)).unwrap_or(false)).await;
    }
    forever.backup(left).await.unwrap();
}
