//! `sleep!`, `recv!`, `spawn!`, `wait!` in every position.
use std::time::{Duration, SystemTime};

use forever::prelude::{Forever, Res, fiber};
use forever_testkit::waiting::eventually;
use serde::{Deserialize, Serialize};

use super::harness::{
    Io, Letters, names, places, plain_call as call, plain_close as close, plain_recv as recv, plain_sleep as sleep,
    plain_sleep as sleep_until, plain_step as step, plain_try_recv as try_recv, same, same_with, twin,
};

const SHORT: Duration = Duration::from_millis(1);

twin! {
    async fn slept(io, n: u32) -> anyhow::Result<u32> {
        let fiber = n + 1;
        sleep!(SHORT);
        let mut sum = step!(io.did("first", fiber).await?);
        let () = sleep!(Duration::from_millis(u64::from(sum)));
        for i in 0..n {
            if i % 2 == 0 && sleep!(SHORT) == () {
                sum += i;
            } else {
                sleep_until!(SystemTime::UNIX_EPOCH + SHORT * i);
                sum += step!(io.did(format!("odd {i}"), i).await?);
            }
            match sleep!(SHORT * i) { () => sum += 1 }
        }
        let list = vec![sum];
        let mut rounds = 0;
        while { sleep!(SHORT); rounds += 1; rounds < 3 } {
            let _ = (list.len(), sleep!(SHORT), step!(io.did("tuple", rounds).await?));
        }
        let Some(last) = list.first().copied().filter(|_| sleep_now(n)) else {
            sleep!(SHORT);
            return Ok(fiber);
        };
        let value = { sleep!(SHORT); last };
        sleep!(step!(io.did("how long", SHORT).await?));
        if n == 2 { return Ok(sleep_value(sleep!(SHORT), value)); }
        Ok(value + fiber + rounds)
    }
}

fn sleep_now(n: u32) -> bool {
    n != 1
}

fn sleep_value((): (), value: u32) -> u32 {
    value
}

#[test]
fn a_sleep_stands_wherever_an_await_would() {
    assert!(same(|| slept(3)).outcome.starts_with("Completed("));
    same(|| slept(0));
    same(|| slept(1));
    same(|| slept(2));
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Answer {
    Yes { by: String },
    No,
}

twin! {
    async fn received(io, topic: String) -> anyhow::Result<String> {
        let answer: Answer = recv!("approval");
        let mut all = vec![topic];
        match answer {
            Answer::Yes { by } => if recv!("sure") { all.push(by) } else { all.push(step!(io.did("unsure", by.to_uppercase()).await?)) },
            Answer::No => { let why: String = recv!("why"); all.push(why); }
        }
        while let Some(line) = recv!("line", timeout = SHORT) {
            all.push(line);
            if all.len() > 4 { break; }
        }
        let () = recv!("go");
        let sum = two(recv!("number"), step!(io.did("between", 1u8).await?)) + two(recv!("number"), recv!("small"));
        let Some(last) = recv!("last", timeout = SHORT * sum) else {
            let why: Option<String> = recv!("why", timeout = SHORT);
            return Ok(format!("{all:?} {sum} no last, {why:?}"));
        };
        let last: String = last;
        for i in 0..recv!("rounds") {
            let text: String = if i % 2 == 0 { recv!("even") } else { recv!("odd") };
            all.push(text + &last);
        }
        Ok(format!("{all:?} {sum}"))
    }
}

fn two(a: u32, b: u8) -> u32 {
    a + u32::from(b)
}

fn letters() -> Letters {
    Letters::default().with("go", ()).with("number", 1u32).with("number", 10u32).with("small", 100u8).with("line", "a").with("line", "b")
}

#[test]
fn a_recv_stands_wherever_an_await_would() {
    let yes = || letters().with("approval", Answer::Yes { by: "ada".into() });
    let seen = same_with(
        yes().with("sure", true).with("last", "!").with("rounds", 3u32).with("even", "e").with("odd", "o").with("even", "f"),
        || received("t".into()),
    );
    assert_eq!(seen.outcome, r#"Completed("[\"t\", \"ada\", \"a\", \"b\", \"e!\", \"o!\", \"f!\"] 112")"#);
    same_with(yes().with("sure", false).with("line", "c"), || received("t".into()));
    let seen = same_with(letters().with("approval", Answer::No).with("why", "no money").with("why", "none"), || received("t".into()));
    assert_eq!(seen.outcome, r#"Completed("[\"t\", \"no money\", \"a\", \"b\"] 112 no last, Some(\"none\")")"#);
}

twin! {
    async fn emptied(io, topic: String) -> anyhow::Result<String> {
        let mut all: Vec<String> = Vec::new();
        while let Some(line) = try_recv!("line") {
            all.push(step!(io.did(format!("line {line}"), line).await?));
            if all.len() == 2 { break; }
        }
        if let Some((which, word)) = try_recv!([topic.as_str(), "other"]) {
            let word: String = word;
            all.push(which + &word);
        }
        let none: Option<u32> = try_recv!("nothing");
        let count = none.map_or(0, |n| n) + u32::try_from(step!(io.did("between", 1usize).await?))?;
        let rest: Vec<String> = close!("line");
        for line in rest { all.push(step!(io.did(format!("late {line}"), line).await?)); }
        let late = recv!("line", timeout = SHORT).unwrap_or_else(|| String::from("no more"));
        all.push(late);
        let more: Vec<String> = close!(topic.clone(), name = "of its own");
        let left = more.len() + total(close!("nothing"));
        Ok(format!("{all:?} {count} {left}"))
    }
}

fn total(numbers: Vec<u32>) -> usize {
    numbers.into_iter().map(|n| n as usize).sum()
}

#[test]
fn a_close_hands_over_what_was_not_received() {
    let lines = |n: u32| (0..n).fold(Letters::default(), |letters, n| letters.with("line", format!("{n}")));
    let seen = same_with(lines(5).with("mine", "a").with("other", "b").with("mine", "c"), || emptied("mine".into()));
    assert_eq!(seen.outcome, r#"Completed("[\"0\", \"1\", \"minea\", \"2\", \"3\", \"4\", \"no more\"] 1 1")"#);
    let seen = same_with(lines(0), || emptied("mine".into()));
    assert_eq!(seen.outcome, r#"Completed("[\"no more\"] 1 0")"#);
    same_with(lines(2).with("other", "b"), || emptied("mine".into()));
}

twin! {
    async fn named(io, n: u32) -> anyhow::Result<u32> {
        let answer: u32 = recv!("topic");
        let again: Option<u32> = recv!("topic", timeout = SHORT);
        sleep!(SHORT);
        step!(io.did("kept", (answer, again)).await?);
        Ok(n + answer + again.unwrap_or(0) + two(recv!("topic"), 0) + two(recv!("# 1"), 0))
    }
}

#[test]
fn a_snapshot_says_what_is_waited_for() {
    let seen = same_with(Letters::default().with("topic", 1).with("topic", 2).with("topic", 3).with("# 1", 4), || named(0));
    assert_eq!(
        places(&seen.snapshots),
        ["answer pending", "answer", "again pending", "again", "sleep", "did", "topic pending", "topic", "recv pending", "recv"]
    );
    assert_eq!(names(&seen.snapshots[0]), ["n"]);
    assert_eq!(names(&seen.snapshots[2]), ["again until", "answer", "n"]);
    assert_eq!(names(&seen.snapshots[4]), ["again", "answer", "n", "sleep until"]);
}

twin! {
    async fn asks(io, n: u32) -> anyhow::Result<u32> {
        if n > 0 {
            sleep!(SHORT);
            let below = call!(asks(n - 1))?;
            return Ok(below + two(recv!("number"), 0));
        }
        let own: u32 = recv!("number");
        step!(io.did("bottom", own).await?);
        Ok(own)
    }
}

#[test]
fn a_callee_waits_in_the_middle_of_its_callers() {
    let letters = (1..=4u32).fold(Letters::default(), |letters, n| letters.with("number", n));
    let seen = same_with(letters, || asks(3));
    assert_eq!(seen.outcome, "Completed(10)");
    assert!(
        seen.snapshots.iter().any(|s| s.contains(r#""at":"own pending""#) && s.matches(r#""call":{"#).count() == 3),
        "{:#?}",
        seen.snapshots
    );
}

#[fiber]
async fn child(io: Res<Io>, n: u32) -> anyhow::Result<u32> {
    let own = step!(io.did(format!("child {n}"), n).await?);
    anyhow::ensure!(n != 13, "unlucky");
    Ok(own * 2)
}

#[fiber]
async fn family(io: Res<Io>, n: u32) -> anyhow::Result<String> {
    let first = spawn!(child(n));
    let mut handles = Vec::new();
    for i in 0..n {
        handles.push(spawn!(child(i)));
        step!(io.did(format!("spawned {i}"), ()).await?);
    }
    let one = wait!(&first)?;
    let known = match wait!(first) {
        Ok(value) if value > 100 => value + wait!(&handles[0])?,
        Ok(value) => value,
        Err(error) => return Err(error.into()),
    };
    let failed = match wait!(spawn!(child(13))) {
        Ok(value) => format!("{value}"),
        Err(error) if error.is_failed() => error.reason().to_owned(),
        Err(error) => return Err(error.into()),
    };
    let some: Vec<u32> = wait_all!(handles.iter().skip(1)).into_iter().flatten().collect();
    let all: u32 =
        wait_all!(handles).into_iter().map(|end| end.unwrap_or(0)).sum::<u32>() + wait!(spawn!(child(wait!(spawn!(child(1)))?)))?;
    Ok(format!("{one} {known} {failed} {some:?} {all}"))
}

async fn opened(path: &std::path::Path, io: &Io) -> anyhow::Result<Forever> {
    Ok(Forever::builder().sqlite(path).resource(io.clone()).fiber::<family>().fiber::<child>().open().await?)
}

#[tokio::test(start_paused = true)]
async fn children_are_started_once_and_waited_for_wherever_the_runtime_ends() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let io = Io::default();
    let forever = opened(&folder.path().join("whole.db"), &io).await?;
    let want = forever.run(family(3)).await?;
    assert_eq!(want, "6 6 unlucky [2, 4] 10");
    forever.close().await?;
    // What was done, but not how often: a step under way when the runtime ends is done again.
    let done_at_all = |io: &Io| io.taken().into_iter().collect::<std::collections::BTreeSet<_>>();
    let steps = done_at_all(&io);
    assert_eq!(steps.len(), 8, "{steps:?}");
    // The runtime is dropped when so many steps are done, wherever the fibers are then.
    for done in 0..=10 {
        let path = folder.path().join(format!("{done}.db"));
        let io = Io::default();
        let forever = opened(&path, &io).await?;
        let id = forever.spawn(family(3)).await?.id().to_owned();
        eventually("so many steps", async || io.taken().len() >= done).await;
        drop(forever);
        let forever = opened(&path, &io).await?;
        assert_eq!(forever.fiber::<family>(&id).wait().await?, want, "dropped after {done} steps");
        assert_eq!(done_at_all(&io), steps, "dropped after {done} steps");
        assert_eq!(forever.fibers().await?.fibers.len(), 8, "each child was made once, dropped after {done} steps");
        forever.close().await?;
    }
    Ok(())
}
