//! Steps added, removed, renamed, moved and changed.
use super::{stopped, versions};

#[tokio::test(start_paused = true)]
async fn a_step_added_before_the_one_where_it_stands_is_not_run() {
    versions! {
        old(io, n: u32) -> u32 {
            let a = step!(io.did("a", n).await?);
            let b = step!(io.did("b", a + 1).await?);
            Ok(a + b)
        }
        new(io, n: u32) -> u32 {
            step!("check", io.did("check", ()).await?);
            let a = step!(io.did("a", n).await?);
            let b = step!(io.did("b", a + 1).await?);
            Ok(a + b)
        }
    }
    stopped(old::work(3), "b").await.resumes::<new::work>(7, &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_step_added_before_whose_value_is_needed_later_parks() {
    versions! {
        old(io, n: u32) -> u32 {
            let a = step!(io.did("a", n).await?);
            let b = step!(io.did("b", a + 1).await?);
            Ok(a + b)
        }
        new(io, n: u32) -> u32 {
            let rate = step!(io.did("rate", 10).await?);
            let a = step!(io.did("a", n).await?);
            let b = step!(io.did("b", a + 1).await?);
            Ok((a + b) * rate)
        }
    }
    let fiber = stopped(old::work(3), "b").await;
    fiber.parks::<new::work>("local `rate` is needed after step `a` but was not kept: put it into the snapshot with `migrate`").await;
    fiber.resumes::<old::work>(7, &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn steps_added_after_the_one_where_it_stands_are_run() {
    versions! {
        old(io, n: u32) -> u32 {
            let a = step!(io.did("a", n).await?);
            let b = step!(io.did("b", a + 1).await?);
            Ok(a + b)
        }
        new(io, n: u32) -> u32 {
            let a = step!(io.did("a", n).await?);
            let between = step!(io.did("between", a * 100).await?);
            let b = step!(io.did("b", a + 1).await?);
            let after = step!("after", io.did("after", b * 1000).await?);
            Ok(a + between + b + after)
        }
    }
    stopped(old::work(3), "b").await.resumes::<new::work>(3 + 300 + 4 + 4000, &["between", "b", "after"]).await;
}

#[tokio::test(start_paused = true)]
async fn the_step_where_it_stands_removed_parks() {
    versions! {
        old(io, n: u32) -> u32 {
            let a = step!(io.did("a", n).await?);
            step!("tell", io.did("tell", ()).await?);
            let b = step!(io.did("b", a + 1).await?);
            Ok(a + b)
        }
        new(io, n: u32) -> u32 {
            let a = step!(io.did("a", n).await?);
            let b = step!(io.did("b", a + 1).await?);
            Ok(a + b)
        }
        third(io, n: u32) -> u32 {
            let a = step!(io.did("a", n).await?);
            step!("note", io.did("note", ()).await?);
            step!("tell", io.did("tell", ()).await?);
            let c = step!(io.did("c", a + 2).await?);
            Ok(a + c)
        }
    }
    let fiber = stopped(old::work(3), "b").await;
    fiber.parks::<new::work>("step `tell` is gone: if it was renamed, write `was = \"tell\"` at the step that it is now").await;
    fiber.resumes::<third::work>(8, &["c"]).await;
}

#[tokio::test(start_paused = true)]
async fn another_step_removed_is_no_hindrance() {
    versions! {
        old(io, n: u32) -> u32 {
            step!("log", io.did("log", ()).await?);
            let a = step!(io.did("a", n).await?);
            let b = step!(io.did("b", a + 1).await?);
            step!("tell", io.did("tell", ()).await?);
            Ok(a + b)
        }
        new(io, n: u32) -> u32 {
            let a = step!(io.did("a", n).await?);
            let b = step!(io.did("b", a + 1).await?);
            Ok(a + b)
        }
    }
    stopped(old::work(3), "b").await.resumes::<new::work>(7, &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_renamed_step_parks_and_with_was_resumes() {
    versions! {
        old(io, n: u32) -> u32 {
            let hits = step!("search", io.did("search", n).await?);
            let b = step!(io.did("b", hits + 1).await?);
            Ok(hits + b)
        }
        new(io, n: u32) -> u32 {
            let hits = step!("find", io.did("find", n).await?);
            let b = step!(io.did("b", hits + 1).await?);
            Ok(hits + b)
        }
        third(io, n: u32) -> u32 {
            let hits = step!("find", was = "search", io.did("find", n).await?);
            let b = step!(io.did("b", hits + 1).await?);
            Ok(hits + b)
        }
    }
    let fiber = stopped(old::work(3), "b").await;
    fiber.parks::<new::work>("step `search` is gone: if it is `find` now, write `was = \"search\"` there").await;
    fiber.resumes::<third::work>(7, &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_derived_name_changed_by_renaming_its_let_parks() {
    versions! {
        old(io, n: u32) -> u32 {
            let hits = step!(io.did("hits", n).await?);
            let b = step!(io.did("b", hits + 1).await?);
            Ok(hits + b)
        }
        new(io, n: u32) -> u32 {
            let found = step!(io.did("found", n).await?);
            let b = step!(io.did("b", found + 1).await?);
            Ok(found + b)
        }
        with_was(io, n: u32) -> u32 {
            let found = step!("found", was = "hits", io.did("found", n).await?);
            let b = step!(io.did("b", found + 1).await?);
            Ok(found + b)
        }
    }
    let fiber = stopped(old::work(3), "b").await;
    fiber.parks::<new::work>("step `hits` is gone: if it is `found` now, write `was = \"hits\"` there; local `found` is needed after step `found` but was not kept: if it was `hits`, write `#[was = \"hits\"] let found`; otherwise put it into the snapshot with `migrate`").await;
    fiber.parks::<with_was::work>("local `found` is needed after step `found` but was not kept: if it was `hits`, write `#[was = \"hits\"] let found`; otherwise put it into the snapshot with `migrate`").await;
    fiber.resumes::<old::work>(7, &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_derived_name_that_stays_when_another_let_is_renamed_resumes() {
    versions! {
        old(io, n: u32) -> u32 {
            let a = step!(io.did("a", n).await?);
            let b = step!(io.did("b", a + 1).await?);
            Ok(a + b)
        }
        new(io, n: u32) -> u32 {
            let a = step!(io.did("a", n).await?);
            let bee = step!(io.did("bee", a + 1).await?);
            Ok(a + bee)
        }
    }
    stopped(old::work(3), "b").await.resumes::<new::work>(7, &["bee"]).await;
}

#[tokio::test(start_paused = true)]
async fn the_body_of_a_finished_step_changed_is_not_run() {
    versions! {
        old(io, n: u32) -> u32 {
            let a = step!(io.did("a", n).await?);
            let b = step!(io.did("b", a + 1).await?);
            Ok(a + b)
        }
        new(io, n: u32) -> u32 {
            let a = step!({ io.did("another a", ()).await?; n * 1000 });
            let b = step!(io.did("another b", a + 2).await?);
            Ok(a + b)
        }
    }
    stopped(old::work(3), "b").await.resumes::<new::work>(8, &["another b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_derived_step_of_the_same_name_added_before_parks() {
    versions! {
        old(io, n: u32) -> u32 {
            step!(io.did("first", ()).await?);
            let b = step!(io.did("b", n + 1).await?);
            Ok(b)
        }
        new(io, n: u32) -> u32 {
            step!(io.did("zeroth", ()).await?);
            step!(io.did("first", ()).await?);
            let b = step!(io.did("b", n + 1).await?);
            Ok(b)
        }
    }
    let fiber = stopped(old::work(3), "b").await;
    let why = "`did` stands for 2 steps now and for 1 before: which one was meant cannot be told; give the steps names of their own";
    fiber.parks::<new::work>(why).await;
    fiber.resumes::<old::work>(4, &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_derived_step_of_the_same_name_added_after_parks() {
    versions! {
        old(io, n: u32) -> u32 {
            step!(io.did("first", ()).await?);
            let b = step!(io.did("b", n + 1).await?);
            Ok(b)
        }
        new(io, n: u32) -> u32 {
            step!(io.did("first", ()).await?);
            let b = step!(io.did("b", n + 1).await?);
            step!(io.did("last", ()).await?);
            Ok(b)
        }
        third(io, n: u32) -> u32 {
            step!(io.did("first", ()).await?);
            let b = step!(io.did("b", n + 1).await?);
            step!("last", io.did("last", ()).await?);
            Ok(b)
        }
    }
    let fiber = stopped(old::work(3), "b").await;
    let why = "`did` stands for 2 steps now and for 1 before: which one was meant cannot be told; give the steps names of their own";
    fiber.parks::<new::work>(why).await;
    fiber.resumes::<third::work>(4, &["b", "last"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_derived_step_of_the_same_name_is_no_hindrance_to_one_with_a_literal_name() {
    versions! {
        old(io, n: u32) -> u32 {
            step!("did", io.did("first", ()).await?);
            let b = step!(io.did("b", n + 1).await?);
            Ok(b)
        }
        new(io, n: u32) -> u32 {
            step!(io.did("zeroth", ()).await?);
            step!("did", io.did("first", ()).await?);
            step!(io.did("second", ()).await?);
            let b = step!(io.did("b", n + 1).await?);
            Ok(b)
        }
    }
    stopped(old::work(3), "b").await.resumes::<new::work>(4, &["second", "b"]).await;
}

#[tokio::test(start_paused = true)]
async fn two_derived_steps_of_one_name_kept_in_order_resume() {
    versions! {
        old(io, n: u32) -> u32 {
            step!(io.did("first", ()).await?);
            step!(io.did("second", ()).await?);
            let b = step!(io.did("b", n + 1).await?);
            Ok(b)
        }
        new(io, n: u32) -> u32 {
            let zeroth = step!(io.did("zeroth", 0).await?);
            step!(io.did("first", zeroth).await?);
            if n > 0 { step!(io.did("second", ()).await?); }
            let b = step!(io.did("b", n + 2).await?);
            Ok(b)
        }
    }
    stopped(old::work(3), "b").await.resumes::<new::work>(5, &["b"]).await;
    stopped(old::work(3), "second").await.resumes::<new::work>(5, &["second", "b"]).await;
}

#[tokio::test(start_paused = true)]
async fn two_derived_steps_of_one_name_exchanged_park() {
    versions! {
        old(io, n: u32) -> u32 {
            step!(io.did("charge", ()).await?);
            step!(io.did("mail", ()).await?);
            Ok(n)
        }
        new(io, n: u32) -> u32 {
            step!(io.did("mail", ()).await?);
            step!(io.did("charge", ()).await?);
            Ok(n)
        }
    }
    let fiber = stopped(old::work(3), "mail").await;
    fiber.parks_saying::<new::work>("`work` cannot resume: `did`").await;
    fiber.resumes::<old::work>(3, &["mail"]).await;
}

#[tokio::test(start_paused = true)]
async fn one_of_two_derived_steps_of_one_name_removed_and_another_added_parks() {
    versions! {
        old(io, n: u32) -> u32 {
            step!(io.did("first", ()).await?);
            step!(io.did("second", ()).await?);
            let b = step!(io.did("b", n + 1).await?);
            Ok(b)
        }
        new(io, n: u32) -> u32 {
            step!(io.did("second", ()).await?);
            step!(io.did("third", ()).await?);
            let b = step!(io.did("b", n + 1).await?);
            Ok(b)
        }
    }
    let fiber = stopped(old::work(3), "second").await;
    fiber.parks_saying::<new::work>("`work` cannot resume: `did`").await;
    fiber.resumes::<old::work>(4, &["second", "b"]).await;
}

#[tokio::test(start_paused = true)]
async fn steps_exchanged_park_between_them_and_resume_behind_both() {
    versions! {
        old(io, n: u32) -> u32 {
            step!("a", io.did("a", ()).await?);
            step!("b", io.did("b", ()).await?);
            let c = step!(io.did("c", n).await?);
            step!("d", io.did("d", ()).await?);
            Ok(c)
        }
        new(io, n: u32) -> u32 {
            step!("b", io.did("b", ()).await?);
            step!("a", io.did("a", ()).await?);
            let c = step!(io.did("c", n).await?);
            step!("d", io.did("d", ()).await?);
            Ok(c)
        }
    }
    stopped(old::work(3), "b").await.parks_naming::<new::work>("`b` was after `a` and comes before it now").await;
    stopped(old::work(3), "c").await.parks_naming::<new::work>("`a` was before `b` and may come after it now").await;
    stopped(old::work(3), "d").await.resumes::<new::work>(3, &["d"]).await;
}

#[tokio::test(start_paused = true)]
async fn steps_exchanged_of_which_one_gives_what_is_needed_park() {
    versions! {
        old(io, n: u32) -> u32 {
            let a = step!(io.did("a", n).await?);
            let b = step!(io.did("b", n + 1).await?);
            Ok(a + b)
        }
        new(io, n: u32) -> u32 {
            let b = step!(io.did("b", n + 1).await?);
            let a = step!(io.did("a", n).await?);
            Ok(a + b)
        }
    }
    let fiber = stopped(old::work(3), "b").await;
    fiber.parks::<new::work>("local `b` is needed after step `a` but was not kept: put it into the snapshot with `migrate`").await;
    fiber.resumes::<old::work>(7, &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_step_moved_into_a_branch_where_its_value_has_another_name_parks() {
    versions! {
        old(io, n: u32) -> u32 {
            let a = step!("a", io.did("a", n).await?);
            let b = step!(io.did("b", a + 1).await?);
            Ok(b)
        }
        new(io, n: u32) -> u32 {
            let a = if n > 100 { step!("a", io.did("a", n).await?) } else { 0 };
            let b = step!(io.did("b", a + 1).await?);
            Ok(b)
        }
    }
    let fiber = stopped(old::work(3), "b").await;
    assert_eq!(fiber.snapshot(), r#"{"at":"a","locals":{"a":3},"call":null}"#);
    fiber.parks::<new::work>("local `a()` is needed after step `a` but was not kept: put it into the snapshot with `migrate`").await;
    fiber.resumes::<old::work>(4, &["b"]).await;
}
