//! Waits renamed, and changed into others.
use super::stopped::Waiting;
use super::{stopped, versions};

#[forever::fiber]
pub(super) async fn child(n: u32) -> anyhow::Result<u32> {
    Ok(n)
}

#[tokio::test(start_paused = true)]
async fn a_recv_renamed_with_was_goes_on_waiting() {
    versions! {
        old(io, n: u32) -> u32 {
            let answer: u32 = recv!("answer");
            step!("b", io.did("b", ()).await?);
            Ok(answer + n)
        }
        new(io, n: u32) -> u32 {
            let verdict: u32 = recv!("answer");
            step!("b", io.did("b", ()).await?);
            Ok(verdict + n)
        }
        third(io, n: u32) -> u32 {
            let verdict: u32 = recv!("answer", name = "the verdict", was = "answer");
            step!("b", io.did("b", ()).await?);
            Ok(verdict + n)
        }
    }
    let fiber = Waiting::at_its_first_wait(old::work(3)).await;
    fiber
        .parks::<new::work>(("answer", 4), "`answer`, where it waits, is gone: if it is `verdict` now, write `was = \"answer\"` there")
        .await;
    fiber.resumes::<third::work>(&[("answer", 4)], 7).await;
}

#[tokio::test(start_paused = true)]
async fn a_recv_with_a_timeout_and_computed_topics_renamed_with_was_keeps_both() {
    versions! {
        old(io, n: u32) -> Option<u32> {
            let answer: Option<u32> = recv!(format!("answer-{n}"), timeout = std::time::Duration::from_secs(3600));
            Ok(answer)
        }
        new(io, n: u32) -> Option<u32> {
            let verdict: Option<u32> = recv!(format!("other-{n}"), timeout = std::time::Duration::ZERO, name = "verdict", was = "answer");
            Ok(verdict)
        }
        unnamed(io, n: u32) -> Option<u32> {
            let verdict: Option<u32> = recv!(format!("answer-{n}"), timeout = std::time::Duration::ZERO);
            Ok(verdict)
        }
    }
    let fiber = Waiting::at_its_first_wait(old::work(3)).await;
    fiber
        .parks::<unnamed::work>(
            ("answer-3", 4),
            "`answer`, where it waits, is gone: if it is `verdict` now, write `was = \"answer\"` there",
        )
        .await;
    fiber.resumes::<new::work>(&[("answer-3", 4)], Some(4)).await;
}

#[tokio::test(start_paused = true)]
async fn the_second_of_two_waits_of_one_name_is_found_by_its_number() {
    versions! {
        old(io, n: u32) -> u32 {
            for _ in 0..n { sleep!(std::time::Duration::ZERO); }
            sleep!(std::time::Duration::from_secs(3600));
            let first: u32 = recv!("first");
            Ok(first)
        }
        new(io, n: u32) -> u32 {
            for _ in 0..n { sleep!(std::time::Duration::ZERO); }
            sleep!("cool down", std::time::Duration::from_secs(3600), was = "sleep#2");
            let first: u32 = recv!("first");
            Ok(first)
        }
        dropped(io, n: u32) -> u32 {
            sleep!("cool down", std::time::Duration::from_secs(3600), was = "sleep#2");
            let first: u32 = recv!("first");
            Ok(first)
        }
    }
    let fiber = Waiting::at_its_first_wait(old::work(1)).await;
    assert_eq!(forever::layout::of::<new::work>().can_resume(&forever::layout::of::<old::work>()), Ok(()));
    assert!(forever::layout::of::<dropped::work>().can_resume(&forever::layout::of::<old::work>()).is_err());
    fiber.time_is_over();
    fiber.resumes::<new::work>(&[("first", 9)], 9).await;
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_wait_and_call_takes_a_name_and_was() {
    versions! {
        old(io, n: u32) -> u32 {
            let handle = spawn!(child(n));
            let other = spawn!(child(n));
            let a = wait!(&handle)?;
            let all = wait_all!([&handle, &other]);
            let called = call!(child(n))?;
            let pair = steps!(n, n + 1);
            sleep!(std::time::Duration::ZERO);
            sleep_until!(std::time::SystemTime::UNIX_EPOCH);
            let m: u32 = select! { m: u32 = recv!("m") => m };
            let t: u32 = recv!("t");
            Ok(a + called + pair.0 + pair.1 + m + t + u32::try_from(all.len())?)
        }
        new(io, n: u32) -> u32 {
            #[was = "handle"]
            let first = spawn!("first child", child(n), was = "handle");
            #[was = "other"]
            let second = spawn!("second child", was = "other", child(n));
            #[was = "a"]
            let awaited = wait!("the first", &first, was = "a")?;
            #[was = "all"]
            let both = wait_all!("both", [&first, &second], was = "all");
            #[was = "called"]
            let inline = call!("inline", child(n), was = "called")?;
            #[was = "pair"]
            let side = steps!("side", was = "pair", n, n + 1);
            sleep!("rest", std::time::Duration::ZERO, was = "sleep");
            sleep_until!("until then", std::time::SystemTime::UNIX_EPOCH, was = "sleep#2");
            #[was = "m"]
            let message: u32 = select! { "decision", was = "m", m: u32 = recv!("m") => m };
            #[was = "t"]
            let last: u32 = recv!("t", was = "t", name = "last");
            Ok(awaited + inline + side.0 + side.1 + message + last + u32::try_from(both.len())?)
        }
    }
    let (old, new) = (forever::layout::of::<old::work>(), forever::layout::of::<new::work>());
    assert_eq!(new.can_resume(&old).map_err(|drift| drift.to_string()), Ok(()));
    let fiber = Waiting::at_its_first_wait(old::work(3)).await;
    fiber.resumes::<new::work>(&[("m", 10), ("t", 100)], 3 + 3 + 3 + 4 + 10 + 100 + 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_select_goes_on_waiting_for_what_it_began_to_wait_for() {
    versions! {
        old(io, n: u32) -> u32 {
            let number = select! {
                number: u32 = recv!("number") => number,
                _ = sleep!(std::time::Duration::from_secs(3600)) => step!("late", io.did("late", n).await?),
            };
            Ok(number)
        }
        new(io, n: u32) -> u32 {
            let number = select! {
                "which", was = "number",
                number: u32 = recv!("number") => number + 1,
                _ = sleep!(std::time::Duration::ZERO) => step!("late", io.did("late", n).await?),
            };
            Ok(number)
        }
        another(io, n: u32) -> u32 {
            let number: u32 = recv!("number");
            Ok(number)
        }
    }
    let fiber = Waiting::at_its_first_wait(old::work(3)).await;
    fiber.resumes::<new::work>(&[("number", 5)], 6).await;
    let layouts = (forever::layout::of::<another::work>(), forever::layout::of::<old::work>());
    assert!(
        layouts
            .0
            .can_resume(&layouts.1)
            .unwrap_err()
            .to_string()
            .contains("`number` is a recv now and was a select before: give the new one another name, or mend the snapshot with `migrate`")
    );
}

#[tokio::test(start_paused = true)]
async fn a_recv_on_another_topic_parks_and_on_both_goes_on_waiting() {
    versions! {
        old(io, n: u32) -> u32 {
            let answer: u32 = recv!("approval");
            Ok(answer + n)
        }
        new(io, n: u32) -> u32 {
            let answer: u32 = recv!("decision");
            Ok(answer + n)
        }
        both(io, n: u32) -> u32 {
            let (_, answer): (_, u32) = recv!(["decision", "approval"], name = "answer");
            Ok(answer + n)
        }
    }
    let fiber = Waiting::at_its_first_wait(old::work(3)).await;
    let why = "`answer` waits for a message on `approval`, and receives on `decision` now";
    fiber.parks_at_once::<new::work>(why).await;
    fiber.parks::<new::work>(("decision", 4), why).await;
    fiber.resumes::<both::work>(&[("approval", 4)], 7).await;
    fiber.resumes::<both::work>(&[("decision", 5)], 8).await;
}

#[tokio::test(start_paused = true)]
async fn a_fiber_that_waits_is_compared_when_the_file_is_opened() {
    versions! {
        old(io, n: u32) -> u32 {
            let answer: u32 = recv!("approval");
            Ok(answer + n)
        }
        other_wait(io, n: u32) -> u32 {
            let answer: u32 = step!(io.did("answer", n).await?);
            Ok(answer + n)
        }
        needs_more(io, n: u32, name: String) -> u32 {
            let answer: u32 = recv!("approval");
            step!(io.did(name, ()).await?);
            Ok(answer + n)
        }
        slept(io, n: u32) -> u32 {
            sleep!(std::time::Duration::from_secs(3600));
            Ok(n)
        }
        not_slept(io, n: u32) -> u32 {
            Ok(n)
        }
    }
    let fiber = Waiting::at_its_first_wait(old::work(3)).await;
    fiber.parks_at_once::<other_wait::work>("`answer`, where it waits, is gone").await;
    fiber.parks_at_once::<needs_more::work>("local `name` is needed after step `answer pending` but was not kept").await;
    fiber.resumes::<old::work>(&[("approval", 4)], 7).await;
    let fiber = Waiting::at_its_first_wait(slept::work(3)).await;
    fiber.parks_at_once::<not_slept::work>("step `sleep` is gone").await;
}

#[forever::fiber(name = "child")]
async fn child_that_gives_a_text(n: u32) -> anyhow::Result<String> {
    Ok(n.to_string())
}

#[tokio::test(start_paused = true)]
async fn a_childs_result_of_another_type_parks_its_parent() {
    versions! {
        old(io, n: u32) -> u32 {
            let spawned = spawn!(super::child(n));
            sleep!(std::time::Duration::from_secs(3600));
            Ok(wait!(&spawned)?)
        }
        new(io, n: u32) -> String {
            let spawned = spawn!(super::child_that_gives_a_text(n));
            sleep!(std::time::Duration::from_secs(3600));
            Ok(wait!(&spawned)?)
        }
    }
    let fiber = Waiting::at_its_first_wait(old::work(3)).await;
    fiber.time_is_over();
    fiber.parks_at_once::<new::work>("completed, but its result cannot be read as `String`").await;
    fiber.resumes::<old::work>(&[], 3).await;
}

#[tokio::test(start_paused = true)]
async fn two_sleeps_of_a_select_that_change_places_park() {
    versions! {
        old(io, n: u32) -> u32 {
            let r: u32 = select! {
                _ = sleep!(std::time::Duration::from_secs(3600)) => 1,
                _ = sleep!(std::time::Duration::from_secs(86400)) => 2,
            };
            Ok(r)
        }
        exchanged(io, n: u32) -> u32 {
            let r: u32 = select! {
                _ = sleep!(std::time::Duration::from_secs(86400)) => 2,
                _ = sleep!(std::time::Duration::from_secs(3600)) => 1,
            };
            Ok(r)
        }
        edited(io, n: u32) -> u32 {
            let r: u32 = select! {
                _ = sleep!(std::time::Duration::from_secs(3600)) => 3,
                _ = sleep!(std::time::Duration::from_secs(86400)) => 2,
            };
            Ok(r)
        }
    }
    let fiber = Waiting::at_its_first_wait(old::work(3)).await;
    fiber.parks_at_once::<exchanged::work>("`sleep` stands for other arms of `r` than before").await;
    fiber.time_is_over();
    fiber.resumes::<edited::work>(&[], 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_chosen_arm_is_not_taken_for_another_one() {
    versions! {
        old(io) -> u32 {
            let r: u32 = select! {
                _ = sleep!(std::time::Duration::ZERO) => step!("soon", io.did("soon", 1).await?),
                _ = sleep!(std::time::Duration::from_secs(86400)) => step!("late", io.did("late", 2).await?),
            };
            Ok(r)
        }
        exchanged(io) -> u32 {
            let r: u32 = select! {
                _ = sleep!(std::time::Duration::from_secs(86400)) => step!("late", io.did("late", 2).await?),
                _ = sleep!(std::time::Duration::ZERO) => step!("soon", io.did("soon", 1).await?),
            };
            Ok(r)
        }
        edited(io) -> u32 {
            let r: u32 = select! {
                _ = sleep!(std::time::Duration::ZERO) => step!("soon", io.did("soon", 3).await?),
                _ = sleep!(std::time::Duration::from_secs(86400)) => step!("late", io.did("late", 2).await?),
            };
            Ok(r)
        }
    }
    let fiber = stopped(old::work(), "soon").await;
    fiber.parks_naming::<exchanged::work>("`sleep` stands for other arms of `r` than before").await;
    fiber.resumes::<edited::work>(3, &["soon"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_function_that_is_gone_while_it_waits_parks_at_open_and_goes_on_where_it_is() {
    versions! {
        old(io, n: u32) -> u32 {
            let answer: u32 = recv!("answer");
            Ok(answer + n)
        }
        other[name = "renamed"](io, n: u32) -> u32 {
            let answer: u32 = recv!("answer");
            Ok(answer + n)
        }
        named[name = "work"](io, n: u32) -> u32 {
            let answer: u32 = recv!("answer");
            Ok(answer + n)
        }
    }
    let fiber = Waiting::at_its_first_wait(old::work(3)).await;
    fiber.parks_unknown::<old::work, other::work>(("answer", 4), 7).await;
    fiber.parks_unknown::<named::work, other::work>(("answer", 4), 7).await;
}
