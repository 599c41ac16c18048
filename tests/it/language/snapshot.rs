//! The exact texts of snapshots: what is needed later is in them, and nothing else.
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::harness::{names, plain_step as step, same, twin};

twin! {
    async fn line(io, used: String, unused: Vec<u32>) -> anyhow::Result<String> {
        let early = unused.len();
        let a = step!(io.did("a", early).await?);
        let b = step!(io.did("b", a + 1).await?);
        let gone = format!("{b}");
        step!("c", io.did(gone.clone(), ()).await?);
        let last = step!(io.did("last", 1.5).await?);
        Ok(format!("{used}{last}"))
    }
}

#[test]
fn a_local_that_is_not_used_again_is_absent() {
    let seen = same(|| line("u".into(), vec![1]));
    assert_eq!(
        seen.snapshots,
        [
            r#"{"at":"a","locals":{"used":"u","a":1},"call":null}"#,
            r#"{"at":"b","locals":{"used":"u","b":2},"call":null}"#,
            r#"{"at":"c","locals":{"used":"u"},"call":null}"#,
            r#"{"at":"last","locals":{"used":"u","last":1.5},"call":null}"#,
        ]
    );
}

twin! {
    async fn branches(io, n: u32, big: String, small: String) -> anyhow::Result<String> {
        let flag = step!(io.did("flag", n > 1).await?);
        let out = if flag {
            let local = format!("{big}!");
            step!("then", io.did("then", ()).await?);
            local
        } else {
            step!("else", io.did("else", ()).await?);
            let s = small;
            step!("moved", io.did("moved", ()).await?);
            s
        };
        step!("end", io.did("end", ()).await?);
        Ok(out)
    }
}

#[test]
fn each_branch_keeps_only_what_its_own_rest_needs() {
    let seen = same(|| branches(2, "b".into(), "s".into()));
    assert_eq!(
        seen.snapshots,
        [
            r#"{"at":"flag","locals":{"big":"b","small":"s","flag":true},"call":null}"#,
            r#"{"at":"then","locals":{"local":"b!"},"call":null}"#,
            r#"{"at":"end","locals":{"out":"b!"},"call":null}"#,
        ]
    );
    let seen = same(|| branches(1, "b".into(), "s".into()));
    assert_eq!(
        seen.snapshots[1..],
        [
            r#"{"at":"else","locals":{"small":"s"},"call":null}"#,
            r#"{"at":"moved","locals":{"s":"s"},"call":null}"#,
            r#"{"at":"end","locals":{"out":"s"},"call":null}"#,
        ]
    );
}

twin! {
    async fn positions(io, v: Vec<u32>, m: BTreeMap<String, u32>) -> anyhow::Result<u32> {
        let mut sum = 0;
        for x in &v {
            for i in 0..2 {
                let seen = step!(io.did("seen", x + i).await?);
                sum += seen;
            }
        }
        for x in v {
            step!("owned", io.did("owned", x).await?);
            for (k, n) in &m {
                let both = k.len() as u32 + n;
                step!("map", io.did("map", ()).await?);
                sum += both + x;
            }
        }
        step!("end", io.did("end", ()).await?);
        Ok(sum)
    }
}

#[test]
fn loops_are_kept_by_position_or_by_their_remaining_items() {
    let seen = same(|| positions(vec![1, 2], BTreeMap::from([("k".into(), 5)])));
    assert_eq!(
        seen.snapshots,
        [
            r#"{"at":"seen","locals":{"v":[1,2],"m":{"k":5},"sum":0,"v at":0,"for i":{"range":{"next":1,"end":2}},"seen":1},"call":null}"#,
            r#"{"at":"seen","locals":{"v":[1,2],"m":{"k":5},"sum":1,"v at":0,"for i":{"range":{"next":2,"end":2}},"seen":2},"call":null}"#,
            r#"{"at":"seen","locals":{"v":[1,2],"m":{"k":5},"sum":3,"v at":1,"for i":{"range":{"next":1,"end":2}},"seen":2},"call":null}"#,
            r#"{"at":"seen","locals":{"v":[1,2],"m":{"k":5},"sum":5,"v at":1,"for i":{"range":{"next":2,"end":2}},"seen":3},"call":null}"#,
            r#"{"at":"owned","locals":{"m":{"k":5},"sum":8,"v left":{"rest":[2]},"x":1},"call":null}"#,
            r#"{"at":"map","locals":{"m":{"k":5},"sum":8,"v left":{"rest":[2]},"x":1,"m at":0,"both":6},"call":null}"#,
            r#"{"at":"owned","locals":{"m":{"k":5},"sum":15,"v left":{"rest":[]},"x":2},"call":null}"#,
            r#"{"at":"map","locals":{"m":{"k":5},"sum":15,"v left":{"rest":[]},"x":2,"m at":0,"both":6},"call":null}"#,
            r#"{"at":"end","locals":{"sum":23},"call":null}"#,
        ]
    );
}

twin! {
    async fn loop_locals(io, n: u32, config: String, once: String) -> anyhow::Result<u32> {
        let mut total = 0;
        let prefix = once.len();
        let mut i = 0;
        while i < n {
            let word = format!("{config}{i}");
            let w = step!(io.did("w", word.len() as u32).await?);
            let scratch = vec![w; 3];
            total += scratch.iter().sum::<u32>();
            i += 1;
            if i == n { break }
            step!("tick", io.did("tick", ()).await?);
        }
        step!("after", io.did(format!("{prefix}"), ()).await?);
        Ok(total)
    }
}

#[test]
fn what_is_used_only_inside_a_round_or_before_the_loop_is_absent() {
    let seen = same(|| loop_locals(2, "c".into(), "o".into()));
    assert_eq!(names(&seen.snapshots[0]), ["config", "i", "n", "prefix", "total", "w"]);
    assert_eq!(names(&seen.snapshots[1]), ["config", "i", "n", "prefix", "total"]);
    assert_eq!(names(seen.snapshots.last().unwrap()), ["total"]);
}

twin! {
    async fn match_bindings(io, o: Option<(String, Vec<u32>)>, rest: u32) -> anyhow::Result<usize> {
        let n = match o {
            Some((name, list)) if list.len() > 1 => {
                step!("many", io.did(name, ()).await?);
                let l = list.len();
                step!("len", io.did("len", ()).await?);
                l
            }
            Some((name, _)) => { step!("one", io.did("one", ()).await?); name.len() }
            None => { step!("none", io.did("none", ()).await?); rest as usize }
        };
        Ok(n)
    }
}

#[test]
fn the_bindings_of_an_arm_are_kept_one_by_one() {
    let seen = same(|| match_bindings(Some(("n".into(), vec![1, 2])), 9));
    assert_eq!(seen.snapshots, [r#"{"at":"many","locals":{"list":[1,2]},"call":null}"#, r#"{"at":"len","locals":{"l":2},"call":null}"#]);
    let seen = same(|| match_bindings(Some(("n".into(), vec![])), 9));
    assert_eq!(seen.snapshots, [r#"{"at":"one","locals":{"name":"n"},"call":null}"#]);
    let seen = same(|| match_bindings(None, 9));
    assert_eq!(seen.snapshots, [r#"{"at":"none","locals":{"rest":9},"call":null}"#]);
}

twin! {
    async fn borrowed_bindings(io, o: Option<(String, Vec<u32>)>) -> anyhow::Result<usize> {
        if let Some((name, list)) = &o {
            step!("some", io.did("some", ()).await?);
            return Ok(name.len() + list.len());
        }
        step!("none", io.did("none", ()).await?);
        Ok(0)
    }
}

#[test]
fn a_borrow_keeps_its_owner_only() {
    let seen = same(|| borrowed_bindings(Some(("n".into(), vec![1]))));
    assert_eq!(seen.snapshots, [r#"{"at":"some","locals":{"o":["n",[1]]},"call":null}"#]);
    assert_eq!(same(|| borrowed_bindings(None)).snapshots, [r#"{"at":"none","locals":{},"call":null}"#]);
}

twin! {
    async fn overwritten(io, text: String) -> anyhow::Result<String> {
        let mut text = text;
        step!("dead", io.did(text.clone(), ()).await?);
        text = "new".to_owned();
        step!("live", io.did("live", ()).await?);
        let mut count = 1;
        step!("count", io.did("count", count).await?);
        count = 2;
        Ok(format!("{text}{count}"))
    }
}

#[test]
fn a_value_that_is_overwritten_before_it_is_read_is_absent() {
    let seen = same(|| overwritten("old".into()));
    assert_eq!(
        seen.snapshots,
        [
            r#"{"at":"dead","locals":{},"call":null}"#,
            r#"{"at":"live","locals":{"text":"new"},"call":null}"#,
            r#"{"at":"count","locals":{"text":"new"},"call":null}"#
        ]
    );
}

twin! {
    async fn exact(io, n: u64) -> anyhow::Result<String> {
        let nested: Option<Option<()>> = Some(None);
        let unit = Some(());
        let float = f64::from_bits(0x7ff8_0000_0000_0000);
        let minus = -0.0f64;
        let wide = u128::MAX - u128::from(n);
        let map = BTreeMap::from([((1, 'c'), [0u8; 2])]);
        let bytes = "tab\t\u{0}é".to_owned();
        step!("one", io.did("one", ()).await?);
        step!("two", io.did("two", ()).await?);
        Ok(format!("{nested:?} {unit:?} {float} {minus:?} {wide} {map:?} {bytes:?}"))
    }
}

#[test]
fn values_come_back_exactly() {
    let seen = same(|| exact(1));
    assert_eq!(names(&seen.snapshots[0]), ["bytes", "float", "map", "minus", "nested", "unit", "wide"]);
    assert!(seen.outcome.contains("Some(None) Some(()) NaN -0.0 340282366920938463463374607431768211454"), "{}", seen.outcome);
}

/// Two handles of one value.
#[forever::fiber]
async fn shares() -> anyhow::Result<u32> {
    let sum = Arc::new(Mutex::new(1));
    let other = Arc::clone(&sum);
    forever::step!("early", ());
    *other.lock().unwrap() += 1;
    let sum = *sum.lock().unwrap();
    Ok(sum)
}

#[tokio::test(start_paused = true)]
async fn what_would_come_back_twice_is_refused_at_its_first_checkpoint() {
    let forever = forever::Forever::builder().in_memory().fiber::<shares>().open().await.unwrap();
    let error = forever.spawn(shares()).await.unwrap().wait().await.unwrap_err();
    assert!(error.reason().contains("`other`") || error.reason().contains("`sum`"), "{error}");
    assert!(error.reason().contains("it is shared"), "{error}");
    forever.close().await.unwrap();
}
