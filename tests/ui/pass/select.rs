#![deny(warnings)]
use std::time::{Duration, SystemTime};

use forever::prelude::*;

#[fiber]
async fn child(n: u32) -> anyhow::Result<u32> {
    Ok(n)
}

#[fiber]
async fn first<T: serde::Serialize + serde::de::DeserializeOwned + Send + Sync + 'static>(due: SystemTime, kept: T) -> anyhow::Result<Option<T>> {
    let one = spawn!("one", child(1));
    let mut rounds = 0_u32;
    let found = loop {
        rounds += 1;
        select! {
            "first of all", was = "found",
            given: T = recv!("given") => break Some(given),
            (topic, n): (String, u32) = recv!(["more", "less"]) => {
                if topic == "less" {
                    continue;
                }
                rounds += step!("count", n);
            }
            value = wait!(&one)? => rounds += value,
            ended = wait!(one.clone()) => match ended {
                Ok(_) => {}
                Err(error) => return Err(error.into()),
            },
            late: Option<bool> = recv!(format!("late-{rounds}"), timeout = Duration::from_secs(9)) => if late.is_none() { break None },
            _ = sleep!(Duration::from_secs(60)) => break None,
            () = sleep_until!(due) => {}
        }
    };
    select! { done = wait!(one) => drop(done) }
    Ok(if rounds > 3 { found } else { Some(kept) })
}

#[fiber]
async fn named(handle: FiberHandle<u32>) -> anyhow::Result<u32> {
    sleep!("rest", Duration::from_secs(1), was = "sleep");
    sleep_until!("until then", SystemTime::UNIX_EPOCH);
    #[was = "answer"]
    let verdict: u32 = recv!("answer", name = "the verdict", was = "answer");
    let a = wait!("the first", &handle, was = "a")?;
    let all = wait_all!("all of them", [&handle]);
    let (b, c) = steps!("side", a + 1, a + 2);
    let inline = call!("inline", child(a))?;
    Ok(verdict + a + b + c + inline + all.len() as u32)
}

pub(crate) fn main() {
    let _ = (first(SystemTime::now(), 5_u32), named);
}
