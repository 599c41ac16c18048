//! Migrations of the program's own tables: each is applied once, in order, and none is changed afterwards.
use forever::{Error, ErrorKind, Forever, Result};

use crate::support::{Bank, Place};

type Given = [(&'static str, &'static str)];

const ONE: (&str, &str) = ("one", "CREATE TABLE one (a INTEGER PRIMARY KEY) STRICT;\nINSERT INTO one VALUES (1);");
const TWO: (&str, &str) = ("two", "CREATE TABLE two (a INTEGER REFERENCES one (a)) STRICT; INSERT INTO two VALUES (1)");
/// One that others refer to is made anew.
const THREE: (&str, &str) = (
    "three",
    "CREATE TABLE new_one (a INTEGER PRIMARY KEY, b TEXT) STRICT; INSERT INTO new_one (a) SELECT a FROM one; DROP TABLE one;
     ALTER TABLE new_one RENAME TO one",
);

async fn open(place: &Place, given: &Given) -> Result<Forever> {
    let mut builder = place.builder(&Bank::default());
    for (name, sql) in given {
        builder = builder.migration(*name, *sql);
    }
    builder.open().await
}

/// Opens it and closes it again.
async fn applies(place: &Place, given: &Given) {
    open(place, given).await.unwrap().close().await.unwrap();
}

async fn refused(place: &Place, given: &Given) -> Error {
    let error = open(place, given).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Setup, "{error}");
    error
}

fn tables(place: &Place) -> String {
    place.text("SELECT coalesce(group_concat(name, ' ' ORDER BY name), '') FROM sqlite_schema WHERE type = 'table' AND name IN ('one', 'two', 'three', 'new_one')")
}

fn applied(place: &Place) -> String {
    place.text("SELECT coalesce(group_concat(n || ' ' || name, ', ' ORDER BY n), '') FROM user_migrations")
}

#[tokio::test(start_paused = true)]
async fn each_is_applied_once_however_often_the_database_is_opened() {
    let place = Place::new();
    applies(&place, &[]).await;
    for given in [&[ONE][..], &[ONE], &[ONE, TWO, THREE], &[ONE, TWO, THREE]] {
        applies(&place, given).await;
        assert_eq!(place.number("SELECT count(*) FROM one"), 1);
    }
    assert_eq!(applied(&place), "1 one, 2 two, 3 three");
    assert!(place.number("SELECT min(applied_ms) FROM user_migrations") > 1_000_000_000_000);
    assert_eq!(place.number("SELECT count(*) FROM two JOIN one USING (a) WHERE b IS NULL"), 1);
}

#[tokio::test(start_paused = true)]
async fn how_lines_end_makes_no_difference() {
    let place = Place::new();
    applies(&place, &[ONE]).await;
    applies(&place, &[("one", "CREATE TABLE one (a INTEGER PRIMARY KEY) STRICT;\r\nINSERT INTO one VALUES (1);")]).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_applied_stays_as_it_was() {
    let place = Place::new();
    applies(&place, &[ONE, TWO]).await;
    for (given, why) in [
        (&[("one", "CREATE TABLE one (b)"), TWO][..], "migration `one` was changed after it was applied"),
        (&[TWO, ONE], "migration `one` was applied as number 1, and stands elsewhere now"),
        (&[ONE, THREE, TWO], "migration `two` was applied as number 2, and stands elsewhere now"),
        (&[ONE], "migration `two` is in the database but not in the program"),
        (&[], "migration `one` is in the database but not in the program"),
        (&[ONE, THREE], "migration `two` is in the database but not in the program"),
        (&[ONE, TWO, TWO], "there are two migrations of the name `two`"),
    ] {
        let error = refused(&place, given).await;
        assert!(error.to_string().starts_with(why), "{error}");
        assert_eq!((tables(&place).as_str(), applied(&place).as_str()), ("one two", "1 one, 2 two"));
    }
    applies(&place, &[ONE, TWO]).await;
}

#[tokio::test(start_paused = true)]
async fn one_that_fails_leaves_nothing_behind_and_those_before_it_stay() {
    for (sql, why, cause) in [
        ("CREATE TABLE two (a); INSERT INTO nowhere VALUES (1)", "failed to apply migration `two`", "no such table: nowhere"),
        ("CREATE TABLE two (a); INSERT OR ROLLBACK INTO one VALUES (1)", "failed to apply migration `two`", "UNIQUE constraint failed"),
        ("CREATE TABLE two (a REFERENCES one); INSERT INTO two VALUES (9)", "a row of `two` refers to one that is not there", ""),
        ("CREATE TABLE two (a); COMMIT", "in a migration, `COMMIT` is not allowed", ""),
        ("CREATE TABLE two (a); CREATE TABLE Agents (a)", "in a migration, `CREATE TABLE Agents` is not allowed", ""),
        ("CREATE TABLE two (a); DROP TABLE fibers", "`DROP TABLE fibers` is not allowed: `fibers` is Forever's", ""),
        ("CREATE TABLE two (a); PRAGMA user_version = 1", "`PRAGMA user_version = 1` is not allowed", ""),
    ] {
        let place = Place::new();
        let error = refused(&place, &[ONE, ("two", sql), THREE]).await;
        assert!(error.to_string().contains(why) && error.to_string().contains("`two`"), "{error}");
        let caused = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert!(caused.contains(cause), "{sql}: {caused}");
        assert_eq!((tables(&place).as_str(), applied(&place).as_str()), ("one", "1 one"), "{sql}");
        applies(&place, &[ONE, TWO]).await;
        assert_eq!(tables(&place), "one two");
    }
}

#[tokio::test(start_paused = true)]
async fn in_memory_they_are_the_same() {
    let builder = || Forever::builder().in_memory().migration(ONE.0, ONE.1);
    let forever = builder().migration(TWO.0, TWO.1).open().await.unwrap();
    let two: i64 =
        forever.transaction(|tx| Ok::<_, forever::BoxError>(tx.query_row("SELECT a FROM two", (), |r| r.get(0))?)).await.unwrap();
    assert_eq!(two, 1);
    let orphan = forever.transaction(|tx| tx.execute("INSERT INTO two VALUES (7)", ()).map_err(forever::BoxError::from)).await;
    assert!(orphan.unwrap_err().to_string().contains("FOREIGN KEY"), "foreign keys are enforced again afterwards");
    let error = builder().migration("two", "SELEKT").open().await.unwrap_err();
    assert_eq!(error.to_string(), "failed to apply migration `two`");
}
