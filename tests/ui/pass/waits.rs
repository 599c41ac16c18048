#![deny(warnings)]
use std::time::{Duration, SystemTime};

use forever::prelude::*;

#[fiber]
async fn child(n: u32) -> anyhow::Result<u32> {
    Ok(n)
}

#[fiber]
async fn timers(every: u64, due: SystemTime, fiber: String) -> anyhow::Result<String> {
    sleep!(Duration::from_secs(every));
    let () = sleep!(pause(every)?);
    for _ in 0..3 {
        if every > 1 && sleep!(Duration::from_secs(1)) == () {
            sleep_until!(due);
        }
    }
    match sleep_until!(due + Duration::from_secs(1)) {
        () => {}
    }
    let wanted = fiber.clone();
    sleep!(Duration::from_secs(every));
    Ok(format!("{fiber} {wanted}"))
}

fn pause(seconds: u64) -> anyhow::Result<Duration> {
    Ok(Duration::from_secs(seconds))
}

#[fiber]
async fn messages(topic: String, quick: bool) -> anyhow::Result<String> {
    let approved: bool = recv!("approval");
    let () = recv!("go");
    let mut all = vec![topic];
    while let Some(line) = recv!("line", timeout = Duration::from_secs(60)) {
        all.push(line);
    }
    if quick && recv!("sure") {
        all.push(if approved { recv!("words") } else { String::new() });
    }
    let Some(last): Option<String> = recv!("last", timeout = pause(all.len() as u64)?) else {
        return Ok(recv!("otherwise"));
    };
    let sum = two(recv!("first"), recv!("second"));
    Ok(format!("{all:?} {last} {sum}"))
}

fn two(a: u32, b: u8) -> u32 {
    a + u32::from(b)
}

#[fiber]
async fn family(n: u32) -> anyhow::Result<u32> {
    let eldest = spawn!(child(n));
    let mut handles = [spawn!(child(1)), spawn!(child(recv!("n")))].to_vec();
    for i in 0..n {
        handles.push(spawn!(child(i)));
    }
    let one = wait!(&eldest)?;
    let again = wait!(eldest);
    let known = match again {
        Ok(value) => value,
        Err(error) if error.is_failed() => return Err(error.into()),
        Err(_) => wait!(&handles[0])?,
    };
    let last = wait!(spawn!(child(n + wait!(&handles[1])?)))?;
    let all = wait_all!(&handles);
    let sum: u32 = wait_all!(handles).into_iter().flatten().sum();
    spawn!(child(sum));
    Ok(one + known + last + all.len() as u32)
}

pub(crate) fn main() {
    let _ = (timers(1, SystemTime::now(), String::new()), messages(String::new(), true), family(1));
}
