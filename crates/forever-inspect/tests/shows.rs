//! What the views are made of: sources with places, values, lists page by page, commands.
use forever::Forever;
use forever::fiber::{FiberState, History};
use forever_inspect::Inspector;
use forever_macros::fiber;
use forever_testkit::waiting::eventually;
use serde_json::Value;

use crate::client::{get, post};
use crate::{in_state, serve};

#[fiber(crate = forever_runtime)]
async fn sums(numbers: Vec<u32>) -> Result<u32, forever::Error> {
    let mut sum = 0;
    // A comment of the source.
    for number in numbers {
        let doubled = step!("double", number * 2);
        let more: u32 = recv!("more");
        sum += doubled + more;
    }
    let text = call!(named(sum))?;
    Ok(u32::try_from(text.len()).unwrap_or(0))
}

#[fiber(crate = forever_runtime)]
async fn named(n: u32) -> Result<String, forever::Error> {
    let name: String = recv!("name");
    Ok(format!("{n} {name}"))
}

#[fiber(crate = forever_runtime, source = false)]
async fn quiet(n: u32) -> Result<u32, forever::Error> {
    let m: u32 = recv!("go");
    Ok(n + m)
}

#[fiber(crate = forever_runtime)]
async fn sends(ctx: &FiberContext, until: u32) -> Result<u32, forever::Error> {
    for n in 0..until {
        step!("send", ctx.stream("sent").send(&n)?);
    }
    ctx.set_progress(&serde_json::json!({ "sent": until }))?;
    let m: u32 = recv!("go");
    Ok(m)
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_have_their_newest_items_and_the_progress_is_shown() {
    let forever = Forever::builder().in_memory().fiber::<sends>().open().await.unwrap();
    let at = serve(Inspector::new(&forever)).await;
    let fiber = forever.spawn(sends(30)).await.unwrap();
    in_state(&forever, fiber.id(), FiberState::Waiting).await;
    let shown = get(at, &format!("/api/fibers/{}", fiber.id())).await.json();
    assert_eq!(shown["fiber"]["status"]["progress"], serde_json::json!({ "sent": 30 }));
    let stream = named_in(&shown["fiber"]["streams"], "sent");
    assert_eq!(stream["items"], 30);
    let newest: Vec<_> = stream["newest"].as_array().unwrap().iter().map(|item| item["value"].clone()).collect();
    assert_eq!(newest, (10..30).map(Value::from).collect::<Vec<_>>(), "each was stored by itself");
    forever.close().await.unwrap();
}

fn named_in<'a>(list: &'a Value, name: &str) -> &'a Value {
    list.as_array().unwrap().iter().find(|item| item["name"] == name).unwrap_or_else(|| panic!("{name} is not in {list}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fiber_has_its_source_with_places_and_values() {
    let forever = Forever::builder().in_memory().history(History::last(100)).fiber::<sums>().fiber::<quiet>().open().await.unwrap();
    let at = serve(Inspector::new(&forever)).await;
    let fiber = forever.spawn(sums(vec![3, 4])).await.unwrap();
    in_state(&forever, fiber.id(), FiberState::Waiting).await;
    let shown = get(at, &format!("/api/fibers/{}", fiber.id())).await.json();
    let function = named_in(&shown["functions"], "sums");
    let text = function["source"]["text"].as_str().unwrap();
    assert!(text.starts_with("async fn sums(numbers: Vec<u32>)") && text.ends_with('}'), "{text}");
    // As it stands in the file, comments and all.
    let file = include_str!("shows.rs");
    assert!(file.contains(text), "{text}");
    let first = file.split(text).next().unwrap().lines().count() as u64 + 1;
    assert_eq!(function["source"]["line"], first);
    assert_eq!(function["source"]["file"].as_str().unwrap().rsplit('/').next(), Some("shows.rs"));
    let line = |n: &Value| text.lines().nth(usize::try_from(n.as_u64().unwrap()).unwrap()).unwrap().trim();
    let cut = |name: &str| named_in(&function["cuts"], name);
    assert_eq!(line(&cut("double")["line"]), r#"let doubled = step!("double", number * 2);"#);
    assert_eq!((line(&cut("more")["line"]), cut("more")["kind"].as_str()), (r#"let more: u32 = recv!("more");"#, Some("recv")));
    let local = |name: &str| line(&function["source"]["locals"][name]);
    assert_eq!((local("sum"), local("doubled")), ("let mut sum = 0;", r#"let doubled = step!("double", number * 2);"#));

    let frame = &shown["fiber"]["frames"][0];
    assert_eq!((&frame["at"], &frame["is_current"]), (&"more pending".into(), &true.into()));
    assert_eq!((&named_in(&frame["locals"], "doubled")["value"], &named_in(&frame["locals"], "sum")["value"]), (&6.into(), &0.into()));
    let left = named_in(&frame["locals"], "numbers left");
    assert_eq!((&left["role"], &left["value"]), (&"items".into(), &serde_json::json!({ "rest": [4] })));
    assert_eq!(shown["fiber"]["status"]["wait"]["topics"][0], "more");
    assert_eq!(shown["positions"][0]["fibers"], 1);

    for _ in 0..2 {
        in_state(&forever, fiber.id(), FiberState::Waiting).await;
        forever.send(fiber.id(), "more", &1).await.unwrap();
    }
    let wait = async || forever.status(fiber.id()).await.unwrap().wait;
    eventually("the wait for a name", async || wait().await.is_some_and(|wait| wait.topics == ["name"])).await;
    let shown = get(at, &format!("/api/fibers/{}", fiber.id())).await.json();
    let frames = shown["fiber"]["frames"].as_array().unwrap();
    assert_eq!(frames.iter().map(|frame| frame["function"].as_str().unwrap()).collect::<Vec<_>>(), ["sums", "named"]);
    assert_eq!(named_in(&frames[1]["locals"], "n")["value"], 16);
    assert!(named_in(&shown["functions"], "named")["source"]["text"].as_str().unwrap().contains("recv!(\"name\")"));

    let passed: Vec<&str> = shown["history"].as_array().unwrap().iter().map(|entry| entry["at"].as_str().unwrap()).collect();
    assert_eq!(passed.iter().filter(|at| **at == "double").count(), 2, "{passed:?}");
    assert_eq!(shown["history"][0]["number"], 1);

    let quiet = get(at, "/api/functions/quiet").await.json();
    assert_eq!(quiet["function"]["source"]["text"], "");
    forever.close().await.unwrap();
}

/// Fails in its second step, or behind it.
#[fiber(crate = forever_runtime)]
async fn fails(code: u32, in_step: bool) -> Result<u32, forever::Error> {
    let doubled = step!("double", code * 2);
    let checked = step!("check", if in_step { refused(doubled)? } else { doubled });
    refused(checked)
}

fn refused(code: u32) -> Result<u32, forever::Error> {
    Err(forever::Error::new(forever::ErrorKind::Value, format!("code {code} is refused")))
}

/// Spawns children.
#[fiber(crate = forever_runtime)]
async fn spawns(children: u32) -> Result<usize, forever::Error> {
    let mut all = Vec::new();
    for n in 0..children {
        let child = spawn!(quiet(n));
        all.push(child);
    }
    let done = wait_all!(all);
    Ok(done.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_fiber_has_the_step_that_failed_if_there_was_one() {
    let forever = Forever::builder().in_memory().fiber::<fails>().open().await.unwrap();
    let at = serve(Inspector::new(&forever).allow_actions()).await;
    let failed_in = async |id: &str| get(at, &format!("/api/fibers/{id}")).await.json()["failed_in"].clone();
    let (in_step, behind) = (forever.spawn(fails(1, true)).await.unwrap(), forever.spawn(fails(2, false)).await.unwrap());
    in_state(&forever, in_step.id(), FiberState::Failed).await;
    in_state(&forever, behind.id(), FiberState::Failed).await;
    let step = serde_json::json!({ "function": "fails", "step": "check" });
    assert_eq!(failed_in(in_step.id()).await, step);
    assert_eq!(failed_in(behind.id()).await, Value::Null, "between two steps nothing is known");
    // It fails there again, with another end.
    let resumed = post(at, &format!("/api/fibers/{}/resume", in_step.id()), "").await;
    assert_eq!(resumed.status, 200, "{}", resumed.body);
    in_state(&forever, in_step.id(), FiberState::Failed).await;
    assert_eq!(failed_in(in_step.id()).await, step);
    forever.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_grouped_by_reason_with_its_times() {
    let forever = Forever::builder().in_memory().fiber::<fails>().fiber::<sums>().open().await.unwrap();
    let at = serve(Inspector::new(&forever)).await;
    for code in 1..4 {
        forever.spawn(fails(code, true)).key(format!("order-{code}")).await.unwrap().wait().await.unwrap_err();
    }
    let waiting = forever.spawn(sums(vec![1])).await.unwrap();
    for n in 0..12 {
        forever.send(waiting.id(), "name", &n.to_string()).await.unwrap();
    }
    in_state(&forever, waiting.id(), FiberState::Waiting).await;
    let overview = get(at, "/api/overview").await.json();
    let [group] = &overview["troubles"].as_array().unwrap()[..] else { panic!("{overview}") };
    assert_eq!((&group["kind"], &group["name"], &group["count"]), (&"failed".into(), &"fails".into(), &3.into()));
    assert_eq!((&group["at_least"], &group["reason"], &group["key"]), (&false.into(), &"code 6 is refused".into(), &"order-3".into()));
    let (first, last) = (group["first_ms"].as_u64().unwrap(), group["last_ms"].as_u64().unwrap());
    assert!(first <= last && last <= overview["now_ms"].as_u64().unwrap(), "{group}");
    let hours: Vec<u64> = group["hours"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
    assert_eq!((hours.len(), hours.iter().sum::<u64>()), (24, 3));
    let queue = &overview["queues"][0];
    assert_eq!((&queue["messages"], &queue["fiber"]["id"]), (&12.into(), &waiting.id().into()));
    let found = async |query: &str| get(at, &format!("/api/fibers?{query}")).await.json()["fibers"].as_array().unwrap().len();
    assert_eq!(found(&format!("name=fails&changed_from_ms={first}")).await, 3);
    assert_eq!(found(&format!("name=fails&changed_from_ms={}", last + 1)).await, 0);
    assert_eq!(found("retrying=true").await, 0);
    forever.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn children_have_their_arguments_and_are_bounded() {
    let forever = Forever::builder().in_memory().fiber::<spawns>().fiber::<quiet>().open().await.unwrap();
    let at = serve(Inspector::new(&forever)).await;
    let parent = forever.spawn(spawns(51)).await.unwrap();
    in_state(&forever, parent.id(), FiberState::Waiting).await;
    let children = get(at, &format!("/api/fibers/{}", parent.id())).await.json()["children"].clone();
    let shown = children["fibers"].as_array().unwrap();
    assert_eq!((shown.len(), &children["more"]), (50, &true.into()));
    assert_eq!((&shown[7]["name"], &shown[7]["arguments"][0]["name"]), (&"quiet".into(), &"n".into()));
    assert_eq!(shown[7]["arguments"][0]["value"], 7);
    forever.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_go_page_by_page_and_commands_reach_what_a_filter_lets_through() {
    let forever = Forever::builder().in_memory().fiber::<quiet>().open().await.unwrap();
    let at = serve(Inspector::new(&forever).allow_actions()).await;
    let mut last = String::new();
    for n in 0..25 {
        let metadata = serde_json::json!({ "half": n % 2, "note": format!("{} & {{a=b}}", n / 5) });
        last = forever.spawn(quiet(n)).key(format!("order-{n}")).metadata(&metadata).await.unwrap().id().to_owned();
    }
    in_state(&forever, &last, FiberState::Waiting).await;
    let (mut seen, mut page) = (Vec::new(), String::new());
    loop {
        let answer = get(at, &format!("/api/fibers?limit=10&metadata=half%3D1{page}")).await.json();
        seen.extend(answer["fibers"].as_array().unwrap().iter().map(|fiber| fiber["key"].as_str().unwrap().to_owned()));
        if answer["next"].is_null() {
            break;
        }
        page = format!("&after={}", answer["next"]);
    }
    let odd: Vec<String> = (0..25).rev().filter(|n| n % 2 == 1).map(|n| format!("order-{n}")).collect();
    assert_eq!(seen, odd);
    let found = get(at, "/api/fibers?metadata=%7B%22half%22%3A0%2C%22note%22%3A%221%20%26%20%7Ba%3Db%7D%22%7D").await.json();
    assert_eq!(found["fibers"].as_array().unwrap().iter().map(|fiber| &fiber["key"]).collect::<Vec<_>>(), ["order-8", "order-6"]);
    let found = get(at, "/api/fibers?text=ORDER-24").await.json();
    assert_eq!((found["fibers"].as_array().unwrap().len(), &found["fibers"][0]["key"]), (1, &"order-24".into()));
    assert_eq!(get(at, "/api/fibers?key=order-3").await.json()["fibers"][0]["metadata"]["half"], 1);

    let done = post(at, "/api/bulk", r#"{"action":"cancel","filter":{"state":"waiting","metadata":"half=1"},"reason":"odd"}"#).await.json();
    assert_eq!((&done["done"], &done["next"]), (&12.into(), &Value::Null));
    let overview = get(at, "/api/overview").await.json();
    let count = |state: &str| {
        overview["counts"].as_array().unwrap().iter().find(|count| count["state"] == state).map(|count| count["fibers"].clone())
    };
    assert_eq!((count("cancelled"), count("waiting")), (Some(12.into()), Some(13.into())));
    let refused = post(at, "/api/bulk", r#"{"action":"resume","filter":{"state":"cancelled","key":"order-1"}}"#).await.json();
    assert_eq!((&refused["done"], refused["refused"].as_array().unwrap().len()), (&0.into(), 1));
    let sent = post(at, &format!("/api/fibers/{last}/send"), r#"{"topic":"go","value":1}"#).await;
    assert_eq!(sent.status, 200, "{}", sent.body);
    in_state(&forever, &last, FiberState::Completed).await;
    forever.close().await.unwrap();
}
