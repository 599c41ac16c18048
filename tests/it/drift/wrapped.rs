//! Values whose text can be read as another form of theirs.
use super::{stopped, versions};

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
