//! All fibers are compared with the code before one of them runs.
use forever::layout::{Compatibility, OnIncompatible, Verdict};
use forever::{ErrorKind, Forever};

use super::{World, stopped, versions};

versions! {
    old(io, n: u32) -> u32 {
        let a = step!(io.did("a", n).await?);
        let b = step!(io.did("b", a).await?);
        Ok(b)
    }
    longer(io, n: u32) -> u32 {
        let a = step!(io.did("a", n).await?);
        let b = step!(io.did("b", a).await?);
        step!(io.did("c", ()).await?);
        Ok(b)
    }
    without_a(io, n: u32) -> u32 {
        let b = step!(io.did("b", n).await?);
        Ok(b)
    }
    raised[version = 1, migrate = super::as_it_is](io, n: u32) -> u32 {
        let a = step!(io.did("a", n).await?);
        let b = step!(io.did("b", a).await?);
        Ok(b)
    }
}

#[allow(clippy::unnecessary_wraps, reason = "what `migrate` asks for")]
fn as_it_is(old: forever::fiber::Snapshot) -> anyhow::Result<forever::fiber::Snapshot> {
    Ok(old)
}

const GONE: &str = "`work` cannot resume: step `a` is gone: if it was renamed, write `was = \"a\"` at the step that it is now";

fn verdicts(found: &Compatibility) -> Vec<(&str, Option<&str>, u64, bool)> {
    found.entries.iter().map(|e| (e.function.as_str(), e.at.as_deref(), e.fibers, e.verdict.is_resumable())).collect()
}

#[tokio::test(start_paused = true)]
async fn a_check_says_what_becomes_of_each_fiber_and_changes_nothing() {
    let fiber = stopped(old::work(3), "b").await;
    let bytes = || std::fs::read(fiber.path()).unwrap();
    let before = bytes();
    let builder = || Forever::builder().sqlite(fiber.path());
    let found = builder().fiber::<longer::work>().check().await.unwrap();
    assert_eq!((verdicts(&found), found.to_string().as_str()), (vec![("work", Some("a"), 1, true)], "1 fiber resumes"));
    let found = builder().fiber::<without_a::work>().check().await.unwrap();
    assert_eq!(verdicts(&found), [("work", Some("a"), 1, false)]);
    let text = found.to_string();
    assert!(text.starts_with(&format!("0 fibers resume, 1 does not\n1 fiber of `work` at `a`: {GONE}")), "{text}");
    let json = serde_json::to_value(&found).unwrap();
    assert_eq!(json["entries"][0]["verdict"], "parks", "{json}");
    assert!(json["entries"][0]["reason"].as_str().unwrap().starts_with(GONE), "{json}");
    let found = builder().fiber::<raised::work>().check().await.unwrap();
    assert_eq!(found.entries[0].verdict, Verdict::Migrates);
    let found = builder().check().await.unwrap();
    assert_eq!(
        found.entries[0].verdict.to_string(),
        "fiber `work` is not registered: register it, or give the function that it is now `name = \"work\"`"
    );
    assert_eq!(bytes(), before);

    // Also while the file is in use, and of a backup.
    let forever = builder().resource(World::without(Some("b"))).fiber::<old::work>().open().await.unwrap();
    assert!(!builder().fiber::<without_a::work>().check().await.unwrap().is_ok());
    let backup = fiber.path().with_file_name("backup.db");
    forever.backup(&backup).await.unwrap();
    forever.close().await.unwrap();
    let found = Forever::builder().sqlite(&backup).fiber::<without_a::work>().check().await.unwrap();
    assert_eq!((found.parked(), found.resumable()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_refuses_does_not_open_and_changes_nothing() {
    let fiber = stopped(old::work(3), "b").await;
    let builder = || Forever::builder().sqlite(fiber.path()).resource(World::without(None)).on_incompatible(OnIncompatible::Refuse);
    let error = builder().fiber::<without_a::work>().open().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Incompatible);
    assert!(error.to_string().contains(GONE), "{error}");
    fiber.resumes::<old::work>(3, &["b"]).await;
    let forever = builder().fiber::<without_a::work>().open().await.unwrap();
    assert!(forever.compatibility().entries.is_empty(), "what has ended is not compared");
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_parks_says_how_many() {
    let fiber = stopped(old::work(3), "b").await;
    let world = World::without(None);
    let forever = Forever::builder().sqlite(fiber.path()).resource(world.clone()).fiber::<without_a::work>().open().await.unwrap();
    assert_eq!(forever.compatibility().parked(), 1);
    forever.close().await.unwrap();
    let forever = Forever::builder().sqlite(fiber.path()).resource(world).fiber::<longer::work>().open().await.unwrap();
    assert_eq!((forever.compatibility().parked(), forever.compatibility().resumable()), (0, 1));
    assert_eq!(forever.fiber::<longer::work>("the-fiber").wait().await.unwrap(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_check_of_nothing_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let error = Forever::builder().sqlite(folder.path().join("none.db")).check().await.unwrap_err();
    assert!(error.to_string().ends_with("there is no such file"), "{error}");
    assert_eq!(Forever::builder().check().await.unwrap_err().kind(), ErrorKind::Setup);
}

#[tokio::test(start_paused = true)]
async fn a_check_reads_values_and_knows_of_operations_in_doubt() {
    versions! {
        old(io, n: u32) -> u32 {
            let v = step!("v", io.did("v", n).await?);
            step!("pay", effect, io.did("pay", ()).await?);
            Ok(v)
        }
        retried(io, n: u32) -> u32 {
            let v = step!("v", io.did("v", n).await?);
            step!("pay", effect, on_unknown = forever::ops::OnUnknown::Retry, io.did("pay", ()).await?);
            Ok(v)
        }
        written_out(io, n: u32) -> u32 {
            let v = step!("v", io.did("v", n).await?);
            step!("pay", effect, on_unknown = forever::ops::OnUnknown::Park, io.did("pay", ()).await?);
            Ok(v)
        }
        typed(io, n: u32) -> usize {
            let v = step!("v", io.did("v", String::new()).await?);
            step!("pay", effect, on_unknown = forever::ops::OnUnknown::Retry, io.did("pay", ()).await?);
            Ok(v.len())
        }
        plain(io, n: u32) -> u32 {
            let v = step!("v", io.did("v", n).await?);
            step!("pay", io.did("pay", ()).await?);
            Ok(v)
        }
        before(io, n: u32) -> u32 {
            let v = step!("v", io.did("v", n).await?);
            step!("fee", io.did("fee", ()).await?);
            step!("pay", effect, on_unknown = forever::ops::OnUnknown::Retry, io.did("pay", ()).await?);
            Ok(v)
        }
    }
    let fiber = stopped(old::work(3), "pay").await;
    let parked = [
        fiber.parked_by_a_check::<old::work, super::waits::child>().await,
        fiber.parked_by_a_check::<written_out::work, super::waits::child>().await,
        fiber.parked_by_a_check::<typed::work, super::waits::child>().await,
        fiber.parked_by_a_check::<plain::work, super::waits::child>().await,
        fiber.parked_by_a_check::<before::work, super::waits::child>().await,
        fiber.parked_by_a_check::<retried::work, super::waits::child>().await,
    ];
    assert_eq!(parked, [1, 1, 1, 1, 1, 0]);
}
