//! Arms exchanged and added, branches written otherwise.
use serde::{Deserialize, Serialize};

use super::{stopped, versions};

#[derive(Debug, Clone, Serialize, Deserialize)]
enum Mode {
    Fast,
    Slow(u32),
}

#[tokio::test(start_paused = true)]
async fn arms_exchanged_resume_in_the_arm_of_the_step() {
    versions! {
        old(io, mode: Mode) -> u32 {
            let out = match mode {
                Mode::Slow(n) => { let a = step!("slow", io.did("slow", n).await?); a + n }
                Mode::Fast => step!("fast", io.did("fast", 1).await?),
            };
            let end = step!(io.did("end", out).await?);
            Ok(end)
        }
        new(io, mode: Mode) -> u32 {
            let out = match mode {
                Mode::Fast => step!("fast", io.did("fast", 1).await?),
                Mode::Slow(n) if n > 1000 => step!("slowest", io.did("slowest", n).await?),
                Mode::Slow(n) => { let a = step!("slow", io.did("slow", n).await?); a + n }
            };
            let end = step!(io.did("end", out).await?);
            Ok(end)
        }
    }
    stopped(old::work(Mode::Slow(3)), "end").await.resumes::<new::work>(6, &["end"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_if_turned_into_a_match_resumes_without_asking_again() {
    versions! {
        old(io, n: u32) -> u32 {
            let mut out = n;
            if n > 2 {
                step!("big", io.did("big", ()).await?);
                out += step!("add", io.did("add", n).await?);
            } else {
                out += step!("small", io.did("small", 1).await?);
            }
            Ok(out)
        }
        new(io, n: u32) -> u32 {
            let mut out = n;
            match n {
                0..100 => { out += step!("small", io.did("small", 1).await?); }
                _ => {
                    step!("big", io.did("big", ()).await?);
                    out += step!("add", io.did("add", n).await?);
                }
            }
            Ok(out)
        }
    }
    stopped(old::work(3), "add").await.resumes::<new::work>(6, &["add"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_match_on_a_borrow_resumes_in_its_arm_after_arms_are_exchanged() {
    versions! {
        old(io, mode: Mode) -> u32 {
            let out = match &mode {
                Mode::Slow(n) => { let a = step!("slow", io.did("slow", 5).await?); step!("more", io.did("more", a + n).await?) }
                Mode::Fast => step!("fast", io.did("fast", 1).await?),
            };
            Ok(out)
        }
        new(io, mode: Mode) -> u32 {
            let out = match &mode {
                Mode::Fast => step!("fast", io.did("fast", 1).await?),
                Mode::Slow(n) => { let a = step!("slow", io.did("slow", 5).await?); step!("more", io.did("more", a + n).await?) }
            };
            Ok(out)
        }
    }
    stopped(old::work(Mode::Slow(3)), "more").await.resumes::<new::work>(8, &["more"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_step_moved_to_an_arm_that_the_value_does_not_match_parks() {
    versions! {
        old(io, mode: Mode, other: Mode) -> u32 {
            let out = match &mode {
                Mode::Slow(n) => { let a = step!("slow", io.did("slow", 5).await?); step!("more", io.did("more", a + n).await?) }
                Mode::Fast => 0,
            };
            step!("end", io.did(format!("end {other:?}"), ()).await?);
            Ok(out)
        }
        new(io, mode: Mode, other: Mode) -> u32 {
            let out = match &other {
                Mode::Slow(n) => { let a = step!("slow", io.did("slow", 5).await?); step!("more", io.did("more", a + n).await?) }
                Mode::Fast => 0,
            };
            step!("end", io.did(format!("end {mode:?}"), ()).await?);
            Ok(out)
        }
    }
    let fiber = stopped(old::work(Mode::Slow(3), Mode::Fast), "more").await;
    fiber.parks_unseen::<new::work>("does not match").await;
    fiber.resumes::<old::work>(8, &["more", "end Fast"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_if_let_over_another_option_that_is_none_parks() {
    versions! {
        old(io, first: Option<u32>, second: Option<u32>) -> u32 {
            let mut out = 1;
            if let Some(n) = &first {
                step!("a", io.did("a", ()).await?);
                out += step!("b", io.did("b", *n).await?);
            }
            Ok(out + second.unwrap_or(100))
        }
        new(io, first: Option<u32>, second: Option<u32>) -> u32 {
            let mut out = 1;
            if let Some(n) = &second {
                step!("a", io.did("a", ()).await?);
                out += step!("b", io.did("b", *n).await?);
            }
            Ok(out + first.unwrap_or(100))
        }
    }
    let fiber = stopped(old::work(Some(3), None), "b").await;
    fiber.parks_unseen::<new::work>("does not match").await;
    fiber.resumes::<old::work>(104, &["b"]).await;
}
