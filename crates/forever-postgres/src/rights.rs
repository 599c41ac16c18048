//! Rights of the role on what is in the schema.
//!
//! Without one of them a store would open, and fail at the first statement that needs it: that of
//! a fiber is repeated for ever. Under row level security statements see no rows and say nothing.
use forever_store::{Error, ErrorKind};

use crate::schema::MIGRATIONS;
use crate::sql::{Done, Fail, Tx, args};

/// Rights on each table that a worker needs.
pub(crate) const OF_WORKER: [&str; 4] = ["SELECT", "INSERT", "UPDATE", "DELETE"];

/// Rights on each table that a process needs which only asks. What it may not write, its calls say
/// at once.
pub(crate) const OF_CLIENT: [&str; 1] = ["SELECT"];

/// Names that the scripts give to what they make by the statement `create`.
fn made_by(create: &str) -> Vec<&'static str> {
    let name = |rest: &'static str| rest.split([' ', '(']).next().unwrap_or(rest);
    MIGRATIONS.iter().flat_map(|script| script.lines()).filter_map(|line| line.strip_prefix(create)).map(name).collect()
}

/// Fails if the role lacks one of the rights on a table of the schema, or may not use a function of
/// it, or does not see all rows.
pub(crate) async fn check(tx: &Tx, schema: &str, needed: &[&'static str]) -> Done<()> {
    let tables = [made_by("CREATE TABLE @"), made_by("CREATE UNLOGGED TABLE @")].concat();
    let sql = "SELECT current_user::text AS role, needed, what, name FROM (
                   SELECT needed, 'table' AS what, c.relname::text AS name, has_table_privilege(c.oid, needed) AS has
                   FROM pg_class c, unnest($2) needed WHERE c.relnamespace = s.oid AND c.relname = ANY ($3)
                   UNION ALL SELECT 'all rows', 'table', c.relname::text, NOT row_security_active(c.oid)
                   FROM pg_class c WHERE c.relnamespace = s.oid AND c.relname = ANY ($3)
                   UNION ALL SELECT 'EXECUTE', 'function', p.proname::text, has_function_privilege(p.oid, 'EXECUTE')
                   FROM pg_proc p WHERE p.pronamespace = s.oid AND p.proname = ANY ($4) AND p.prorettype <> 'trigger'::regtype) each_right
               WHERE NOT has ORDER BY what, name, needed LIMIT 1";
    let sql = sql.replace("s.oid", "(SELECT oid FROM pg_namespace WHERE nspname = $1)");
    let lacking = tx.row(&sql, args![schema, needed.to_vec(), tables, made_by("CREATE FUNCTION @")]).await?;
    let Some(row) = lacking else { return Ok(()) };
    let (role, right, what, name) = (row.text("role")?, row.text("needed")?, row.text("what")?, row.text("name")?);
    let lacks = if right == "all rows" {
        format!("row level security of table `{name}` hides rows from the role `{role}`")
    } else {
        format!("the role `{role}` lacks the right to {right} on {what} `{name}`")
    };
    let why = format!("{lacks}, in schema `{schema}`: it needs {} on all its tables, without row level security", needed.join(", "));
    Err(Fail::Refused(Error::new(ErrorKind::Setup, why)))
}
