//! Forever beside sqlx, whose SQLite is the same: each writes a database of its own, and sqlx reads
//! that of Forever too.
#![forbid(unsafe_code)]

mod fibers;

use forever::BoxError;
use sqlx::ConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;

async fn beside() -> Result<(), BoxError> {
    let folder = fibers::folder()?;
    let mut own = SqliteConnectOptions::new().filename(folder.join("own.db")).create_if_missing(true).connect().await?;
    sqlx::query("CREATE TABLE numbers (number INTEGER NOT NULL)").execute(&mut own).await?;
    sqlx::query("INSERT INTO numbers VALUES (21)").execute(&mut own).await?;
    let number = sqlx::query_scalar::<_, i64>("SELECT number FROM numbers").fetch_one(&mut own).await?;

    let database = folder.join("fibers.db");
    let (forever, twice) = fibers::run(&database, number).await?;
    assert_eq!(twice, 42);
    let mut beside = SqliteConnectOptions::new().filename(&database).read_only(true).connect().await?;
    let stored = sqlx::query_scalar::<_, i64>("SELECT twice FROM results").fetch_one(&mut beside).await?;
    assert_eq!(stored, 42);
    drop((own, beside));
    forever.close().await?;
    std::fs::remove_dir_all(folder)?;
    Ok(())
}

fn main() -> Result<(), BoxError> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(beside())
}
