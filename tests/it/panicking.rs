//! Panics in what belongs to the program and is not the body of a fiber: the text of an error, and
//! the drop of an error, of a local and of what was thrown. Each is the failure of its fiber alone.
use std::fmt;
use std::time::Duration;

use forever::fiber::FiberState;
use forever::prelude::*;
use forever_testkit::waiting::soon;

use crate::support::stands;

#[derive(Debug)]
struct NoText;

impl fmt::Display for NoText {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("no text")
    }
}

impl std::error::Error for NoText {}

/// Panics when it is dropped, unless that would abort the process.
#[derive(Debug)]
struct Touchy;

impl Drop for Touchy {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "touched");
    }
}

#[derive(Debug)]
struct TouchyError(#[allow(dead_code, reason = "it is dropped")] Touchy);

impl fmt::Display for TouchyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("do not touch")
    }
}

impl std::error::Error for TouchyError {}

fn fail(how: &str) -> anyhow::Result<u64> {
    match how {
        "error without text" => Err(anyhow::Error::new(NoText)),
        "touchy error" => Err(anyhow::Error::new(TouchyError(Touchy))),
        _ => std::panic::panic_any(Touchy),
    }
}

const HOW: [(&str, &str); 3] = [
    ("error without text", "an error whose text cannot be had: it panicked: no text"),
    ("touchy error", "do not touch"),
    ("touchy panic", "panicked: a value that is not text"),
];

#[fiber]
async fn fails(how: String, retried: bool) -> anyhow::Result<u64> {
    step!("before", ());
    if retried {
        return Ok(step!("fails", retry = Retry::times(2).backoff(Backoff::none()), fail(&how)?));
    }
    fail(&how)
}

#[fiber]
async fn parent(how: String) -> anyhow::Result<String> {
    let child = spawn!(fails(how, false));
    Ok(match wait!(child) {
        Ok(n) => n.to_string(),
        Err(error) => error.reason().to_owned(),
    })
}

#[fiber]
async fn holds() -> anyhow::Result<()> {
    #[fresh]
    let touchy = Touchy;
    step!("hangs", std::future::pending::<()>().await);
    let _ = &touchy;
    Ok(())
}

async fn open() -> Forever {
    let builder = Forever::builder().in_memory().cancel_grace(Duration::from_millis(1));
    builder.fiber::<fails>().fiber::<parent>().fiber::<holds>().open().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn error_whose_text_or_drop_panics_fails_its_fiber() {
    let forever = open().await;
    for (how, reason) in HOW {
        let handle = forever.spawn(fails(how.into(), false)).await.unwrap();
        let error = soon(how, handle.wait()).await.unwrap_err();
        assert!(error.is_failed(), "{how}: {error}");
        assert_eq!(error.reason(), reason, "{how}");
        assert_eq!(handle.status().await.unwrap().state, FiberState::Failed, "{how}");
        let retried = forever.spawn(fails(how.into(), true)).await.unwrap();
        assert!(soon(how, retried.wait()).await.unwrap_err().is_failed(), "{how} in a step");
        let closure = forever.spawn_closure("closure", move |_| async move { fail(how) });
        assert!(soon(how, closure).await.unwrap_err().is_failed(), "{how} in a closure");
    }
    forever.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn parent_hears_of_a_child_whose_error_has_no_text() {
    let forever = open().await;
    for (how, reason) in HOW {
        assert_eq!(soon(how, forever.run(parent(how.into()))).await.unwrap(), reason);
    }
    forever.close().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn fiber_whose_locals_panic_when_it_is_cancelled_is_cancelled() {
    let forever = open().await;
    let handle = forever.spawn(holds()).await.unwrap();
    stands(&handle, FiberState::Running).await;
    forever.cancel(handle.id(), "enough").await.unwrap();
    assert!(soon("the end", handle.wait()).await.unwrap_err().is_cancelled());
    assert_eq!(handle.status().await.unwrap().state, FiberState::Cancelled);
    forever.close().await.unwrap();
}
