//! What is left in the databases that are kept: one program for each version of the schema, which the versions after it run as well.
//!
//! These files are compiled by the code of now and by that of then, so they use nothing that came later.
pub(crate) mod eight;
pub(crate) mod eleven;
pub(crate) mod five;
pub(crate) mod four;
pub(crate) mod nine;
pub(crate) mod one;
pub(crate) mod seven;
pub(crate) mod six;
pub(crate) mod ten;
pub(crate) mod thirteen;
pub(crate) mod three;
pub(crate) mod twelve;
pub(crate) mod two;

use forever::{Builder, Forever};

use crate::desk::Desk;

/// The version of the schema that the code of now writes.
pub(crate) const VERSION: u32 = 13;

/// What is held in which life, in a database of that version.
pub(crate) fn holds(version: u32) -> Vec<(u32, &'static str)> {
    upto(
        version,
        [
            one::HOLDS,
            two::HOLDS,
            three::HOLDS,
            four::HOLDS,
            five::HOLDS,
            six::HOLDS,
            seven::HOLDS,
            eight::HOLDS,
            nine::HOLDS,
            ten::HOLDS,
            eleven::HOLDS,
            twelve::HOLDS,
            thirteen::HOLDS,
        ],
    )
}

/// What version 10 has brought has logs of its own.
const OTHERS: &str = "fiber NOT IN (SELECT seq FROM fibers WHERE name = 'weighs')";

/// What has to be so at the end of which life.
pub(crate) fn settled(version: u32) -> Vec<(u32, String)> {
    let mut all = upto(
        version,
        [
            one::SETTLED,
            two::SETTLED,
            three::SETTLED,
            four::SETTLED,
            five::SETTLED,
            six::SETTLED,
            seven::SETTLED,
            eight::SETTLED,
            nine::SETTLED,
            ten::SETTLED,
            eleven::SETTLED,
            twelve::SETTLED,
            thirteen::SETTLED,
        ],
    );
    if version == 6 {
        all.extend(six::SETTLED_BESIDE);
    }
    if version == 8 {
        all.extend(eight::SETTLED_BESIDE);
    }
    // The table of branch results had another name.
    let table = if version < 6 { "arrived" } else { "branch_results" };
    // Since version 7 the newest effects stand elsewhere.
    let ops = if version < 7 { "FROM ops " } else { "FROM op_ledger AS ops " };
    let of_now = |query: &str| {
        let query = query.replace("FROM arrived", &format!("FROM {table}")).replace("FROM ops ", ops);
        // Since version 10 logs are streams.
        let is_stream = |name| move |rest: &str| format!("SELECT sum(count){rest} FROM stream_log WHERE name LIKE '{name}/%' AND {OTHERS}");
        let logs = [("FROM log_items", "log"), ("FROM op_items", "op")].into_iter().filter(|_| version >= 10);
        logs.fold(query, |query, (table, name)| {
            let rest = query.strip_suffix(table).and_then(|query| query.strip_prefix("SELECT count(*)")).map(str::trim_end);
            rest.map(is_stream(name)).unwrap_or(query)
        })
    };
    all.into_iter().map(|(life, query)| (life, of_now(query))).collect()
}

/// What is left to be done of such a database, each once.
pub(crate) fn left(version: u32) -> Vec<&'static str> {
    upto(
        version,
        [
            one::LEFT,
            two::LEFT,
            three::LEFT,
            four::LEFT,
            five::LEFT,
            six::LEFT,
            seven::LEFT,
            eight::LEFT,
            nine::LEFT,
            ten::LEFT,
            eleven::LEFT,
            twelve::LEFT,
            thirteen::LEFT,
        ],
    )
}

fn upto<T: Copy>(version: u32, all: [&[T]; VERSION as usize]) -> Vec<T> {
    all[..version as usize].concat()
}

/// A runtime that knows all fibers.
pub(crate) fn registered(builder: Builder, desk: &Desk) -> Builder {
    let builder = one::registered(builder.resource(desk.clone()), desk.life());
    let builder = twelve::registered(eleven::registered(ten::registered(nine::registered(eight::registered(builder)))));
    let builder = thirteen::registered(builder);
    let builder = seven::registered(six::registered(builder, desk));
    five::registered(four::registered(three::registered(two::registered(builder, desk)), desk))
}

/// What a life of a writer does when the database is open.
pub(crate) async fn begin(forever: &Forever, desk: &Desk) -> anyhow::Result<()> {
    if desk.life() == 1 {
        one::start(forever).await?;
        two::start(forever, desk).await?;
        three::start(forever).await?;
        four::start(forever).await?;
        five::start(forever).await?;
        six::start(forever).await?;
        seven::start(forever).await?;
        eight::start(forever).await?;
        nine::start(forever).await?;
        ten::start(forever).await?;
        eleven::start(forever).await?;
        twelve::start(forever).await?;
        thirteen::start(forever).await
    } else {
        three::resolve(forever).await
    }
}

/// What it does when everything is held.
pub(crate) async fn then(forever: &Forever, desk: &Desk) -> anyhow::Result<()> {
    one::then(forever, desk.life()).await?;
    two::then(forever, desk.life()).await
}

/// What a life needs besides: in the first one, what is told to end ends at once.
pub(crate) fn settings(builder: Builder, life: u32) -> Builder {
    if life == 1 { builder.cancel_grace(std::time::Duration::ZERO) } else { builder }
}
