//! A fiber and a transaction of Forever, in a program that uses another library for SQLite too.
use std::path::{Path, PathBuf};

use forever::BoxError;
use forever::prelude::*;

/// Doubles a number, in two steps.
#[fiber]
async fn double(number: i64) -> Result<i64, BoxError> {
    let once = step!("once", number);
    let twice = step!("twice", once + number);
    Ok(twice)
}

/// Runs the fiber over a database of its own, and stores its result in a table of the program.
/// Returns while the database is open.
pub async fn run(database: &Path, number: i64) -> Result<(Forever, i64), BoxError> {
    let forever = Forever::builder().sqlite(database).fiber::<double>().open().await?;
    let twice = forever.spawn(double(number)).key("double").await?.wait().await?;
    let stored = forever.transaction(move |tx| {
        tx.execute_batch("CREATE TABLE results (twice INTEGER NOT NULL)")?;
        tx.execute("INSERT INTO results VALUES (?1)", [twice])?;
        let version: String = tx.query_row("SELECT sqlite_version()", (), |row| row.get(0))?;
        println!("SQLite {version}");
        Ok::<i64, BoxError>(tx.query_row("SELECT twice FROM results", (), |row| row.get(0))?)
    });
    let stored = stored.await?;
    Ok((forever, stored))
}

/// A new folder for the databases of this process.
pub fn folder() -> Result<PathBuf, BoxError> {
    let folder = std::env::temp_dir().join(format!("forever-beside-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    Ok(folder)
}
