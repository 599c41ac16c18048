//! Loops wrapped around steps, unwrapped, and made to go over other things.
use super::{stopped, versions};

fn words() -> Vec<String> {
    ["a", "b", "c"].map(str::to_owned).to_vec()
}

#[tokio::test(start_paused = true)]
async fn a_for_loop_wrapped_around_a_step_parks() {
    versions! {
        old(io, n: u32) -> u32 {
            let mut sum = 0;
            sum += step!("a", io.did("a", n).await?);
            sum += step!("b", io.did("b", n).await?);
            Ok(sum)
        }
        new(io, n: u32) -> u32 {
            let mut sum = 0;
            for _ in 0..3 {
                sum += step!("a", io.did("a", n).await?);
                sum += step!("b", io.did("b", n).await?);
            }
            Ok(sum)
        }
    }
    let fiber = stopped(old::work(3), "b").await;
    fiber.parks::<new::work>("step `a` is in a `for` loop now whose place (`for _`) was not kept: the loop is new or goes over something else; give the step in it another name, or put the place into the snapshot with `migrate`").await;
    fiber.resumes::<old::work>(6, &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_while_loop_over_what_was_kept_wrapped_around_a_step_resumes_in_its_first_round() {
    versions! {
        old(io, n: u32) -> u32 {
            let mut sum = 0;
            step!("a", io.did("a", ()).await?);
            sum += step!("b", io.did("b", n).await?);
            Ok(sum)
        }
        new(io, n: u32) -> u32 {
            let mut sum = 0;
            while sum < n * 2 {
                step!("a", io.did("a", ()).await?);
                sum += step!("b", io.did("b", n).await?);
            }
            Ok(sum)
        }
    }
    stopped(old::work(3), "b").await.resumes::<new::work>(6, &["b", "a", "b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_loop_removed_parks_while_it_has_items_left() {
    versions! {
        old(io, n: u32) -> u32 {
            let mut sum = 0;
            for i in 0..3 {
                let a = step!("a", io.did(format!("a {i}"), n).await?);
                sum += step!("b", io.did(format!("b {i}"), a).await?);
            }
            Ok(sum)
        }
        new(io, n: u32) -> u32 {
            let mut sum = 0;
            let a = step!("a", io.did("a", n).await?);
            sum += step!("b", io.did("b", a).await?);
            Ok(sum)
        }
    }
    for before in ["b 0", "b 1"] {
        let fiber = stopped(old::work(3), before).await;
        fiber
            .parks::<new::work>(
                "the `for` loop around step `a` may have items left (`for i`), and is not in the code any more: keep the loop, or take its items \
                 out of the snapshot with `migrate`",
            )
            .await;
        let left: &[&str] = if before == "b 0" { &["b 0", "a 1", "b 1", "a 2", "b 2"] } else { &["b 1", "a 2", "b 2"] };
        fiber.resumes::<old::work>(9, left).await;
    }
    stopped(old::work(3), "b 2").await.resumes::<new::work>(9, &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_loop_by_value_made_one_by_borrow_parks_and_back() {
    versions! {
        value(io, list: Vec<String>) -> String {
            let mut out = String::new();
            for word in list {
                let got = step!("say", io.did(format!("say {word}"), word.clone()).await?);
                out += &got;
            }
            Ok(out)
        }
        borrow(io, list: Vec<String>) -> String {
            let mut out = String::new();
            for word in &list {
                let got = step!("say", io.did(format!("say {word}"), word.clone()).await?);
                out += &got;
            }
            Ok(out)
        }
    }
    let fiber = stopped(value::work(words()), "say c").await;
    fiber.parks::<borrow::work>("local `list` is needed after step `say` but was not kept: put it into the snapshot with `migrate`; step `say` is in a `for` loop now whose place (`list at`) was not kept: the loop is new or goes over something else; give the step in it another name, or put the place into the snapshot with `migrate`").await;
    fiber.resumes::<value::work>("abc".into(), &["say c"]).await;
    let fiber = stopped(borrow::work(words()), "say c").await;
    fiber
        .parks_saying::<value::work>("`work` cannot resume: step `say` is in a `for` loop now whose place (`list left`) was not kept")
        .await;
    fiber.resumes::<borrow::work>("abc".into(), &["say c"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_loop_by_value_over_what_a_step_gave_made_one_by_borrow_parks_and_back() {
    versions! {
        value(io, n: u32) -> u32 {
            let list = step!(io.did("list", vec![n, n, n]).await?);
            let mut sum = 0;
            for x in list {
                sum += step!("add", io.did(format!("add {sum}"), x).await?);
            }
            Ok(sum)
        }
        borrow(io, n: u32) -> u32 {
            let list = step!(io.did("list", vec![n, n, n]).await?);
            let mut sum = 0;
            for x in &list {
                sum += step!("add", io.did(format!("add {sum}"), *x).await?);
            }
            Ok(sum)
        }
    }
    for (at, left) in [("add 1", &["add 1", "add 2"][..]), ("add 2", &["add 2"])] {
        let fiber = stopped(value::work(1), at).await;
        fiber
            .parks_saying::<borrow::work>(
                "`work` cannot resume: local `list` is needed after step `add` but was not kept: put it into the snapshot with `migrate`; ",
            )
            .await;
        fiber.resumes::<value::work>(3, left).await;
        let fiber = stopped(borrow::work(1), at).await;
        fiber.parks::<value::work>("step `add` is in a `for` loop now whose place (`list left`) was not kept: the loop is new or goes over something else; give the step in it another name, or put the place into the snapshot with `migrate`").await;
        fiber.resumes::<borrow::work>(3, left).await;
    }
    // Where the list is whole and the loop has not begun, its name is the same in both.
    stopped(value::work(1), "add 0").await.resumes::<borrow::work>(3, &["add 0", "add 1", "add 2"]).await;
    stopped(borrow::work(1), "add 0").await.resumes::<value::work>(3, &["add 0", "add 1", "add 2"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_step_put_between_a_list_and_its_loop_leaves_the_loop_where_it_is() {
    versions! {
        beside(io, n: u32) -> u32 {
            let first = step!("first", io.did("first", n).await?);
            let list = vec![first; 3];
            let mut sum = 0;
            for x in list {
                sum += step!("add", io.did(format!("add {sum}"), x).await?);
            }
            Ok(sum)
        }
        between(io, n: u32) -> u32 {
            let list = vec![n; 3];
            step!("first", io.did("first", n).await?);
            let mut sum = 0;
            for x in list {
                sum += step!("add", io.did(format!("add {sum}"), x).await?);
            }
            Ok(sum)
        }
        used_behind(io, n: u32) -> usize {
            let first = step!("first", io.did("first", n).await?);
            let list = vec![first; 3];
            let mut sum = 0;
            for x in list.clone() {
                sum += step!("add", io.did(format!("add {sum}"), x).await?);
            }
            step!("end", io.did("end", list.len()).await?);
            Ok(sum as usize)
        }
    }
    let left = &["add 1", "add 2"];
    stopped(beside::work(1), "add 1").await.resumes::<between::work>(3, left).await;
    stopped(between::work(1), "add 1").await.resumes::<beside::work>(3, left).await;
    stopped(used_behind::work(1), "add 1").await.resumes::<beside::work>(3, left).await;
    stopped(beside::work(1), "add 1")
        .await
        .parks_naming::<used_behind::work>("local `list` is needed after step `add` but was not kept")
        .await;
}

#[tokio::test(start_paused = true)]
async fn loops_inside_one_another_that_are_exchanged_park() {
    versions! {
        borrowed(io, rows: Vec<u32>, columns: Vec<u32>) -> u32 {
            for row in &rows {
                for column in &columns {
                    step!("cell", io.did(format!("{row} {column}"), ()).await?);
                }
            }
            Ok(0)
        }
        borrowed_exchanged(io, rows: Vec<u32>, columns: Vec<u32>) -> u32 {
            for column in &columns {
                for row in &rows {
                    step!("cell", io.did(format!("{row} {column}"), ()).await?);
                }
            }
            Ok(0)
        }
        ranges(io, n: u32) -> u32 {
            for row in 0..n {
                for column in 7..n + 7 {
                    step!("cell", io.did(format!("{row} {column}"), ()).await?);
                }
            }
            Ok(0)
        }
        ranges_exchanged(io, n: u32) -> u32 {
            for column in 7..n + 7 {
                for row in 0..n {
                    step!("cell", io.did(format!("{row} {column}"), ()).await?);
                }
            }
            Ok(0)
        }
    }
    let why = |items: &str| {
        format!(
            "the `for` loops around step `cell` are nested in another order than before (`{items}` has moved): which rounds were done cannot \
             be told; keep the order, or give the step in them another name"
        )
    };
    let fiber = stopped(borrowed::work(vec![0, 1], vec![7, 8]), "1 7").await;
    fiber.parks::<borrowed_exchanged::work>(&why("rows at")).await;
    fiber.resumes::<borrowed::work>(0, &["1 7", "1 8"]).await;
    let fiber = stopped(ranges::work(2), "1 7").await;
    fiber.parks_naming::<ranges_exchanged::work>(&why("for row")).await;
    fiber.resumes::<ranges::work>(0, &["1 7", "1 8"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_loop_whose_bounds_change_keeps_its_ends_where_it_is_under_way() {
    versions! {
        old(io, n: u32) -> u32 {
            let mut sum = 0;
            for i in 0..n {
                sum += step!("add", io.did(format!("add {i}"), i).await?);
            }
            Ok(sum)
        }
        longer(io, n: u32) -> u32 {
            let mut sum = 0;
            for i in 0..n + 2 {
                sum += step!("add", io.did(format!("add {i}"), i).await?);
            }
            Ok(sum)
        }
    }
    stopped(old::work(3), "add 1").await.resumes::<longer::work>(3, &["add 1", "add 2"]).await;
    stopped(old::work(3), "add 0").await.resumes::<longer::work>(10, &["add 0", "add 1", "add 2", "add 3", "add 4"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_range_that_takes_in_its_end_is_another_loop() {
    versions! {
        old(io, n: u32) -> u32 {
            let mut sum = 0;
            for i in 0..n {
                sum += step!("add", io.did(format!("add {i}"), i).await?);
            }
            Ok(sum)
        }
        new(io, n: u32) -> u32 {
            let mut sum = 0;
            for i in 0..=n {
                sum += step!("add", io.did(format!("add {i}"), i).await?);
            }
            Ok(sum)
        }
    }
    let fiber = stopped(old::work(3), "add 1").await;
    let why = "local `for i` saved at step `add` cannot be read as what is left of this `for` loop, which goes over something else now: ";
    fiber.parks_saying::<new::work>(why).await;
    fiber.resumes::<old::work>(3, &["add 1", "add 2"]).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_left_of_a_loop_is_not_taken_for_the_whole_list() {
    versions! {
        old(io, list: Vec<u32>) -> u32 {
            let mut sum = 0;
            for x in list {
                sum += step!("add", io.did(format!("add {x}"), x).await?);
            }
            Ok(sum)
        }
        new(io, list: Vec<u32>) -> u32 {
            let mut sum = 0;
            sum += step!("add", io.did("add", 1).await?);
            Ok(sum + u32::try_from(list.len())?)
        }
    }
    let fiber = stopped(old::work(vec![1, 2, 3]), "add 2").await;
    fiber.parks_naming::<new::work>("local `list` is needed after step `add` but was not kept").await;
    fiber.resumes::<old::work>(6, &["add 2", "add 3"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_borrowed_loop_turned_round_parks() {
    versions! {
        old(io, list: Vec<String>) -> String {
            let mut out = String::new();
            for word in &list {
                out += &step!("say", io.did(format!("say {word}"), word.clone()).await?);
            }
            Ok(out)
        }
        new(io, list: Vec<String>) -> String {
            let mut out = String::new();
            for word in list.iter().rev() {
                out += &step!("say", io.did(format!("say {word}"), word.clone()).await?);
            }
            Ok(out)
        }
    }
    let fiber = stopped(old::work(words()), "say b").await;
    fiber.parks_saying::<new::work>("`work` cannot resume: ").await;
    fiber.resumes::<old::work>("abc".into(), &["say b", "say c"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_borrowed_loop_over_the_same_items_written_otherwise_parks() {
    versions! {
        old(io, list: Vec<String>) -> String {
            let mut out = String::new();
            for word in &list {
                out += &step!("say", io.did(format!("say {word}"), word.clone()).await?);
            }
            Ok(out)
        }
        new(io, list: Vec<String>) -> String {
            let mut out = String::new();
            for word in list.iter() {
                out += &step!("say", io.did(format!("say {word}"), word.clone()).await?);
            }
            Ok(out)
        }
    }
    let fiber = stopped(old::work(words()), "say b").await;
    fiber.parks::<new::work>("step `say` is in a `for` loop now whose place (`list.iter() at`) was not kept: the loop is new or goes over something else; give the step in it another name, or put the place into the snapshot with `migrate`").await;
    fiber.resumes::<old::work>("abc".into(), &["say b", "say c"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_borrowed_loop_that_has_fewer_items_than_were_done_parks() {
    versions! {
        old(io, list: Vec<String>) -> String {
            let mut out = String::new();
            for word in &list {
                out += &step!("say", io.did(format!("say {word}"), word.clone()).await?);
            }
            out += &step!("end", io.did("end", "!".to_owned()).await?);
            Ok(out)
        }
        new(io, list: Vec<String>) -> String {
            let mut out = String::new();
            for word in list.iter().take(1) {
                out += &step!("say", io.did(format!("say {word}"), word.clone()).await?);
            }
            out += &step!("end", io.did("end", "!".to_owned()).await?);
            Ok(out)
        }
    }
    let fiber = stopped(old::work(words()), "say c").await;
    fiber.parks_naming::<new::work>("`list").await;
    fiber.resumes::<old::work>("abc!".into(), &["say c", "end"]).await;
}

#[tokio::test(start_paused = true)]
async fn two_loops_exchanged_park() {
    versions! {
        old(io, n: u32) -> u32 {
            let mut sum = 0;
            for i in 0..n {
                sum += step!("a", io.did(format!("a {i}"), i).await?);
            }
            for i in 0..n {
                sum += step!("b", io.did(format!("b {i}"), i * 10).await?);
            }
            Ok(sum)
        }
        new(io, n: u32) -> u32 {
            let mut sum = 0;
            for i in 0..n {
                sum += step!("b", io.did(format!("b {i}"), i * 10).await?);
            }
            for i in 0..n {
                sum += step!("a", io.did(format!("a {i}"), i).await?);
            }
            Ok(sum)
        }
    }
    let fiber = stopped(old::work(3), "a 1").await;
    fiber.parks::<new::work>("step `a` is in a `for` loop now whose place (`for i#2`) was not kept: the loop is new or goes over something else; give the step in it another name, or put the place into the snapshot with `migrate`").await;
    fiber.resumes::<old::work>(33, &["a 1", "a 2", "b 0", "b 1", "b 2"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_borrowed_loop_over_another_list_of_the_same_name_parks() {
    versions! {
        old(io, plan: (Vec<String>, Vec<String>)) -> String {
            #[derive(serde::Serialize, serde::Deserialize)]
            struct Plan { list: Vec<String> }
            let (one, two) = (Plan { list: plan.0 }, Plan { list: plan.1 });
            let mut out = String::new();
            for word in &one.list {
                out += &step!("say", io.did(format!("say {word}"), word.clone()).await?);
            }
            Ok(out + &two.list.concat())
        }
        new(io, plan: (Vec<String>, Vec<String>)) -> String {
            #[derive(serde::Serialize, serde::Deserialize)]
            struct Plan { list: Vec<String> }
            let (one, two) = (Plan { list: plan.0 }, Plan { list: plan.1 });
            let mut out = String::new();
            for word in &two.list {
                out += &step!("say", io.did(format!("say {word}"), word.clone()).await?);
            }
            Ok(out + &one.list.concat())
        }
    }
    let fiber = stopped(old::work((words(), vec!["x".to_owned(), "y".to_owned()])), "say b").await;
    fiber.parks_saying::<new::work>("`work` cannot resume: ").await;
    fiber.resumes::<old::work>("abcxy".into(), &["say b", "say c"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_borrowed_loop_with_fewer_items_does_not_end_the_function() {
    versions! {
        old(io, list: Vec<u32>) -> usize {
            for word in &list {
                step!("say", io.did(format!("say {word}"), ()).await?);
            }
            step!("end", io.did("end", ()).await?);
            Ok(list.len())
        }
        new(io, list: Vec<u32>) -> usize {
            for word in list.iter().take(1) {
                step!("say", io.did(format!("say {word}"), ()).await?);
            }
            step!("end", io.did("end", ()).await?);
            Ok(list.len())
        }
    }
    let fiber = stopped(old::work(vec![1, 2, 3]), "say 3").await;
    fiber.parks_naming::<new::work>("`list").await;
    fiber.resumes::<old::work>(3, &["say 3", "end"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_borrowed_loop_without_items_left_does_not_lose_what_comes_after_it() {
    versions! {
        old(io, list: Vec<u32>) -> u32 {
            for word in &list {
                step!("say", io.did(format!("say {word}"), ()).await?);
            }
            Ok(0)
        }
        new(io, list: Vec<u32>) -> u32 {
            for word in list.iter().take(1) {
                step!("say", io.did(format!("say {word}"), ()).await?);
            }
            io.did("after the loop", ()).await?;
            Ok(1)
        }
    }
    let fiber = stopped(old::work(vec![1, 2, 3]), "say 3").await;
    fiber.parks_naming::<new::work>("`list").await;
    fiber.resumes::<old::work>(0, &["say 3"]).await;
}

/// Lists that no snapshot has, one for each version.
mod lists {
    pub(super) const OLD: [&str; 3] = ["a", "b", "c"];
    pub(super) const LONGER: [&str; 4] = ["a", "b", "c", "d"];
    pub(super) const WITHOUT_THE_FIRST: [&str; 2] = ["b", "c"];
    pub(super) const ONE_IN_FRONT: [&str; 4] = ["new", "a", "b", "c"];
    pub(super) static EXCHANGED: [&str; 3] = ["b", "a", "c"];
}

#[tokio::test(start_paused = true)]
async fn a_loop_over_a_constant_parks_when_what_it_has_done_has_changed() {
    macro_rules! version {
        ($($version:ident: $list:ident,)*) => {$(
            #[allow(dead_code, reason = "a fiber that is only stopped or resumed is not spawned")]
            mod $version {
                const SOURCES: &[&str] = &super::lists::$list;
                #[forever::fiber]
                pub(super) async fn work(io: forever::fiber::Res<crate::drift::World>) -> anyhow::Result<String> {
                    let mut out = String::new();
                    for word in SOURCES.iter() {
                        out += &step!("say", io.did(format!("say {word}"), (*word).to_owned()).await?);
                    }
                    Ok(out)
                }
            }
        )*};
    }
    version! { old: OLD, longer: LONGER, without_the_first: WITHOUT_THE_FIRST, one_in_front: ONE_IN_FRONT, exchanged: EXCHANGED, }
    let fiber = stopped(old::work(), "say c").await;
    let why =
        "the `for` loop over `SOURCES.iter()` of `work` stands in the middle of its items, and those that it has gone over have changed";
    fiber.parks_saying::<without_the_first::work>(why).await;
    fiber.parks_saying::<one_in_front::work>(why).await;
    fiber.parks_saying::<exchanged::work>(why).await;
    fiber.resumes::<longer::work>("abcd".to_owned(), &["say c", "say d"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_loop_over_a_literal_list_or_a_fresh_one_parks_when_what_it_has_done_has_changed() {
    versions! {
        old(io, n: u32) -> String {
            let mut out = String::new();
            for word in ["a", "b", "c"] {
                out += &step!("say", io.did(format!("say {word}"), word.to_owned()).await?);
            }
            Ok(out)
        }
        longer(io, n: u32) -> String {
            let mut out = String::new();
            for word in ["a", "b", "x", "y"] {
                out += &step!("say", io.did(format!("say {word}"), word.to_owned()).await?);
            }
            Ok(out)
        }
        fresh(io, n: u32) -> String {
            #[fresh]
            let words = vec![1, 2, 3];
            let mut out = String::new();
            for word in &words {
                out += &step!("say", io.did(format!("say {word}"), word.to_string()).await?);
            }
            Ok(out)
        }
        fresh_turned_round(io, n: u32) -> String {
            #[fresh]
            let words = vec![3, 2, 1];
            let mut out = String::new();
            for word in &words {
                out += &step!("say", io.did(format!("say {word}"), word.to_string()).await?);
            }
            Ok(out)
        }
    }
    let fiber = stopped(old::work(3), "say c").await;
    fiber.parks_naming::<longer::work>("[\"a\",\"b\"").await;
    fiber.resumes::<old::work>("abc".to_owned(), &["say c"]).await;
    let fiber = stopped(fresh::work(3), "say 3").await;
    fiber.parks_saying::<fresh_turned_round::work>("the `for` loop over `words` of `work` stands in the middle of its items").await;
    fiber.resumes::<fresh::work>("123".to_owned(), &["say 3"]).await;
}
