//! Versions raised, and functions from the old snapshot to the new.
use forever::fiber::Snapshot;

use super::{stopped, versions};

versions! {
    old(io, n: u32) -> u32 {
        let hits = step!(io.did("hits", n).await?);
        let b = step!(io.did("b", hits + 1).await?);
        Ok(hits + b)
    }
    raised[version = 1](io, n: u32) -> u32 {
        let hits = step!(io.did("hits", n).await?);
        let b = step!(io.did("b", hits + 1).await?);
        Ok(hits + b)
    }
    mended[version = 1, migrate = super::mend](io, n: u32) -> u32 {
        let found = step!("find", io.did("found", n).await?);
        let b = step!(io.did("b", found + 1).await?);
        let c = step!(io.did("c", b + 1).await?);
        Ok(found + b + c)
    }
}

/// Local `hits` is called `found` and step `hits` is called `find`.
fn mend(mut old: Snapshot) -> anyhow::Result<Snapshot> {
    anyhow::ensure!(old.at == "hits", "it stands at `{}`", old.at);
    let hits = old.locals.remove("hits").ok_or_else(|| anyhow::anyhow!("`hits` was not kept"))?;
    old.locals.insert("found".to_owned(), hits);
    "find".clone_into(&mut old.at);
    Ok(old)
}

#[tokio::test(start_paused = true)]
async fn a_version_raised_parks() {
    let fiber = stopped(old::work(3), "b").await;
    fiber.parks::<raised::work>("it has version 1 now and had 0 before: old snapshots need a `migrate` function").await;
    fiber.resumes::<old::work>(7, &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_migrate_function_mends_a_renamed_local_and_a_moved_step() {
    let fiber = stopped(old::work(3), "b").await;
    fiber.parks::<raised::work>("it has version 1 now and had 0 before: old snapshots need a `migrate` function").await;
    fiber.resumes_until::<mended::work>("c", &["b"]).await;
    assert_eq!(fiber.snapshot(), r#"{"at":"b","locals":{"found":3,"b":4},"call":null}"#);
    fiber.resumes::<mended::work>(3 + 4 + 5, &["c"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_migrated_snapshot_is_migrated_again_until_the_next_checkpoint() {
    let fiber = stopped(old::work(3), "b").await;
    fiber.resumes_until::<mended::work>("b", &[]).await;
    fiber.resumes_until::<mended::work>("b", &[]).await;
    fiber.resumes::<old::work>(7, &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_migrate_function_is_not_asked_where_the_snapshot_fits() {
    versions! {
        fits[migrate = super::refuse](io, n: u32) -> u32 {
            let hits = step!(io.did("hits", n).await?);
            let b = step!(io.did("b", hits + 2).await?);
            step!("c", io.did("c", ()).await?);
            Ok(hits + b)
        }
    }
    stopped(old::work(3), "b").await.resumes::<fits::work>(8, &["b", "c"]).await;
}

fn refuse(_: Snapshot) -> anyhow::Result<Snapshot> {
    Err(anyhow::anyhow!("the key is lost").context("cannot be opened"))
}

fn panics(_: Snapshot) -> anyhow::Result<Snapshot> {
    panic!("out of ideas")
}

#[allow(clippy::unnecessary_wraps, reason = "the signature of a `migrate` function")]
fn nowhere(mut old: Snapshot) -> anyhow::Result<Snapshot> {
    "somewhere".clone_into(&mut old.at);
    Ok(old)
}

#[allow(clippy::unnecessary_wraps, reason = "the signature of a `migrate` function")]
fn forgetful(mut old: Snapshot) -> anyhow::Result<Snapshot> {
    old.locals.clear();
    Ok(old)
}

#[tokio::test(start_paused = true)]
async fn a_migrate_function_that_fails_panics_or_gives_nonsense_parks() {
    versions! {
        refused[version = 1, migrate = super::refuse](io, n: u32) -> u32 {
            let hits = step!(io.did("hits", n).await?);
            Ok(hits)
        }
        panicked[version = 1, migrate = super::panics](io, n: u32) -> u32 {
            let hits = step!(io.did("hits", n).await?);
            Ok(hits)
        }
        led_astray[version = 1, migrate = super::nowhere](io, n: u32) -> u32 {
            let hits = step!(io.did("hits", n).await?);
            Ok(hits)
        }
        forgotten[version = 1, migrate = super::forgetful](io, n: u32) -> u32 {
            let hits = step!(io.did("hits", n).await?);
            Ok(hits)
        }
    }
    let fiber = stopped(old::work(3), "b").await;
    fiber.parks_naming::<refused::work>("could not be migrated: cannot be opened: the key is lost").await;
    fiber.parks_naming::<panicked::work>("could not be migrated: panicked: out of ideas").await;
    fiber.parks_naming::<led_astray::work>("`somewhere`").await;
    fiber.parks_naming::<forgotten::work>("`hits`").await;
    fiber.resumes::<mended::work>(12, &["b", "c"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_migrate_function_can_give_a_local_another_type() {
    versions! {
        text[version = 1, migrate = super::hits_to_text](io, n: u32) -> String {
            let hits = step!(io.did("hits", n.to_string()).await?);
            let b = step!(io.did("b", hits.len()).await?);
            Ok(format!("{hits}/{b}"))
        }
    }
    stopped(old::work(345), "b").await.resumes::<text::work>("345/3".into(), &["b"]).await;
}

fn hits_to_text(mut old: Snapshot) -> anyhow::Result<Snapshot> {
    let hits: u32 = serde_json::from_str(old.locals["hits"].get())?;
    old.locals.insert("hits".to_owned(), serde_json::value::to_raw_value(&hits.to_string())?);
    Ok(old)
}

versions! {
    a_number(io, n: u32) -> u32 {
        let hits = step!("hits", io.did("hits", n).await?);
        let b = step!("b", io.did("b", hits + 1).await?);
        Ok(hits + b)
    }
    a_text[migrate = super::hits_to_text](io, n: u32) -> u32 {
        let hits = step!("hits", io.did("hits", n.to_string()).await?);
        let b = step!("b", io.did("b", hits.len() as u32).await?);
        Ok(hits.len() as u32 + b)
    }
    a_text_without_migrate(io, n: u32) -> u32 {
        let hits = step!("hits", io.did("hits", n.to_string()).await?);
        let b = step!("b", io.did("b", hits.len() as u32).await?);
        Ok(hits.len() as u32 + b)
    }
    calls_a_number[name = "caller"](io, n: u32) -> u32 {
        Ok(call!(a_number::work(n))?)
    }
    calls_a_text[name = "caller"](io, n: u32) -> u32 {
        Ok(call!(a_text::work(n))?)
    }
}

#[tokio::test(start_paused = true)]
async fn a_migrate_function_is_asked_where_layouts_are_equal_and_a_value_no_longer_reads() {
    assert_eq!(forever::layout::of::<a_number::work>().hash(), forever::layout::of::<a_text::work>().hash());
    let fiber = stopped(a_number::work(12345), "b").await;
    fiber.parks_saying::<a_text_without_migrate::work>("local `hits` saved at step `hits` cannot be read as `String`").await;
    fiber.resumes::<a_text::work>(10, &["b"]).await;
    let fiber = stopped(calls_a_number::work(12345), "b").await;
    fiber.resumes::<calls_a_text::work>(10, &["b"]).await;
}
