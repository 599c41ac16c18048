//! Locals added, removed, renamed, shadowed and given other types.
use super::{stopped, versions};

#[tokio::test(start_paused = true)]
async fn a_local_that_is_needed_added_before_parks() {
    versions! {
        old(io, n: u32) -> u32 {
            let a = step!(io.did("a", n).await?);
            let b = step!(io.did("b", a).await?);
            Ok(a + b)
        }
        new(io, n: u32) -> u32 {
            let bonus = n * 10;
            let a = step!(io.did("a", n).await?);
            let b = step!(io.did("b", a).await?);
            Ok(a + b + bonus)
        }
        third(io, n: u32) -> u32 {
            let a = step!(io.did("a", n).await?);
            let bonus = a * 10;
            let b = step!(io.did("b", a).await?);
            Ok(a + b + bonus)
        }
    }
    let fiber = stopped(old::work(3), "b").await;
    fiber.parks::<new::work>("local `bonus` is needed after step `a` but was not kept: put it into the snapshot with `migrate`").await;
    fiber.resumes::<third::work>(36, &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_local_that_is_not_needed_later_added_before_resumes() {
    versions! {
        old(io, n: u32) -> u32 {
            let a = step!(io.did("a", n).await?);
            let b = step!(io.did("b", a).await?);
            Ok(a + b)
        }
        new(io, n: u32) -> u32 {
            let twice = n * 2;
            let a = step!(io.did("a", twice).await?);
            let b = step!(io.did("b", a).await?);
            Ok(a + b)
        }
    }
    stopped(old::work(3), "b").await.resumes::<new::work>(6, &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_local_made_after_the_step_but_before_it_in_the_new_code_parks() {
    versions! {
        old(io, n: u32) -> u32 {
            let a = step!(io.did("a", n).await?);
            let extra = n + 1;
            let b = step!(io.did("b", a).await?);
            Ok(a + b + extra)
        }
        new(io, n: u32) -> u32 {
            let extra = n + 1;
            let a = step!(io.did("a", n).await?);
            let b = step!(io.did("b", a).await?);
            Ok(a + b + extra)
        }
    }
    let fiber = stopped(old::work(3), "b").await;
    fiber.parks::<new::work>("local `extra` is needed after step `a` but was not kept: put it into the snapshot with `migrate`").await;
    fiber.resumes::<old::work>(10, &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_local_removed_resumes() {
    versions! {
        old(io, n: u32) -> u32 {
            let bonus = n * 10;
            let a = step!(io.did("a", n).await?);
            let b = step!(io.did("b", a).await?);
            Ok(a + b + bonus)
        }
        new(io, n: u32) -> u32 {
            let a = step!(io.did("a", n).await?);
            let b = step!(io.did("b", a).await?);
            Ok(a + b)
        }
    }
    stopped(old::work(3), "b").await.resumes::<new::work>(6, &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_local_renamed_parks() {
    versions! {
        old(io, n: u32) -> u32 {
            let bonus = n * 10;
            step!("a", io.did("a", ()).await?);
            let b = step!(io.did("b", n).await?);
            Ok(b + bonus)
        }
        new(io, n: u32) -> u32 {
            let extra = n * 10;
            step!("a", io.did("a", ()).await?);
            let b = step!(io.did("b", n).await?);
            Ok(b + extra)
        }
    }
    let fiber = stopped(old::work(3), "b").await;
    fiber.parks::<new::work>("local `extra` is needed after step `a` but was not kept: if it was `bonus`, write `#[was = \"bonus\"] let extra`; otherwise put it into the snapshot with `migrate`").await;
    fiber.resumes::<old::work>(33, &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_number_of_a_wider_type_resumes() {
    versions! {
        old(io, n: u32) -> u32 {
            let a: u32 = step!(io.did("a", n).await?);
            let b = step!(io.did("b", ()).await?);
            Ok(a)
        }
        new(io, n: u64) -> u64 {
            let a: u64 = step!(io.did("a", n).await?);
            let b = step!(io.did("b", ()).await?);
            Ok(a + 5_000_000_000)
        }
    }
    stopped(old::work(3), "b").await.resumes::<new::work>(5_000_000_003, &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_number_that_the_narrower_type_cannot_hold_parks() {
    versions! {
        old(io, n: i64) -> i64 {
            let a: i64 = step!(io.did("a", n).await?);
            let b = step!(io.did("b", ()).await?);
            Ok(a)
        }
        new(io, n: i64) -> u8 {
            let a: u8 = step!(io.did("a", 1).await?);
            let b = step!(io.did("b", ()).await?);
            Ok(a)
        }
    }
    for n in [-1, 256, i64::MAX] {
        let fiber = stopped(old::work(n), "b").await;
        fiber.parks_saying::<new::work>("local `a` saved at step `a` cannot be read as `u8`: ").await;
        fiber.resumes::<old::work>(n, &["b"]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_number_that_becomes_a_text_parks() {
    versions! {
        old(io, n: u32) -> u32 {
            let a = step!(io.did("a", n).await?);
            let b = step!(io.did("b", ()).await?);
            Ok(a)
        }
        new(io, n: u32) -> String {
            let a = step!(io.did("a", n.to_string()).await?);
            let b = step!(io.did("b", ()).await?);
            Ok(a)
        }
    }
    let fiber = stopped(old::work(3), "b").await;
    fiber.parks_saying::<new::work>("local `a` saved at step `a` cannot be read as `String`: ").await;
    fiber.resumes::<old::work>(3, &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_struct_with_another_field_resumes_if_it_has_a_default_and_else_parks() {
    versions! {
        old(io, n: u32) -> u32 {
            #[derive(serde::Serialize, serde::Deserialize)]
            struct Plan { n: u32 }
            let plan = step!(io.did("plan", Plan { n }).await?);
            let b = step!(io.did("b", ()).await?);
            Ok(plan.n)
        }
        defaulted(io, n: u32) -> u32 {
            #[derive(serde::Serialize, serde::Deserialize)]
            struct Plan { #[serde(default)] extra: u32, n: u32 }
            let plan = step!(io.did("plan", Plan { n, extra: 9 }).await?);
            let b = step!(io.did("b", ()).await?);
            Ok(plan.n * 10 + plan.extra)
        }
        required(io, n: u32) -> u32 {
            #[derive(serde::Serialize, serde::Deserialize)]
            struct Plan { extra: u32, n: u32 }
            let plan = step!(io.did("plan", Plan { n, extra: 9 }).await?);
            let b = step!(io.did("b", ()).await?);
            Ok(plan.n * 10 + plan.extra)
        }
    }
    let fiber = stopped(old::work(3), "b").await;
    fiber.parks_saying::<required::work>("local `plan` saved at step `plan` cannot be read as ").await;
    fiber.resumes::<defaulted::work>(30, &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_option_put_around_a_value_resumes_and_taken_away_parks_where_there_is_none() {
    versions! {
        plain(io, n: Option<u32>) -> u32 {
            let a = step!(io.did("a", n.unwrap_or(7)).await?);
            step!("b", io.did("b", ()).await?);
            Ok(a)
        }
        option(io, n: Option<u32>) -> u32 {
            let a = step!(io.did("a", n).await?);
            step!("b", io.did("b", ()).await?);
            Ok(a.unwrap_or(1))
        }
    }
    stopped(plain::work(Some(3)), "b").await.resumes::<option::work>(3, &["b"]).await;
    stopped(option::work(Some(3)), "b").await.resumes::<plain::work>(3, &["b"]).await;
    let fiber = stopped(option::work(None), "b").await;
    fiber.parks_saying::<plain::work>("local `a` saved at step `a` cannot be read as `u32`: ").await;
    fiber.resumes::<option::work>(1, &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_shadowing_local_that_is_kept_as_well_parks() {
    versions! {
        old(io, n: u32) -> u32 {
            let x = n;
            let a = step!(io.did("a", x).await?);
            let b = step!(io.did("b", a).await?);
            Ok(x + b)
        }
        new(io, n: u32) -> u32 {
            let x = n;
            let a = step!(io.did("a", x).await?);
            let x = x * 100;
            let b = step!(io.did("b", a).await?);
            Ok(x + b)
        }
    }
    let fiber = stopped(old::work(3), "b").await;
    let why = "`x` stands for 2 variables now and for 1 before: which one was kept cannot be told; give them names of their own";
    fiber.parks::<new::work>(why).await;
    fiber.resumes::<old::work>(6, &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_shadowing_local_that_is_not_kept_itself_resumes() {
    versions! {
        old(io, n: u32) -> u32 {
            let x = n;
            let a = step!(io.did("a", x).await?);
            let b = step!(io.did("b", a).await?);
            Ok(x + b)
        }
        new(io, n: u32) -> u32 {
            let x = n;
            let a = step!(io.did("a", x).await?);
            let b = { let x = a + 100; step!(io.did("b", x).await?) };
            Ok(x + b)
        }
    }
    stopped(old::work(3), "b").await.resumes::<new::work>(106, &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_local_made_fresh_resumes_and_one_no_longer_fresh_parks() {
    versions! {
        kept(io, n: u32) -> u32 {
            let base = 100;
            let rate = base + n;
            let a = step!(io.did("a", n).await?);
            let b = step!(io.did("b", a).await?);
            Ok(rate + b)
        }
        fresh(io, n: u32) -> u32 {
            #[fresh]
            let rate = 5;
            let a = step!(io.did("a", n).await?);
            let b = step!(io.did("b", a).await?);
            Ok(rate + b)
        }
    }
    stopped(kept::work(3), "b").await.resumes::<fresh::work>(8, &["b"]).await;
    let fiber = stopped(fresh::work(3), "b").await;
    fiber.parks::<kept::work>("local `rate` is needed after step `a` but was not kept: put it into the snapshot with `migrate`").await;
    fiber.resumes::<fresh::work>(8, &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_borrow_made_a_value_parks_and_a_value_made_a_borrow_resumes() {
    versions! {
        borrowed(io, names: Vec<String>) -> String {
            let first = &names[0];
            step!("a", io.did("a", ()).await?);
            step!("b", io.did("b", ()).await?);
            Ok(format!("{first} of {}", names.len()))
        }
        owned(io, names: Vec<String>) -> String {
            let first = names[0].clone();
            step!("a", io.did("a", ()).await?);
            step!("b", io.did("b", ()).await?);
            Ok(format!("{first} of {}", names.len()))
        }
    }
    let names = || vec!["ada".to_owned(), "bob".to_owned()];
    let fiber = stopped(borrowed::work(names()), "b").await;
    fiber.parks::<owned::work>("local `first` is needed after step `a` but was not kept: put it into the snapshot with `migrate`").await;
    fiber.resumes::<borrowed::work>("ada of 2".into(), &["b"]).await;
    stopped(owned::work(names()), "b").await.resumes::<borrowed::work>("ada of 2".into(), &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn operands_exchanged_are_not_mixed_up() {
    versions! {
        old(io, n: u32) -> u32 {
            Ok(step!("one", io.did("one", n * 100).await?) - step!("two", io.did("two", n).await?))
        }
        new(io, n: u32) -> u32 {
            Ok(step!("two", io.did("two", n).await?) + step!("one", io.did("one", n * 100).await?))
        }
    }
    let fiber = stopped(old::work(3), "two").await;
    fiber.parks::<new::work>("local `two()` is needed after step `one` but was not kept: put it into the snapshot with `migrate`").await;
    fiber.resumes::<old::work>(297, &["two"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_pair_made_a_struct_with_its_fields_the_other_way_round_parks() {
    versions! {
        old(io, n: u32) -> u32 {
            let size = step!(io.did("size", (n, n * 100)).await?);
            step!("b", io.did("b", ()).await?);
            Ok(size.0)
        }
        new(io, n: u32) -> u32 {
            #[derive(serde::Serialize, serde::Deserialize)]
            struct Size { height: u32, width: u32 }
            let size = step!(io.did("size", Size { width: n, height: n * 100 }).await?);
            step!("b", io.did("b", ()).await?);
            Ok(size.width)
        }
    }
    let fiber = stopped(old::work(3), "b").await;
    fiber.parks_saying::<new::work>("local `size` saved at step `size` cannot be read as ").await;
    fiber.resumes::<old::work>(3, &["b"]).await;
}
