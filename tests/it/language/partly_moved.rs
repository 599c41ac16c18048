//! Fields moved out of a local before a step: what is saved of it are the other fields.
use forever::fiber::{Backoff, Retry};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::harness::{plain_step as step, plain_steps as steps, same, twin};

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Plan {
    title: String,
    questions: Vec<String>,
    budget: u32,
    meta: Meta,
    kind: Kind,
    pair: (String, Vec<u32>, u32),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Meta {
    author: String,
    tags: Vec<String>,
    pages: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
enum Kind {
    Named(String),
    Counted(u32),
}

fn a_plan(n: u32) -> Plan {
    Plan {
        title: format!("plan {n}"),
        questions: vec!["a".into(), "b".into()],
        budget: n,
        meta: Meta { author: "ada".into(), tags: vec!["x".into()], pages: 7 },
        kind: if n == 1 { Kind::Named("one".into()) } else { Kind::Counted(n) },
        pair: ("left".into(), vec![n, n], 5),
    }
}

twin! {
    async fn a_field_moved(io, n: u32) -> anyhow::Result<String> {
        let plan = step!("plan", io.did("plan", a_plan(n)).await?);
        let title = plan.title;
        step!("x", io.did("x", ()).await?);
        step!("y", io.did("y", ()).await?);
        Ok(format!("{title} {} {}", plan.questions.len(), plan.budget))
    }
}

#[test]
fn a_field_moved_before_a_step_leaves_the_others() {
    let seen = same(|| a_field_moved(1));
    assert_eq!(seen.outcome, r#"Completed("plan 1 2 1")"#);
    assert!(seen.snapshots[0].contains(r#""plan":{"title":"plan 1","questions":["a","b"],"budget":1,"#), "{}", seen.snapshots[0]);
    assert!(seen.snapshots[1].contains(r#""plan":{"questions":["a","b"],"budget":1}"#), "{}", seen.snapshots[1]);
    assert!(seen.snapshots[2].contains(r#""plan":{"questions":["a","b"],"budget":1}"#), "{}", seen.snapshots[2]);
}

twin! {
    async fn nested_and_in_turn(io, n: u32) -> anyhow::Result<String> {
        let mut plan = a_plan(n);
        let author = plan.meta.author;
        plan.meta.tags.push("late".into());
        let tags = step!("x", io.did(author, plan.meta.tags.len()).await?);
        let questions = plan.questions;
        for question in questions {
            step!("question", io.did(question, ()).await?);
        }
        let left = plan.pair.0;
        plan.pair.1.push(9);
        step!("pair", io.did(left, ()).await?);
        Ok(format!("{tags} {:?} {} {:?}", plan.meta.tags, plan.meta.pages, plan.pair.1))
    }
}

#[test]
fn nested_fields_and_places_of_tuples_are_moved_one_after_the_other() {
    let seen = same(|| nested_and_in_turn(2));
    assert_eq!(seen.outcome, r#"Completed("2 [\"x\", \"late\"] 7 [2, 2, 9]")"#);
    let last = seen.snapshots.last().unwrap();
    assert!(last.contains(r#""plan":{"meta":{"tags":["x","late"],"pages":7},"pair":[null,[2,2,9]]}"#), "{last}");
}

twin! {
    async fn into_a_step(io, n: u32) -> anyhow::Result<String> {
        let plan = a_plan(n);
        let length = step!("send", io.did(plan.title, plan.budget).await?);
        let again = step!("retried", retry = Retry::times(2).backoff(Backoff::none()), io.did("retried", plan.questions.len()).await?);
        let sent = step!("effect", effect, io.did(plan.meta.author, plan.questions.len()).await?);
        step!("end", io.did("end", ()).await?);
        Ok(format!("{length} {again} {sent} {:?} {}", plan.questions, plan.meta.pages))
    }
}

#[test]
fn a_field_moved_into_a_step() {
    let seen = same(|| into_a_step(3));
    assert_eq!(seen.outcome, r#"Completed("3 2 2 [\"a\", \"b\"] 7")"#);
}

twin! {
    async fn in_one_branch(io, n: u32) -> anyhow::Result<String> {
        let plan = a_plan(n);
        let mut out = String::new();
        if n == 1 {
            out = plan.title;
        } else if n == 2 {
            drop(plan.meta);
        }
        match plan.kind {
            Kind::Named(name) => out += &name,
            Kind::Counted(count) => out += &count.to_string(),
        }
        if step!("more", io.did("more", n > 1).await?) {
            step!("inside", io.did("inside", ()).await?);
        }
        out += &plan.pair.0;
        Ok(format!("{out} {}", plan.questions.len()))
    }
}

#[test]
fn a_field_moved_in_one_branch_only() {
    let ends: Vec<_> = (1..4).map(|n| same(|| in_one_branch(n)).outcome).collect();
    assert_eq!(ends, [r#"Completed("plan 1oneleft 2")"#, r#"Completed("2left 2")"#, r#"Completed("3left 2")"#]);
}

twin! {
    async fn around_blocks(io, n: u32) -> anyhow::Result<String> {
        let plan = a_plan(n);
        let title = plan.title;
        if title.len() > 3 {
            step!("then", io.did("then", ()).await?);
        } else {
            step!("else", io.did("else", ()).await?);
        }
        let mut pages = 0;
        while pages < plan.meta.pages {
            pages += step!("page", io.did("page", 4).await?);
        }
        let Meta { author, .. } = plan.meta;
        for question in &plan.questions {
            step!("question", io.did(question.clone(), ()).await?);
        }
        Ok(format!("{title} {author} {pages} {:?}", plan.questions))
    }
}

#[test]
fn a_field_moved_before_blocks_with_steps() {
    assert_eq!(same(|| around_blocks(1)).outcome, r#"Completed("plan 1 ada 8 [\"a\", \"b\"]")"#);
}

twin! {
    async fn a_list_taken_out(io, n: u32) -> anyhow::Result<String> {
        let plan = a_plan(n);
        let mut found = Vec::new();
        for question in plan.questions {
            found.push(step!("ask", io.did(question, n).await?));
        }
        Ok(format!("{}: {found:?}", plan.title))
    }
}

#[test]
fn a_loop_by_value_over_a_field_leaves_the_others() {
    assert_eq!(same(|| a_list_taken_out(1)).outcome, r#"Completed("plan 1: [1, 1]")"#);
}

twin! {
    async fn copied_out(io, n: u32) -> anyhow::Result<String> {
        let plan = step!("plan", io.did("plan", a_plan(n)).await?);
        let budget = plan.budget;
        let (length, Kind::Counted(count)) = (plan.title.len(), plan.kind.clone()) else { anyhow::bail!("named") };
        step!("x", io.did("x", budget).await?);
        let pages = plan.meta.pages;
        if step!("y", io.did("y", pages > 1).await?) {
            step!("z", io.did("z", plan.budget).await?);
            return Ok(format!("{plan:?}"));
        }
        Ok(format!("{length} {count} {}", plan.title))
    }
}

#[test]
fn a_variable_stays_whole_where_fields_are_copied() {
    let seen = same(|| copied_out(2));
    assert_eq!(seen.outcome, format!("Completed({:?})", format!("{:?}", a_plan(2))));
    for snapshot in &seen.snapshots {
        assert!(snapshot.contains(r#""plan":{"title":"plan 2","questions":["a","b"],"budget":2,"meta""#), "{snapshot}");
    }
}

twin! {
    async fn copied_and_then_parts(io, n: u32) -> anyhow::Result<String> {
        let plan = Box::new(a_plan(n));
        let first = plan.questions.first();
        let budget = plan.budget;
        if first.is_some_and(|f| f == "a") && n > 0 {
            step!("x", io.did("x", budget).await?);
        }
        let Meta { pages, .. } = plan.meta;
        step!("y", io.did("y", pages).await?);
        Ok(format!("{} {}", plan.title, plan.questions.len()))
    }
}

#[test]
fn a_field_copied_out_of_a_box() {
    assert_eq!(same(|| copied_and_then_parts(2)).outcome, r#"Completed("plan 2 2")"#);
}

twin! {
    async fn by_closures_and_lists(io, n: u32) -> anyhow::Result<String> {
        let mut plan = a_plan(n);
        let title = plan.title;
        let shout = move || title.to_uppercase();
        let all = vec![plan.meta.author, shout()];
        plan.budget += 1;
        step!("x", io.did(format!("{all:?}"), plan.budget).await?);
        let tags = plan.meta.tags;
        let count = (move || tags.len())();
        let (first, second) = steps!(io.did(plan.pair.0, count).await?, io.did("second", plan.budget).await?);
        plan.budget += 1;
        let budget = step!("y", effect, io.did(plan.questions.join(" "), plan.budget).await?);
        Ok(format!("{first} {second} {budget} {} {}", plan.budget, plan.questions.into_iter().next().unwrap_or_default()))
    }
}

#[test]
fn a_field_moved_by_a_closure_a_list_and_a_branch() {
    assert_eq!(same(|| by_closures_and_lists(1)).outcome, r#"Completed("1 2 3 3 a")"#);
}

twin! {
    async fn in_a_loop(io, plans: Vec<Plan>) -> anyhow::Result<Vec<String>> {
        let mut out = Vec::new();
        for plan in plans {
            let title = plan.title;
            if step!("skip", io.did("skip", plan.budget == 2).await?) {
                continue;
            }
            'tags: for tag in &plan.meta.tags {
                for question in &plan.questions {
                    if step!("tag", io.did(tag.clone(), question == "b").await?) {
                        break 'tags;
                    }
                }
            }
            let Kind::Counted(count) = plan.kind else {
                step!("named", io.did("named", ()).await?);
                out.push(plan.pair.0);
                continue;
            };
            out.push(format!("{title} {count} {}", plan.meta.pages));
        }
        Ok(out)
    }
}

#[test]
fn a_field_moved_in_each_round_of_a_loop() {
    let seen = same(|| in_a_loop((1..5).map(a_plan).collect()));
    assert_eq!(seen.outcome, r#"Completed(["left", "plan 3 3 7", "plan 4 4 7"])"#);
}

twin! {
    async fn moved_only_where_it_ends(io, n: u32) -> anyhow::Result<String> {
        let plan = a_plan(n);
        if n == 1 {
            return Ok(plan.title);
        }
        if n == 2 {
            let title = plan.title;
            step!("x", io.did("x", ()).await?);
            return Ok(format!("{title} {}", plan.budget));
        }
        step!("y", io.did("y", ()).await?);
        Ok(format!("{plan:?}"))
    }
}

#[test]
fn a_field_moved_on_a_path_that_ends_leaves_the_others_whole() {
    let ends: Vec<_> = (1..4).map(|n| same(|| moved_only_where_it_ends(n)).outcome).collect();
    assert_eq!(ends[..2], [r#"Completed("plan 1")"#, r#"Completed("plan 2 2")"#]);
    assert_eq!(ends[2], format!("Completed({:?})", format!("{:?}", a_plan(3))));
}

twin! {
    async fn filled_again(io, n: u32) -> anyhow::Result<String> {
        let mut plan = a_plan(n);
        let title = plan.title;
        plan.title = title + "!";
        step!("x", io.did("x", ()).await?);
        let Meta { author, .. } = plan.meta;
        plan.meta = Meta { author: author + "?", tags: Vec::new(), pages: 0 };
        step!("y", io.did("y", ()).await?);
        Ok(format!("{plan:?}"))
    }
}

#[test]
fn a_field_that_is_filled_again_before_the_step_is_no_part_of_a_whole() {
    assert!(same(|| filled_again(1)).outcome.contains("plan 1!"));
}

twin! {
    async fn shadowed(io, n: u32) -> anyhow::Result<String> {
        let plan = a_plan(n);
        let title = plan.title;
        {
            let plan = plan.questions.len();
            step!("inner", io.did("inner", plan).await?);
        }
        let question = plan.questions;
        let plan = plan.meta;
        step!("outer", io.did(plan.author, ()).await?);
        Ok(format!("{title} {question:?} {}", plan.pages))
    }
}

#[test]
fn a_field_moved_out_of_a_local_that_another_one_hides() {
    assert_eq!(same(|| shadowed(1)).outcome, r#"Completed("plan 1 [\"a\", \"b\"] 7")"#);
}

twin! {
    async fn borrowed_first(io, n: u32) -> anyhow::Result<String> {
        let plan = a_plan(n);
        let budget = plan.budget;
        let questions = &plan.questions;
        step!("x", io.did("x", budget).await?);
        Ok(format!("{questions:?} {}", plan.title))
    }
}

#[test]
fn a_borrow_made_before_a_field_is_copied_is_made_again() {
    assert_eq!(same(|| borrowed_first(1)).outcome, r#"Completed("[\"a\", \"b\"] plan 1")"#);
}

twin! {
    async fn before_an_else_with_a_step(io, n: u32) -> anyhow::Result<String> {
        let plan = a_plan(n);
        let title = plan.title;
        let Some(budget) = Some(plan.budget).filter(|budget| *budget > 1) else {
            step!("else", io.did("else", ()).await?);
            return Ok(title);
        };
        step!("x", io.did("x", budget).await?);
        Ok(format!("{title} {}", plan.questions.len()))
    }
}

#[test]
fn a_field_moved_before_an_else_that_needs_nothing_of_the_rest() {
    assert_eq!(same(|| before_an_else_with_a_step(1)).outcome, r#"Completed("plan 1")"#);
    assert_eq!(same(|| before_an_else_with_a_step(2)).outcome, r#"Completed("plan 2 2")"#);
}

twin! {
    async fn beside_a_step(io, n: u32) -> anyhow::Result<String> {
        let plan = step!("plan", io.did("plan", a_plan(n)).await?);
        if n == 1 {
            drop(plan.title);
        } else {
            step!("x", io.did(plan.questions[0].clone(), ()).await?);
        }
        Ok(format!("{} {}", plan.questions.len(), plan.meta.author))
    }
}

#[test]
fn a_field_moved_in_a_block_beside_a_step() {
    let ends: Vec<_> = (1..3).map(|n| same(|| beside_a_step(n)).outcome).collect();
    assert_eq!(ends, [r#"Completed("2 ada")"#, r#"Completed("2 ada")"#]);
}

twin! {
    async fn between_steps_and_blocks(io, n: u32) -> anyhow::Result<String> {
        let plan = a_plan(n);
        drop(plan.meta.author);
        let count = step!("count", io.did("count", n).await?);
        let questions = plan.questions;
        let sent = match (n, questions.len()) {
            (1, _) => step!("send", io.did("send", count).await?),
            _ => {
                let other = step!("other", io.did("other", count + n).await?);
                return Ok(format!("{questions:?} {other}"));
            }
        };
        Ok(format!("{questions:?} {sent} {}", plan.budget))
    }
}

#[test]
fn a_field_moved_between_a_step_and_a_block_that_names_its_value() {
    assert_eq!(same(|| between_steps_and_blocks(1)).outcome, r#"Completed("[\"a\", \"b\"] 1 1")"#);
    assert_eq!(same(|| between_steps_and_blocks(2)).outcome, r#"Completed("[\"a\", \"b\"] 4")"#);
}

twin! {
    async fn an_operand_of_a_field(io, n: u32) -> anyhow::Result<String> {
        let plan = a_plan(n);
        let sum = sum(plan.budget, step!("x", io.did("x", n).await?));
        let listed = vec![plan];
        Ok(format!("{sum} {listed:?}"))
    }
}

fn sum(a: u32, b: u32) -> u32 {
    a + b
}

#[test]
fn a_field_that_is_an_operand_before_a_step_is_not_gone_over() {
    assert!(same(|| an_operand_of_a_field(2)).outcome.starts_with("Completed(\"4 [Plan"));
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Labelled<T> {
    value: T,
    labels: Vec<String>,
    r#type: u32,
}

#[forever::fiber]
async fn generic<T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static>(labelled: Labelled<T>) -> anyhow::Result<(T, usize)> {
    let value = labelled.value;
    forever::step!("x", ());
    Ok((value, labelled.labels.len() + labelled.r#type as usize))
}

#[tokio::test(start_paused = true)]
async fn a_field_of_a_generic_type_is_moved() {
    let forever = forever::Forever::builder().in_memory().fiber::<generic<u32>>().open().await.unwrap();
    let labelled = Labelled { value: 7u32, labels: vec!["a".into()], r#type: 3 };
    assert_eq!(forever.spawn(generic(labelled)).await.unwrap().wait().await.unwrap(), (7, 4));
}

twin! {
    async fn by_a_pattern(io, n: u32) -> anyhow::Result<String> {
        let plan = a_plan(n);
        let Plan { title, meta: Meta { author, .. }, .. } = plan;
        step!("one", io.did(format!("{title} {author}"), ()).await?);
        let pair = plan.pair;
        let (left, _, _) = pair;
        step!("two", io.did(left, ()).await?);
        Ok(format!("{:?} {} {:?}", plan.questions, plan.meta.pages, pair.1))
    }
}

#[test]
fn the_fields_that_a_pattern_leaves_are_used_after_a_step() {
    let seen = same(|| by_a_pattern(3));
    assert_eq!(seen.log, ["plan 3 ada", "left"]);
}
