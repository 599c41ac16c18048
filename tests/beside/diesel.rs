//! Forever beside Diesel, whose SQLite is the same: each writes a database of its own, and Diesel
//! reads that of Forever too.
#![forbid(unsafe_code)]

mod fibers;

use std::path::Path;

use diesel::connection::SimpleConnection;
use diesel::sql_types::BigInt;
use diesel::{Connection, QueryableByName, RunQueryDsl, SqliteConnection};
use forever::BoxError;

#[derive(QueryableByName)]
struct Row {
    #[diesel(sql_type = BigInt)]
    number: i64,
}

fn connect(path: &Path) -> Result<SqliteConnection, BoxError> {
    Ok(SqliteConnection::establish(path.to_str().ok_or("a path that is no text")?)?)
}

async fn beside() -> Result<(), BoxError> {
    let folder = fibers::folder()?;
    let mut own = connect(&folder.join("own.db"))?;
    own.batch_execute("CREATE TABLE numbers (number INTEGER NOT NULL); INSERT INTO numbers VALUES (21)")?;
    let Row { number } = diesel::sql_query("SELECT number FROM numbers").get_result(&mut own)?;

    let database = folder.join("fibers.db");
    let (forever, twice) = fibers::run(&database, number).await?;
    assert_eq!(twice, 42);
    let mut beside = connect(&database)?;
    let Row { number } = diesel::sql_query("SELECT twice AS number FROM results").get_result(&mut beside)?;
    assert_eq!(number, 42);
    drop((own, beside));
    forever.close().await?;
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

fn main() -> Result<(), BoxError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(beside())
}
