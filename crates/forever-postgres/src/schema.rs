//! The tables, and migrations of older ones. Every table and column is explained in
//! docs/guide/src/reference/postgres.md.
use std::sync::Arc;

use forever_store::{Error, ErrorKind, Result};

use crate::sql::{Done, Fail, Tx, args};

/// Scripts, one for each version. The version of a schema is the number of scripts that have run.
/// Released scripts never change.
pub(crate) const MIGRATIONS: &[&str] = &[include_str!("schema_1.sql")];

/// The version that this code reads and writes.
pub(crate) fn version() -> i64 {
    number_of(MIGRATIONS)
}

fn number_of(migrations: &[&str]) -> i64 {
    i64::try_from(migrations.len()).unwrap_or(i64::MAX)
}

/// Returns the name of a schema, quoted.
pub(crate) fn quoted(name: &str) -> Result<Arc<str>> {
    // Postgres truncates longer names, so that two could become one. `@` marks the schema in our
    // SQL.
    if name.is_empty() || name.len() > 63 || name.contains(['\0', '@']) {
        let why = format!("`{name}` is not a name for a schema: it has 1 to 63 bytes, without `@`");
        return Err(Error::new(ErrorKind::Setup, why));
    }
    Ok(format!("\"{}\"", name.replace('"', "\"\"")).into())
}

/// What there is of a schema.
struct There {
    schema: bool,
    /// The version of its tables; `None` if it has none.
    version: Option<i64>,
}

/// Looks at a schema. Tables that are not of this library, of a version before the first, or of one
/// after `newest`, are an error.
async fn look(tx: &Tx, name: &str, newest: i64) -> Done<There> {
    let there = tx
        .one(
            "SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1) AS schema,
                    EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                            WHERE n.nspname = $1 AND c.relname = 'forever_version') AS version,
                    EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                            WHERE n.nspname = $1 AND c.relname = 'forever_schema') AS development,
                    EXISTS (SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                            WHERE n.nspname = $1 AND c.relname IN ('fibers', 'snapshots')) AS tables",
            args![name],
        )
        .await?;
    let schema = there.flag("schema")?;
    if !there.flag("version")? {
        // Their versions were numbered from 1, as the released ones are, and stored elsewhere.
        if there.flag("development")? {
            let why = "was made by a development version of Forever before 0.1.0, whose tables this version of the library does not read";
            return Err(wrong(format!("schema `{name}` {why}")));
        }
        if there.flag("tables")? {
            return Err(wrong(format!("schema `{name}` has tables of the same names that are not of this library")));
        }
        return Ok(There { schema, version: None });
    }
    let stored = tx.one("SELECT coalesce(max(version), 0) AS version FROM @forever_version", args![]).await?.int("version")?;
    if stored > newest {
        let why = format!("schema `{name}` has version {stored}, and this version of the library knows {newest} at most");
        return Err(wrong(why));
    }
    Ok(There { schema, version: Some(stored) })
}

fn wrong(why: String) -> Fail {
    Fail::Refused(Error::new(ErrorKind::Format, why))
}

/// Runs the `migrations` that a schema still lacks, in the transaction.
pub(crate) async fn migrate(tx: &Tx, name: &str, migrations: &[&str]) -> Done<()> {
    // When several workers open a new database at the same time, one of them creates the tables.
    let key = format!("forever {name}");
    tx.rows("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))::text AS locked", args![&key]).await?;
    let there = look(tx, name, number_of(migrations)).await?;
    if there.version.is_none() {
        if !there.schema {
            tx.batch(&format!("CREATE SCHEMA {}", quoted(name)?)).await?;
        }
        tx.batch("CREATE TABLE @forever_version (version BIGINT PRIMARY KEY, applied TIMESTAMPTZ NOT NULL DEFAULT now())").await?;
    }
    let stored = there.version.unwrap_or(0);
    for (script, version) in migrations.iter().zip(1..).skip(usize::try_from(stored).unwrap_or(0)) {
        tx.batch(script).await?;
        tx.run("INSERT INTO @forever_version (version) VALUES ($1)", args![i64::from(version)]).await?;
    }
    Ok(())
}

/// Fails unless the tables are those of this version.
pub(crate) async fn check(tx: &Tx, name: &str) -> Done<()> {
    match look(tx, name, version()).await?.version {
        Some(stored) if stored == version() => Ok(()),
        Some(stored) => Err(wrong(format!(
            "schema `{name}` has version {stored}, and this process needs version {}: it makes no tables itself, a worker of this version does when it opens",
            version()
        ))),
        None => Err(wrong(format!("there are no tables in schema `{name}`: this process makes none, a worker does when it opens"))),
    }
}

#[cfg(test)]
mod tests {
    use forever_testkit::postgres as cluster;

    use super::*;
    use crate::PostgresStore;
    use crate::call::{Kind, Work};

    /// A schema of before the first script.
    const SCHEMA_0: &str = "
        CREATE TABLE @forever_version (version BIGINT PRIMARY KEY, applied TIMESTAMPTZ NOT NULL DEFAULT now());
        CREATE TABLE @fibers (seq BIGINT PRIMARY KEY, name TEXT NOT NULL);
        INSERT INTO @fibers VALUES (1, 'a'), (2, 'bc')";

    const TO_1: &str = "ALTER TABLE @fibers ADD COLUMN length BIGINT; UPDATE @fibers SET length = length(name)";

    const TO_2: &str = "CREATE INDEX fibers_name ON @fibers (name)";

    #[tokio::test]
    async fn migration_runs_the_missing_scripts_and_keeps_all_rows() {
        let Some(url) = cluster::url() else { return };
        let schema = cluster::schema();
        let store = PostgresStore::builder(url).schema(&schema).connect().await.unwrap();
        let run: Work<String, ()> = |tx, sql| Box::pin(async move { tx.batch(sql).await });
        let quoted = quoted(&schema).unwrap();
        let reset = format!("DROP SCHEMA {quoted} CASCADE; CREATE SCHEMA {quoted}; {SCHEMA_0}");
        store.shared.carry_out("reset", Kind::Write, &reset, run).await.unwrap();
        let contents: Work<(), String> = |tx, ()| {
            let sql = "SELECT (SELECT string_agg(to_jsonb(f)::text, ' ' ORDER BY seq) FROM @fibers f)
                              || (SELECT coalesce(json_agg(version ORDER BY version), '[]')::text FROM @forever_version) AS contents";
            Box::pin(async move { tx.one(sql, args![]).await?.text("contents") })
        };
        let contents = async || store.shared.carry_out("look", Kind::Read, &(), contents).await.unwrap();
        let migrate: Work<(String, Vec<&'static str>), ()> =
            |tx, (name, scripts)| Box::pin(async move { migrate(tx, name, scripts).await });
        let migrate = async |scripts: &[&'static str]| {
            store.shared.carry_out("migrate", Kind::Write, &(schema.clone(), scripts.to_vec()), migrate).await
        };

        let before = contents().await;
        migrate(&[TO_1, "nonsense"]).await.unwrap_err();
        assert_eq!(contents().await, before, "all scripts or none");
        let rows = r#"{"seq": 1, "name": "a", "length": 1} {"seq": 2, "name": "bc", "length": 2}"#;
        // A script that has run does not run again.
        for _ in 0..2 {
            migrate(&[TO_1]).await.unwrap();
            assert_eq!(contents().await, format!("{rows}[1]"));
        }
        migrate(&[TO_1, TO_2]).await.unwrap();
        assert_eq!(contents().await, format!("{rows}[1, 2]"));
        assert!(migrate(&[TO_1]).await.unwrap_err().to_string().contains("has version 2"));
    }
}
