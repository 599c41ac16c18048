//! `#[fresh] let`: not saved, made anew after a resume.
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, mpsc};

use forever::prelude::*;

use super::harness::{Io, everywhere, names};

/// A connection that nobody can save.
struct Client {
    base: String,
    sent: Mutex<mpsc::Sender<String>>,
}

impl Client {
    fn connect(base: &str) -> Client {
        let (sent, _) = mpsc::channel();
        Client { base: base.to_owned(), sent: Mutex::new(sent) }
    }

    fn url(&self, path: &str) -> String {
        drop(self.sent.lock());
        format!("{}/{path}", self.base)
    }
}

#[fiber]
async fn fetch_line(io: Res<Io>, base: String) -> anyhow::Result<String> {
    #[fresh]
    let client = Client::connect("b");
    let a = step!(io.did("a", client.url("a")).await?);
    let b = step!(io.did("b", client.url(&a)).await?);
    for i in 0..2 {
        step!("page", io.did("page", client.url("p")).await?);
        step!("seen", io.did(client.url(&i.to_string()), ()).await?);
    }
    Ok(format!("{a} {b} {base}"))
}

#[test]
fn a_fresh_variable_is_not_saved() {
    let (outcome, log, snapshots) = everywhere(|| fetch_line("base".into()));
    assert_eq!(outcome, r#"Completed("b/a b/b/a base")"#);
    assert_eq!(log, ["a", "b", "page", "b/0", "page", "b/1"]);
    assert_eq!(names(&snapshots[0]), ["a", "base"]);
    assert!(snapshots.iter().all(|s| !s.contains("client")));
}

#[fiber]
async fn in_an_arm_of_an_arm(io: Res<Io>, pages: Option<u32>) -> anyhow::Result<String> {
    let base = String::from("b");
    let mut seen = Vec::new();
    if !base.is_empty() {
        match pages {
            Some(1 | 2) => {
                #[fresh]
                let client = Client::connect(&base);
                for page in Vec::from([7, step!("page", io.did(base.clone(), 8u32).await?)]) {
                    seen.push(client.url(&page.to_string()));
                }
            }
            _ => seen.push(base.to_uppercase()),
        }
        step!("after", io.did(seen.join(","), ()).await?);
    }
    Ok(seen.concat())
}

#[test]
fn a_fresh_variable_in_an_arm_is_made_from_what_the_block_around_keeps() {
    let (outcome, log, _) = everywhere(|| in_an_arm_of_an_arm(Some(1)));
    assert_eq!(outcome, r#"Completed("b/7b/8")"#);
    assert_eq!(log, ["b", "b/7,b/8"]);
    assert_eq!(everywhere(|| in_an_arm_of_an_arm(None)).1, ["B"]);
}

#[fiber]
async fn counted(io: Res<Io>, made: Res<Arc<Made>>) -> anyhow::Result<u32> {
    #[fresh]
    let number: u32 = made.next();
    step!("one", io.did("one", number).await?);
    step!("two", io.did("two", number).await?);
    if number > 100 {
        step!("never", io.did("never", ()).await?);
    }
    step!("three", io.did("three", ()).await?);
    Ok(0)
}

#[derive(Default)]
struct Made(Mutex<u32>);

impl Made {
    fn next(&self) -> u32 {
        let mut made = self.0.lock().unwrap();
        *made += 1;
        *made
    }
}

#[test]
fn a_fresh_variable_is_made_once_a_run_and_only_where_it_is_needed() {
    use forever::testing::{Outcome, Stage, StartFrom};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let play = |from| {
        let made = Arc::new(Made::default());
        let stage = Stage::new().resource(Io::default()).resource(Arc::clone(&made));
        let played = runtime.block_on(stage.run::<counted>(from, None));
        assert_eq!(played.outcome, Outcome::Completed(0));
        (played.snapshots, *made.0.lock().unwrap())
    };
    let (snapshots, made) = play(StartFrom::Start(counted()));
    assert_eq!(made, 1);
    assert_eq!(play(StartFrom::Snapshot(snapshots[0].clone())).1, 1);
    assert_eq!(play(StartFrom::Snapshot(snapshots[2].clone())).1, 0);
}

#[fiber]
async fn fresh_and_moved(io: Res<Io>, n: u32) -> anyhow::Result<u32> {
    #[fresh]
    let mut scratch: Vec<u32> = Vec::with_capacity(8);
    let got = step!(io.did("got", n).await?);
    scratch.push(got);
    let sum: u32 = scratch.iter().sum();
    step!("sum", io.did("sum", sum).await?);
    Ok(sum)
}

#[test]
fn a_fresh_variable_may_be_changed_between_two_steps() {
    let (outcome, _, snapshots) = everywhere(|| fresh_and_moved(4));
    assert_eq!(outcome, "Completed(4)");
    assert_eq!(names(&snapshots[0]), ["got"]);
}

#[fiber]
async fn between_steps(io: Res<Io>, n: u32) -> anyhow::Result<usize> {
    let a = step!(io.did("a", n).await?);
    let count = {
        let shared = Rc::new(RefCell::new(Vec::new()));
        let other = Rc::clone(&shared);
        other.borrow_mut().push(a);
        shared.borrow().len()
    };
    let guard = Mutex::new(a);
    let locked = guard.lock().map(|g| *g).unwrap_or_default();
    step!("end", io.did("end", ()).await?);
    Ok(count + locked as usize)
}

#[test]
fn values_that_live_only_between_two_steps_need_not_be_savable() {
    assert_eq!(everywhere(|| between_steps(5)).0, "Completed(6)");
}

trait Llm: Send + Sync {
    fn ask(&self, text: &str) -> String;
}

struct Upper;

impl Llm for Upper {
    fn ask(&self, text: &str) -> String {
        text.to_uppercase()
    }
}

#[fiber]
async fn behind_a_trait(io: Res<Io>) -> anyhow::Result<String> {
    #[fresh]
    let llm: Arc<dyn Llm> = Arc::new(Upper);
    let mut said = String::new();
    for word in ["a", "b"] {
        said += &step!("ask", io.did("ask", llm.ask(word)).await?);
    }
    Ok(said)
}

#[test]
fn a_fresh_value_has_the_type_that_is_written() {
    assert_eq!(everywhere(behind_a_trait).0, "Completed(\"AB\")");
}
