//! Values whose text can be read as another form of theirs.
use super::{stopped, stopped_after_a_message, stopped_side_by_side, versions};

#[tokio::test(start_paused = true)]
async fn a_caught_value_is_not_taken_for_the_value() {
    versions! {
        old(io, n: u32) -> u64 {
            let v = step!("ask", catch, io.did("ask", serde_json::json!({"n": n})).await?);
            step!("last", io.did("last", ()).await?);
            Ok(v?["n"].as_u64().unwrap_or(99))
        }
        new(io, n: u32) -> u64 {
            let v = step!("ask", io.did("ask", serde_json::json!({"n": n})).await?);
            step!("last", io.did("last", ()).await?);
            Ok(v["n"].as_u64().unwrap_or(99))
        }
    }
    let fiber = stopped(old::work(3), "last").await;
    fiber
        .parks::<new::work>("`v` was kept as the `Result` of `ask`, and is its plain value now: change it in the snapshot with `migrate`")
        .await;
    fiber.resumes::<old::work>(3, &["last"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_has_passed_is_not_taken_for_a_message() {
    versions! {
        old(io, n: u32) -> bool {
            let v: Option<serde_json::Value> = recv!("m", timeout = std::time::Duration::ZERO);
            step!("last", io.did("last", ()).await?);
            Ok(v.is_none())
        }
        new(io, n: u32) -> bool {
            let v: serde_json::Value = recv!("m");
            step!("last", io.did("last", ()).await?);
            Ok(v.is_null())
        }
    }
    let fiber = stopped(old::work(3), "last").await;
    fiber
        .parks::<new::work>("`v` was kept as the `Option` of `v`, and is its plain value now: change it in the snapshot with `migrate`")
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_value_with_the_form_of_a_result_is_not_taken_for_one() {
    versions! {
        old(io, n: u32) -> u64 {
            let v = step!("ask", io.did("ask", serde_json::json!({"Ok": {"n": n}})).await?);
            step!("last", io.did("last", ()).await?);
            Ok(v["Ok"]["n"].as_u64().unwrap_or(99))
        }
        new(io, n: u32) -> u64 {
            let v = step!("ask", catch, io.did("ask", serde_json::json!({"Ok": {"n": n}})).await?);
            step!("last", io.did("last", ()).await?);
            Ok(v?["Ok"]["n"].as_u64().unwrap_or(99))
        }
    }
    let fiber = stopped(old::work(3), "last").await;
    fiber
        .parks::<new::work>("`v` was kept as the plain value of `ask`, and is its `Result` now: change it in the snapshot with `migrate`")
        .await;
    fiber.resumes::<old::work>(3, &["last"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_empty_message_is_not_taken_for_a_limit_that_has_passed() {
    versions! {
        sent(io, n: u32) -> bool {
            let message: serde_json::Value = recv!("m");
            step!("last", io.did("last", ()).await?);
            Ok(message.is_null())
        }
        limited(io, n: u32) -> bool {
            let message: Option<serde_json::Value> = recv!("m", timeout = std::time::Duration::from_secs(60));
            step!("last", io.did("last", ()).await?);
            Ok(message.is_none())
        }
    }
    let fiber = stopped_after_a_message(sent::work(3), &serde_json::Value::Null, "last").await;
    fiber
        .parks::<limited::work>(
            "`message` was kept as the plain value of `message`, and is its `Option` now: change it in the snapshot with `migrate`",
        )
        .await;
    // What is there is written as the value alone.
    let fiber = stopped_after_a_message(sent::work(3), &serde_json::json!(7), "last").await;
    fiber.resumes::<limited::work>(false, &["last"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_branch_is_not_taken_for_a_caught_one() {
    versions! {
        old(io, n: u32) -> (u64, u32) {
            let (one, two) = steps!(
                "both",
                step!("one", io.did("one", serde_json::json!({"Ok": n})).await?),
                step!("two", io.did("two", n * 10).await?),
            );
            step!("last", io.did("last", ()).await?);
            Ok((one["Ok"].as_u64().unwrap_or(99), two))
        }
        caught(io, n: u32) -> (u64, u32) {
            let (one, two) = steps!(
                "both",
                step!("one", catch, io.did("one", serde_json::json!({"Ok": n})).await?),
                step!("two", io.did("two", n * 10).await?),
            );
            step!("last", io.did("last", ()).await?);
            Ok((one?["Ok"].as_u64().unwrap_or(99), two))
        }
    }
    let fiber = stopped_side_by_side(old::work(3), "two", 1).await;
    fiber.parks_naming::<caught::work>("`catch` was added to or taken from `one` of `both`, which may have a result stored").await;
    fiber.resumes::<old::work>((3, 30), &["two", "last"]).await;
    // The other one has its result, and the caught one has none.
    let fiber = stopped_side_by_side(old::work(3), "one", 1).await;
    fiber.resumes::<caught::work>((3, 30), &["one", "last"]).await;
    let fiber = stopped(old::work(3), "last").await;
    fiber.parks_naming::<caught::work>("`one` was kept as the plain value of `both`, and is its `Result` now").await;
    let fiber = stopped_side_by_side(caught::work(3), "two", 1).await;
    fiber.parks_naming::<old::work>("`catch` was added to or taken from `one` of `both`, which may have a result stored").await;
}

#[tokio::test(start_paused = true)]
async fn an_item_is_not_taken_for_a_caught_one() {
    versions! {
        old(io, n: u32) -> u64 {
            let all = steps!("all", for word in ["a", "b"], io.did(word, serde_json::json!({"Ok": n})).await?);
            step!("last", io.did("last", ()).await?);
            Ok(all.iter().filter_map(|one| one["Ok"].as_u64()).sum())
        }
        caught(io, n: u32) -> u64 {
            let all = steps!("all", for word in ["a", "b"], catch, io.did(word, serde_json::json!({"Ok": n})).await?);
            step!("last", io.did("last", ()).await?);
            Ok(all.into_iter().filter_map(|one| one.ok()?["Ok"].as_u64()).sum())
        }
    }
    let fiber = stopped_side_by_side(old::work(3), "b", 1).await;
    fiber.parks_naming::<caught::work>("`catch` was added to or taken from `all` of `all`, which may have a result stored").await;
    fiber.resumes::<old::work>(6, &["b", "last"]).await;
    let fiber = stopped(old::work(3), "last").await;
    fiber.parks_naming::<caught::work>("`all` was kept as the plain value of `all`, and is its `Vec<Result>` now").await;
}

#[tokio::test(start_paused = true)]
async fn an_integer_is_not_rounded_by_a_float() {
    versions! {
        old(io, n: u32) -> String {
            let v = step!("v", io.did("v", 9_007_199_254_740_993_i64).await?);
            step!("last", io.did("last", ()).await?);
            Ok(v.to_string())
        }
        new(io, n: u32) -> String {
            let v = step!("v", io.did("v", 1.0).await?);
            step!("last", io.did("last", ()).await?);
            Ok(v.to_string())
        }
    }
    let fiber = stopped(old::work(3), "last").await;
    fiber
        .parks_saying::<new::work>("local `v` saved at step `v` cannot be read as `f64`: the integer 9007199254740993 would be rounded")
        .await;
}
