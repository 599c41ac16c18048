//! Transactions in the program's own tables: carried out once wherever the process dies, and kept to what is theirs.
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use forever::fiber::{Fiber, FiberErrorKind, FiberState};
use forever::ops::Tx;
use forever::prelude::*;
use forever::rusqlite::OptionalExtension;
use forever::testing::{Fuse, Outcome, Stage, StartFrom};
use forever::{BoxError, Builder, Error, ErrorKind};
use forever_testkit::waiting::eventually;
use futures_util::future::{BoxFuture, join_all};

use crate::support::{Bank, Place, soon};

const ID: &str = "booking-1";

/// A runtime writes twice when it opens.
const OPENING: u64 = 2;

const ENTRIES: &str = "CREATE TABLE entries (n INTEGER PRIMARY KEY AUTOINCREMENT, what TEXT NOT NULL CHECK (what <> 'bad')) STRICT;
    CREATE TABLE notes (of INTEGER NOT NULL REFERENCES entries (n) DEFERRABLE INITIALLY DEFERRED) STRICT;";

fn builder(place: &Place) -> Builder {
    place.builder(&Bank::default()).migration("entries", ENTRIES)
}

fn insert(tx: &Tx<'_>, what: &str) -> anyhow::Result<i64> {
    tx.execute("INSERT INTO entries (what) VALUES (?1)", [what])?;
    Ok(tx.last_insert_rowid())
}

async fn note(ctx: &FiberContext, what: impl Into<String>) -> anyhow::Result<i64> {
    let what = what.into();
    ctx.transaction(what.clone(), move |tx| insert(tx, &what)).await
}

fn entries(place: &Place) -> Vec<String> {
    let sql = place.sql();
    let mut select = sql.prepare("SELECT what FROM entries ORDER BY what").unwrap();
    select.query_map((), |row| row.get(0)).unwrap().map(Result::unwrap).collect()
}

/// A service that fails when it is called for the first time after each restart of the counts.
#[derive(Clone, Debug, Default)]
struct Shaky(Arc<AtomicU32>);

impl Shaky {
    /// Fails every other time.
    fn call(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.0.fetch_add(1, SeqCst) % 2 == 1, "not now");
        Ok(())
    }
}

#[fiber]
async fn plain(ctx: &FiberContext) -> anyhow::Result<i64> {
    let before = note(ctx, "before any step").await?;
    let one = step!(note(ctx, "in a step").await?);
    let between = note(ctx, "between steps").await?;
    let two = step!(note(ctx, "in the second step").await? + note(ctx, "in it again").await?);
    Ok(before + one + between + two)
}

#[fiber]
async fn retried(ctx: &FiberContext, shaky: Res<Shaky>) -> anyhow::Result<i64> {
    let n = step!(retry = Retry::times(9).backoff(Backoff::none()), {
        let n = note(ctx, "before the failure").await?;
        shaky.call()?;
        n + note(ctx, "after it").await?
    });
    Ok(n)
}

#[fiber]
async fn retried_effect(ctx: &FiberContext, shaky: Res<Shaky>) -> anyhow::Result<i64> {
    let n = step!(effect, on_unknown = OnUnknown::Retry, retry = Retry::times(9).backoff(Backoff::none()), {
        let n = note(ctx, "in an effect").await?;
        shaky.call()?;
        n
    });
    Ok(n)
}

#[fiber]
async fn looped(ctx: &FiberContext) -> anyhow::Result<i64> {
    let mut sum = 0;
    for n in 0..3 {
        sum += step!(note(ctx, format!("round {n}")).await?);
    }
    Ok(sum)
}

#[fiber]
async fn side_by_side(ctx: &FiberContext) -> anyhow::Result<i64> {
    let (a, b) = steps!(note(ctx, "left").await? + note(ctx, "left again").await?, note(ctx, "right").await?);
    let more = steps!(for n in 0..3, limit = 2, note(ctx, format!("item {n}")).await?);
    // Who comes first is chance, but not what they have together.
    Ok(a + b + more.iter().sum::<i64>())
}

#[fiber]
async fn keyed(ctx: &FiberContext) -> anyhow::Result<i64> {
    let n = step!({
        let write = |what: &'static str| ctx.transaction("letter", move |tx| insert(tx, what)).key(what);
        let (b, a) = tokio::join!(write("b").into_future(), write("a").into_future());
        let (a, b): (i64, i64) = (a?, b?);
        assert_eq!(write("a").await?, a, "an equal key is the same transaction");
        a + b
    });
    Ok(n)
}

#[fiber]
async fn risky(ctx: &FiberContext, shaky: Res<Shaky>, n: u32) -> anyhow::Result<i64> {
    let n = step!({
        let n = note(ctx, format!("item {n}")).await?;
        shaky.call()?;
        n
    });
    Ok(n)
}

/// The work of an item is over when its error is handled: the next one is another transaction at the same checkpoint.
#[fiber]
async fn handled(ctx: &FiberContext, _shaky: Res<Shaky>) -> anyhow::Result<i64> {
    for n in 0..2 {
        let done = call!(risky(n));
        if done.is_err() {
            note(ctx, format!("item {n} went wrong")).await?;
        }
    }
    Ok(0)
}

/// Lives once as a whole, and once for each write before or after which the process dies.
async fn once_wherever_it_dies<F: Fiber<Output = i64>>(call: impl Fn() -> F, expected: &[&str]) {
    let (writes, result) = {
        let (place, fuse) = (Place::new(), Fuse::never());
        let forever = builder(&place).resource(Shaky::default()).fiber::<F>().fuse(fuse.clone()).open().await.unwrap();
        let result = soon(forever.run(call())).await.unwrap();
        assert_eq!(entries(&place), expected, "in a whole life");
        (fuse.writes() - OPENING, result)
    };
    assert!(writes >= 3, "{writes}");
    for write in 1..=writes {
        for (fuse, death) in [(Fuse::before(OPENING + write), "before"), (Fuse::after(OPENING + write), "after")] {
            let (place, shaky) = (Place::new(), Shaky::default());
            let open = || builder(&place).resource(shaky.clone()).fiber::<F>();
            let forever = open().fuse(fuse.clone()).open().await.unwrap();
            soon(async {
                tokio::select! {
                    ended = async { forever.spawn(call()).id(ID).await.unwrap().wait().await } => panic!("it lived: {ended:?}"),
                    () = fuse.blown() => {}
                }
            })
            .await;
            drop(forever);
            let forever = open().open().await.unwrap();
            let ended = soon(async { forever.spawn(call()).id(ID).await.unwrap().wait().await }).await;
            assert_eq!(ended.unwrap(), result, "{death} write {write}");
            assert_eq!(entries(&place), expected, "{death} write {write}");
            assert_eq!(place.number("SELECT count(*) FROM ops WHERE kind <> 'effect'"), 0, "{death} write {write}");
            forever.close().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn in_steps_and_between_them() {
    once_wherever_it_dies(plain, &["before any step", "between steps", "in a step", "in it again", "in the second step"]).await;
}

#[tokio::test(start_paused = true)]
async fn in_a_step_of_which_an_attempt_fails_afterwards() {
    once_wherever_it_dies(retried, &["after it", "before the failure"]).await;
}

#[tokio::test(start_paused = true)]
async fn in_an_effect_of_which_an_attempt_fails_afterwards() {
    once_wherever_it_dies(retried_effect, &["in an effect"]).await;
}

#[tokio::test(start_paused = true)]
async fn in_each_round_of_a_loop() {
    once_wherever_it_dies(looped, &["round 0", "round 1", "round 2"]).await;
}

#[tokio::test(start_paused = true)]
async fn in_steps_side_by_side() {
    once_wherever_it_dies(side_by_side, &["item 0", "item 1", "item 2", "left", "left again", "right"]).await;
}

#[tokio::test(start_paused = true)]
async fn with_a_key_where_the_order_is_chance() {
    once_wherever_it_dies(keyed, &["a", "b"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_error_that_is_handled_ends_the_work_of_its_item_only() {
    let place = Place::new();
    let forever = builder(&place).resource(Shaky::default()).fiber::<handled>().open().await.unwrap();
    soon(forever.run(handled())).await.unwrap();
    assert_eq!(entries(&place), ["item 0", "item 0 went wrong", "item 1"]);
}

#[fiber]
async fn shaky_first(ctx: &FiberContext, shaky: Res<Shaky>) -> anyhow::Result<i64> {
    let n = step!({
        shaky.call()?;
        note(ctx, "by the callee").await?
    });
    Ok(n)
}

#[fiber]
async fn handles(ctx: &FiberContext, _shaky: Res<Shaky>) -> anyhow::Result<i64> {
    let done = call!(shaky_first());
    if done.is_err() {
        note(ctx, "by the handler").await?;
    }
    Ok(done.unwrap_or(0))
}

#[tokio::test(start_paused = true)]
async fn what_the_handler_of_an_error_did_is_not_taken_for_what_the_callee_does() {
    let (place, shaky, fuse) = (Place::new(), Shaky::default(), Fuse::after(OPENING + 2));
    let open = || builder(&place).resource(shaky.clone()).fiber::<handles>();
    let forever = open().fuse(fuse.clone()).open().await.unwrap();
    forever.spawn(handles()).id(ID).await.unwrap();
    soon(fuse.blown()).await;
    drop(forever);
    assert_eq!(entries(&place), ["by the handler"]);

    // Now there is no error to handle.
    let forever = open().open().await.unwrap();
    assert_eq!(soon(forever.fiber::<handles>(ID).wait()).await.unwrap(), 2);
    assert_eq!(entries(&place), ["by the callee", "by the handler"]);
    forever.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_failed_fiber_that_is_resumed_does_not_do_it_again() {
    let place = Place::new();
    let forever = builder(&place).resource(Shaky::default()).fiber::<risky>().open().await.unwrap();
    let handle = forever.spawn(risky(7)).id(ID).await.unwrap();
    assert_eq!(soon(handle.wait()).await.unwrap_err().kind(), FiberErrorKind::Failed);
    forever.resume(ID).await.unwrap();
    assert_eq!(soon(forever.fiber::<risky>(ID).wait()).await.unwrap(), 1);
    assert_eq!(entries(&place), ["item 7"]);
}

/// Runs the first attempt until its time is over, with its transaction in the writer's hands.
#[fiber]
async fn hasty(ctx: &FiberContext, gate: Res<Gate>) -> anyhow::Result<i64> {
    let n = step!("book", timeout = Duration::from_millis(50), retry = Retry::times(9).backoff(Backoff::none()), gate.book(ctx).await?);
    Ok(n)
}

/// Lets the first transaction wait until its caller is gone.
#[derive(Default)]
struct Gate {
    attempts: AtomicU32,
    runs: Arc<AtomicU32>,
}

struct Opens(Option<mpsc::Sender<()>>);

impl Drop for Opens {
    fn drop(&mut self) {
        if let Some(open) = &self.0 {
            let _ = open.send(());
        }
    }
}

impl Gate {
    async fn book(&self, ctx: &FiberContext) -> anyhow::Result<i64> {
        let first = self.attempts.fetch_add(1, SeqCst) == 0;
        let (open, opened) = mpsc::channel();
        let _opens = Opens(first.then_some(open));
        let runs = Arc::clone(&self.runs);
        ctx.transaction("book", move |tx| {
            runs.fetch_add(1, SeqCst);
            let _ = opened.recv();
            insert(tx, "in time or not")
        })
        .await
    }
}

#[tokio::test]
async fn an_attempt_that_was_dropped_may_have_committed_and_the_next_one_finds_it() {
    let place = Place::new();
    let forever = builder(&place).resource(Gate::default()).fiber::<hasty>().open().await.unwrap();
    assert_eq!(soon(forever.run(hasty())).await.unwrap(), 1);
    assert_eq!(entries(&place), ["in time or not"]);
    assert_eq!(place.number("SELECT count(*) FROM ops"), 0);
}

#[fiber(name = "typed")]
async fn gives_a_number(ctx: &FiberContext) -> anyhow::Result<i64> {
    Ok(step!("book", note(ctx, "once").await?))
}

#[fiber(name = "typed")]
async fn gives_a_number_by_key(ctx: &FiberContext) -> anyhow::Result<i64> {
    Ok(step!("book", ctx.transaction("once", |tx| insert(tx, "once")).key("booking").await?))
}

#[fiber(name = "typed")]
async fn gives_a_text_by_key(ctx: &FiberContext) -> anyhow::Result<String> {
    Ok(step!("book", ctx.transaction("once", |tx| insert(tx, "again").map(|n| n.to_string())).key("booking").await?))
}

#[fiber(name = "typed")]
async fn notes_before_it(ctx: &FiberContext) -> anyhow::Result<i64> {
    Ok(step!("book", {
        ctx.transaction("before", |tx| insert(tx, "before")).await?;
        note(ctx, "again").await?
    }))
}

#[fiber(name = "typed")]
async fn notes_before_it_by_key(ctx: &FiberContext) -> anyhow::Result<i64> {
    Ok(step!("book", {
        ctx.transaction("before", |tx| insert(tx, "before")).key("note").await?;
        ctx.transaction("once", |tx| insert(tx, "again")).key("booking").await?
    }))
}

#[fiber(name = "typed")]
async fn has_the_key_under_another_name(ctx: &FiberContext) -> anyhow::Result<i64> {
    Ok(step!("book", ctx.transaction("another", |tx| insert(tx, "again")).key("booking").await?))
}

#[fiber(name = "typed")]
async fn is_renamed_without_was(ctx: &FiberContext) -> anyhow::Result<i64> {
    Ok(step!("reserve", note(ctx, "again").await?))
}

#[fiber(name = "typed")]
async fn has_branches(ctx: &FiberContext) -> anyhow::Result<i64> {
    let (booked, _) = steps!(step!("book", note(ctx, "again").await?), note(ctx, "other").await?);
    Ok(booked)
}

#[fiber(name = "typed")]
async fn gives_a_text(ctx: &FiberContext) -> anyhow::Result<String> {
    Ok(step!("book", ctx.transaction("once", |tx| insert(tx, "again").map(|n| n.to_string())).await?))
}

#[fiber(name = "typed")]
async fn is_called_otherwise(ctx: &FiberContext) -> anyhow::Result<i64> {
    Ok(step!("reserve", was = "book", note(ctx, "once").await?))
}

#[tokio::test(start_paused = true)]
async fn a_result_of_another_type_parks_the_fiber() {
    let place = killed_behind_its_commit(gives_a_number_by_key()).await;
    parks::<gives_a_text_by_key>(&place, "the stored result of a transaction cannot be read as `String`").await;
    parks::<gives_a_text>(&place, "whether it is the one that the code comes to now cannot be told").await;
}

#[tokio::test(start_paused = true)]
async fn a_transaction_put_before_a_committed_one_does_not_take_its_result() {
    let place = killed_behind_its_commit(gives_a_number()).await;
    parks::<notes_before_it>(&place, "in step `book` is committed, and the code has changed").await;
    parks::<has_branches>(&place, "the code continues without its step `book`").await;

    let place = killed_behind_its_commit(gives_a_number_by_key()).await;
    let forever = builder(&place).fiber::<notes_before_it_by_key>().open().await.unwrap();
    assert_eq!(soon(forever.fiber::<notes_before_it_by_key>(ID).wait()).await.unwrap(), 1);
    assert_eq!(entries(&place), ["before", "once"]);
}

/// A fiber that was killed when its transaction was committed, and the checkpoint of its step was not stored.
async fn killed_behind_its_commit<F: forever::fiber::Fiber<Output: std::fmt::Debug>>(call: F) -> Place {
    let place = Place::new();
    let fuse = Fuse::after(OPENING + 2);
    let forever = builder(&place).fiber::<F>().fuse(fuse.clone()).open().await.unwrap();
    forever.spawn(call).id(ID).await.unwrap();
    soon(fuse.blown()).await;
    drop(forever);
    place
}

/// Under the code `F` the fiber is parked at each of five opens, and nothing is written.
async fn parks<F: forever::fiber::Fiber<Output: std::fmt::Debug>>(place: &Place, why: &str) {
    for _ in 0..5 {
        let forever = builder(place).fiber::<F>().open().await.unwrap();
        let error = soon(forever.fiber::<F>(ID).wait()).await.unwrap_err();
        assert!(error.kind() == FiberErrorKind::Parked && error.reason().contains(why), "{error}");
        assert_eq!(entries(place), ["once"]);
        forever.close().await.unwrap();
    }
}

/// Two versions of a function that a step calls, with transactions at one place of the source: that of the macro's call.
macro_rules! version {
    ($fiber:ident, $called:ident: $($what:literal named $name:literal),*) => {
        async fn $called(ctx: &FiberContext) -> anyhow::Result<i64> {
            let mut sum = 0;
            $(sum += ctx.transaction($name, |tx| insert(tx, $what)).await?;)*
            Ok(sum)
        }

        #[fiber(name = "typed")]
        async fn $fiber(ctx: &FiberContext) -> anyhow::Result<i64> {
            Ok(step!("book", $called(ctx).await?))
        }
    };
}

version!(orders, order: "once" named "order");
version!(audits_instead, audit: "again" named "audit");
version!(audits_before, audit_and_order: "before" named "audit", "again" named "order");
version!(orders_otherwise, order_otherwise: "again" named "order");
version!(orders_twice, order_twice: "twice" named "order", "twice" named "order");

#[tokio::test(start_paused = true)]
async fn a_transaction_of_a_called_function_is_told_by_its_name() {
    let place = killed_behind_its_commit(orders()).await;
    parks::<audits_instead>(&place, "in step `book` is committed, and the code has changed").await;
    parks::<audits_before>(&place, "in step `book` is committed, and the code has changed").await;
    // Its name is there, whatever its closure does now.
    let forever = builder(&place).fiber::<orders_otherwise>().open().await.unwrap();
    assert_eq!(soon(forever.fiber::<orders_otherwise>(ID).wait()).await.unwrap(), 1);
    assert_eq!(entries(&place), ["once"]);
    forever.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_key_of_another_name_is_not_taken_for_the_committed_one() {
    let place = killed_behind_its_commit(gives_a_number_by_key()).await;
    parks::<has_the_key_under_another_name>(&place, "in step `book` is committed, and the code has changed").await;
}

#[tokio::test(start_paused = true)]
async fn two_transactions_of_a_name_in_a_step_need_keys() {
    let place = Place::new();
    let forever = builder(&place).fiber::<orders_twice>().open().await.unwrap();
    let error = soon(forever.run(orders_twice())).await.unwrap_err();
    assert!(error.reason().contains("two transactions of one step are named `order`: give each a key"), "{error}");
    assert_eq!(entries(&place), ["twice"]);
}

/// A transaction that has not been done may be tried again: the first was dropped, and the second has failed.
#[fiber]
async fn tries_again(ctx: &FiberContext) -> anyhow::Result<i64> {
    let n = step!({
        drop(ctx.transaction("book", |tx| insert(tx, "dropped")).into_future());
        match ctx.transaction("book", |tx| insert(tx, "bad")).await {
            // The second one, when it was committed before the process died.
            Ok(n) => n,
            Err(_) => ctx.transaction("book", |tx| insert(tx, "good")).await?,
        }
    });
    Ok(n)
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_failed_is_tried_again_under_its_name() {
    once_wherever_it_dies(tries_again, &["good"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_step_renamed_behind_a_commit_parks_and_with_was_finds_it() {
    let place = killed_behind_its_commit(gives_a_number()).await;
    parks::<is_renamed_without_was>(&place, "comes to step `reserve` before step `book` of `typed`, which began it").await;
    let forever = builder(&place).fiber::<is_called_otherwise>().open().await.unwrap();
    assert_eq!(soon(forever.fiber::<is_called_otherwise>(ID).wait()).await.unwrap(), 1);
    assert_eq!(entries(&place), ["once"]);
    forever.close().await.unwrap();
}

#[fiber]
async fn panics(ctx: &FiberContext) -> anyhow::Result<i64> {
    Ok(step!(ctx.transaction("note", |tx| insert(tx, "before the panic").map(|n| if n > 0 { panic!("at the disco") } else { n })).await?))
}

#[fiber]
async fn errs(ctx: &FiberContext, n: u32) -> anyhow::Result<i64> {
    let failed = ctx.transaction("note", move |tx| insert(tx, "before the error").and_then(|_| anyhow::bail!("error {n}"))).await;
    let why: String = step!(failed.map(|n: i64| n.to_string()).unwrap_or_else(|error| error.to_string()));
    anyhow::ensure!(why == "error 7", "it was {why}");
    Ok(step!(note(ctx, "after the error").await?))
}

#[tokio::test(start_paused = true)]
async fn an_error_and_a_panic_of_the_closure_leave_nothing_behind() {
    let place = Place::new();
    let forever = builder(&place).fiber::<panics>().fiber::<errs>().open().await.unwrap();
    let error = soon(forever.run(panics())).await.unwrap_err();
    assert!(error.kind() == FiberErrorKind::Failed && error.to_string().contains("at the disco"), "{error}");
    soon(forever.run(errs(7))).await.unwrap();
    assert_eq!(entries(&place), ["after the error"]);
    assert_eq!(place.number("SELECT count(*) FROM ops"), 0);
}

#[tokio::test]
async fn those_that_go_wrong_hurt_nobody_who_shares_their_commit() {
    let place = Place::new();
    let forever = builder(&place).open().await.unwrap();
    let (open, opened) = mpsc::channel::<()>();
    let runs = Arc::new(AtomicU32::new(0));
    let good = |what: &'static str| -> BoxFuture<'_, Result<i64, String>> {
        let runs = Arc::clone(&runs);
        let work = move |tx: &Tx<'_>| {
            runs.fetch_add(1, SeqCst);
            insert(tx, what)
        };
        let done = forever.transaction(work);
        Box::pin(async { done.await.map_err(|error| error.to_string()) })
    };
    // Holds the writer until all the others wait for the next commit.
    let holds = |opened: mpsc::Receiver<()>| -> BoxFuture<'_, Result<i64, String>> {
        let mut opened = Some(opened);
        let done = forever.transaction(move |_| opened.take().map_or(Ok(0), |opened| opened.recv().map(|()| 0).map_err(BoxError::from)));
        Box::pin(async { done.await.map_err(|error| error.to_string()) })
    };
    let bad = |sql: &'static str, swallow: bool| -> BoxFuture<'_, Result<i64, String>> {
        let done = forever.transaction(move |tx| {
            insert(tx, "before it went wrong")?;
            let done = tx.execute_batch(sql).map_err(anyhow::Error::from);
            if swallow { Ok(0) } else { done.map(|()| 0) }
        });
        Box::pin(async { done.await.map_err(|error: anyhow::Error| error.to_string()) })
    };
    let first = holds(opened);
    let all = join_all([
        first,
        good("one"),
        bad("INSERT INTO entries (what) VALUES ('bad')", false),
        good("two"),
        bad("SELECT no_such_function()", false),
        good("three"),
        Box::pin(async {
            open.send(()).unwrap();
            Ok(0)
        }),
    ]);
    let came = soon(all).await;
    assert_eq!(came.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false, true, false, true, true], "{came:?}");
    assert_eq!(entries(&place), ["one", "three", "two"]);
    assert_eq!(runs.load(SeqCst), 3, "nobody had to run again for another's error");

    // A constraint that is looked at in the end costs the others their commit, and only that: each is run again by itself.
    let (open, opened) = mpsc::channel::<()>();
    let opens = Box::pin(async { open.send(()).map(|()| 0).map_err(|error| error.to_string()) });
    let all = [holds(opened), good("four"), bad("INSERT INTO notes VALUES (77)", false), good("five"), opens];
    let came = soon(join_all(all)).await;
    assert_eq!(came.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false, true, true], "{came:?}");
    assert_eq!(entries(&place), ["five", "four", "one", "three", "two"]);
    let why = "a transaction was taken back: it was rolled back by its own SQL, or left a constraint violated";
    assert_eq!(came[2].as_ref().unwrap_err(), why);

    // And so does one that rolls everything back by itself, whether it says so or not.
    let (open, opened) = mpsc::channel::<()>();
    let opens = Box::pin(async { open.send(()).map(|()| 0).map_err(|error| error.to_string()) });
    let rolls_back = "INSERT OR ROLLBACK INTO entries (what) VALUES ('bad')";
    let all = [holds(opened), good("six"), bad(rolls_back, true), bad(rolls_back, false), good("seven"), opens];
    let came = soon(join_all(all)).await;
    assert_eq!(came.iter().map(Result::is_ok).collect::<Vec<_>>(), [true, true, false, false, true, true], "{came:?}");
    assert_eq!(entries(&place), ["five", "four", "one", "seven", "six", "three", "two"]);
    assert_eq!(came[2].as_ref().unwrap_err(), why);
    assert!(came[3].as_ref().unwrap_err().contains("CHECK constraint failed"), "{came:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_forbidden_is_named_and_takes_the_transaction_back() {
    let place = Place::new();
    let forever = builder(&place).open().await.unwrap();
    let version = place.number("PRAGMA user_version");
    // So that there is a number of messages that could be changed.
    place.sql().execute("INSERT INTO sqlite_sequence VALUES ('messages', 1)", ()).unwrap();
    for (sql, why) in [
        ("COMMIT", "`COMMIT` is not allowed"),
        ("ROLLBACK", "`ROLLBACK` is not allowed"),
        ("SAVEPOINT mine", "`SAVEPOINT mine` is not allowed"),
        ("RELEASE forever_tx", "`RELEASE forever_tx` is not allowed"),
        ("INSERT INTO fibers (id) VALUES ('x')", "`INSERT INTO fibers` is not allowed: `fibers` is Forever's"),
        ("UPDATE Snapshots SET data = ''", "`UPDATE snapshots` is not allowed"),
        ("DELETE FROM ops", "`DELETE FROM ops` is not allowed"),
        ("DROP TABLE ops", "`DROP TABLE ops` is not allowed"),
        ("DROP VIEW snapshot_documents", "`DROP VIEW snapshot_documents` is not allowed"),
        ("DROP INDEX fibers_open", "`DROP INDEX fibers_open` is not allowed"),
        ("ALTER TABLE agents ADD COLUMN mine", "`ALTER TABLE agents` is not allowed"),
        ("CREATE INDEX mine ON fibers (name)", "`CREATE INDEX ON fibers` is not allowed"),
        ("CREATE TRIGGER mine AFTER INSERT ON fibers BEGIN SELECT 1; END", "`CREATE TRIGGER ON fibers` is not allowed"),
        ("CREATE TEMP TABLE Fibers (a)", "`CREATE TABLE Fibers` is not allowed"),
        ("CREATE TEMP TABLE a (a); ALTER TABLE temp.a RENAME TO fibers", "`ALTER TABLE temp.a` is not allowed"),
        ("CREATE TEMP VIEW fibers AS SELECT 1", "`CREATE VIEW fibers` is not allowed"),
        ("PRAGMA user_version = 9", "`PRAGMA user_version = 9` is not allowed"),
        ("PRAGMA wal_checkpoint", "`PRAGMA wal_checkpoint` is not allowed"),
        ("PRAGMA defer_foreign_keys = 1", "`PRAGMA defer_foreign_keys = 1` is not allowed"),
        ("ATTACH ':memory:' AS other", "`ATTACH :memory:` is not allowed"),
        ("DELETE FROM sqlite_sequence", "`DELETE FROM sqlite_sequence` is not allowed: it changed what belongs to Forever's tables"),
        ("UPDATE Sqlite_Sequence SET seq = 0", "`UPDATE sqlite_sequence` is not allowed"),
        ("INSERT INTO sqlite_sequence VALUES ('messages', 7)", "`INSERT INTO sqlite_sequence` is not allowed"),
        (
            "ANALYZE entries; INSERT INTO sqlite_stat1 VALUES ('fibers', 'fibers_open', '1000000 1')",
            "`INSERT INTO sqlite_stat1` is not allowed",
        ),
        (
            "CREATE TRIGGER mine AFTER INSERT ON entries BEGIN DELETE FROM fibers; END; INSERT INTO entries (what) VALUES ('x')",
            "`DELETE FROM fibers` by `mine` is not allowed",
        ),
    ] {
        for swallow in [false, true] {
            let done = forever.transaction(move |tx| {
                tx.execute("INSERT INTO entries (what) VALUES ('before')", ())?;
                let done = tx.execute_batch(sql);
                if swallow { Ok(()) } else { done.map_err(BoxError::from) }
            });
            let error = soon(done).await.unwrap_err();
            assert!(error.to_string().contains(why), "{sql}: {error}");
            assert_eq!(error.downcast_ref::<Error>().unwrap().kind(), ErrorKind::Setup);
        }
    }
    assert_eq!(place.number("SELECT seq FROM sqlite_sequence WHERE name = 'messages'"), 1);
    // The store itself has prepared such a statement, and keeps it.
    let cached = forever.transaction(|tx| tx.prepare_cached("COMMIT")?.execute(()).map_err(BoxError::from));
    assert!(soon(cached).await.unwrap_err().to_string().contains("`COMMIT` is not allowed"));
    assert_eq!(entries(&place), [""; 0]);
    assert_eq!(place.number("PRAGMA user_version"), version);
    soon(forever.spawn_closure("alive", async |_| Ok::<_, Error>(1))).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn numbers_of_the_programs_own_tables_may_be_set() {
    let place = Place::new();
    let forever = builder(&place).open().await.unwrap();
    let n = soon(forever.transaction(|tx| {
        insert(tx, "first")?;
        tx.execute("UPDATE sqlite_sequence SET seq = 100 WHERE name = 'entries'", ())?;
        insert(tx, "second")
    }))
    .await
    .unwrap();
    assert_eq!(n, 101);
    assert_eq!(entries(&place), ["first", "second"], "whatever was run twice is there once");
}

#[tokio::test(start_paused = true)]
async fn a_text_of_the_stores_own_is_looked_at_when_the_program_has_it() {
    let place = Place::new();
    let forever = builder(&place).open().await.unwrap();
    soon(forever.spawn_closure("enters", async |_| Ok::<_, Error>(1))).await.unwrap();
    // What the store prepares and keeps: were it taken from there, nothing would be asked.
    let done = forever.transaction(|tx| tx.prepare_cached("ROLLBACK /* forever */")?.execute(()).map_err(BoxError::from));
    assert!(soon(done).await.unwrap_err().to_string().contains("`ROLLBACK` is not allowed"));
    let done = forever.transaction(|tx| tx.prepare_cached("RELEASE forever_tx /* forever */")?.execute(()).map_err(BoxError::from));
    assert!(soon(done).await.unwrap_err().to_string().contains("`RELEASE forever_tx` is not allowed"));
}

#[tokio::test(start_paused = true)]
async fn everything_may_be_read_and_what_is_the_programs_own_be_made_and_unmade() {
    let place = Place::new();
    let forever = builder(&place).open().await.unwrap();
    let version = place.number("PRAGMA user_version");
    let fibers: i64 = soon(forever.transaction(move |tx| {
        tx.execute_batch(
            "CREATE TABLE own (a TEXT, b INTEGER PRIMARY KEY AUTOINCREMENT); CREATE INDEX own_a ON own (a); CREATE VIEW seen AS SELECT a FROM own;
             CREATE TRIGGER twice AFTER INSERT ON own WHEN new.a = 'x' BEGIN INSERT INTO own (a) VALUES ('y'); END;
             INSERT INTO own (a) VALUES ('x'); ALTER TABLE own RENAME TO owned; ALTER TABLE owned ADD COLUMN c; ALTER TABLE owned DROP COLUMN c;
             CREATE TEMP TABLE copied AS SELECT * FROM seen; DROP TABLE copied; ANALYZE owned; REINDEX own_a;
             CREATE VIRTUAL TABLE words USING fts5(a); INSERT INTO words SELECT a FROM seen; DELETE FROM words WHERE words MATCH 'x';",
        )?;
        assert_eq!(tx.query_row("SELECT count(*) FROM words WHERE words MATCH 'y'", (), |r| r.get::<_, i64>(0))?, 1);
        assert_eq!(tx.pragma_query_value(None, "user_version", |r| r.get::<_, i64>(0))?, version);
        assert_eq!(tx.query_row("SELECT count(*) FROM pragma_table_info('owned')", (), |r| r.get::<_, i64>(0))?, 2);
        let recursive = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 9) SELECT max(n) FROM n";
        assert_eq!(tx.query_row(recursive, (), |r| r.get::<_, i64>(0))?, 9);
        tx.execute_batch("DROP VIEW seen; DROP TRIGGER twice; DROP TABLE words; DROP TABLE owned")?;
        tx.query_row("SELECT count(*) FROM fibers", (), |r| r.get(0)).map_err(BoxError::from)
    }))
    .await
    .unwrap();
    assert_eq!(fibers, 0);
    soon(forever.spawn_closure("alive", async |_| Ok::<_, Error>(1))).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn in_a_closure_fiber_each_call_is_a_new_one_unless_it_has_a_key() {
    let place = Place::new();
    let forever = builder(&place).open().await.unwrap();
    let open = soon(forever.spawn_closure("notes", async |ctx: FiberContext| {
        for _ in 0..2 {
            note(&ctx, "each time").await?;
        }
        let first = ctx.transaction("order", |tx| insert(tx, "with a key")).key(("order", 1)).await?;
        let again = ctx.transaction("order", |tx| insert(tx, "with a key")).key(("order", 1)).await?;
        let other = ctx.transaction("order", |tx| insert(tx, "with a key")).key(("order", 2)).await?;
        assert!(first == again && again != other, "{first} {again} {other}");
        let text = ctx.transaction("order", |tx| insert(tx, "with a key").map(|n| n.to_string())).key(("order", 1)).await;
        let error = text.unwrap_err();
        assert!(error.to_string().contains("the stored result of a transaction cannot be read as"), "{error}");
        ctx.transaction("count", |tx| Ok::<i64, anyhow::Error>(tx.query_row("SELECT count(*) FROM ops", (), |r| r.get(0))?)).await
    }))
    .await
    .unwrap();
    assert_eq!(open, 2, "one record for each key");
    assert_eq!(entries(&place), ["each time", "each time", "with a key", "with a key"]);
    assert_eq!(place.number("SELECT count(*) FROM ops"), 0);
}

#[tokio::test(start_paused = true)]
async fn outside_fibers_the_tables_are_there_too_until_the_runtime_closes() {
    let forever = Forever::builder().in_memory().migration("entries", ENTRIES).open().await.unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    for what in ["a", "b"] {
        let seen = Arc::clone(&seen);
        let n = soon(forever.transaction(move |tx| {
            seen.lock().unwrap().push(what);
            insert(tx, what)
        }));
        n.await.unwrap();
    }
    let find = |n: i64| {
        forever.transaction(move |tx| {
            tx.query_row("SELECT what FROM entries WHERE n = ?1", [n], |r| r.get::<_, String>(0)).optional().map_err(BoxError::from)
        })
    };
    assert_eq!((find(2).await.unwrap().as_deref(), find(3).await.unwrap()), (Some("b"), None));
    assert_eq!(*seen.lock().unwrap(), ["a", "b"]);
    forever.close().await.unwrap();
    let error = soon(find(1)).await.unwrap_err();
    assert_eq!(error.downcast_ref::<Error>().unwrap().kind(), ErrorKind::Closed);
}

#[tokio::test(start_paused = true)]
async fn a_panic_outside_a_fiber_is_the_callers() {
    let forever = Forever::builder().in_memory().migration("entries", ENTRIES).open().await.unwrap();
    let other = forever.clone();
    let panicked = tokio::spawn(async move { other.transaction(|tx| insert(tx, "x").map(|_| panic!("at the disco"))).await });
    assert!(soon(panicked).await.unwrap_err().is_panic());
    assert_eq!(soon(forever.transaction(|tx| insert(tx, "first"))).await.unwrap(), 1);
}

#[tokio::test(start_paused = true)]
async fn without_a_database_there_are_none() {
    let played = Stage::new().run(StartFrom::Start(looped()), None).await;
    let Outcome::Failed(why) = played.outcome else { panic!("{:?}", played.outcome) };
    assert!(why.starts_with("a transaction needs a database"), "{why}");
}

#[fiber]
async fn waits(ctx: &FiberContext) -> anyhow::Result<i64> {
    let n = note(ctx, "before the message").await?;
    let more: i64 = recv!("more");
    Ok(n + more)
}

#[tokio::test(start_paused = true)]
async fn a_fiber_that_leaves_memory_before_its_checkpoint_comes_back_to_what_it_has_done() {
    let place = Place::new();
    let forever = builder(&place).fiber::<waits>().open().await.unwrap();
    let handle = forever.spawn(waits()).id(ID).await.unwrap();
    eventually("its wait", async || handle.status().await.unwrap().state == FiberState::Waiting).await;
    forever.send(ID, "more", &41_i64).await.unwrap();
    assert_eq!(soon(handle.wait()).await.unwrap(), 42);
    assert_eq!(entries(&place), ["before the message"]);
}
