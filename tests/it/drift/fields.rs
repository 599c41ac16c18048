//! Fields of kept values added, taken away and renamed, and workers of before that go on in between.
use forever::Forever;
use forever::layout::OnRenamedField;
use serde::{Deserialize, Serialize};

use super::{World, stopped, versions};

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Before {
    n: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct After {
    n: u32,
    #[serde(default)]
    budget: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Renamed {
    n: u32,
    limit: Option<u32>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct WithAlias {
    n: u32,
    #[serde(alias = "budget")]
    limit: Option<u32>,
}

versions! {
    before(io, n: u32) -> u32 {
        let mut plan = Before { n };
        for round in 0..3 {
            step!("round", io.did(format!("round {round}"), ()).await?);
            plan.n += 1;
        }
        Ok(plan.n)
    }
    after(io, n: u32) -> u32 {
        let mut plan = After { n, budget: 700 };
        for round in 0..3 {
            step!("round", io.did(format!("round {round}"), ()).await?);
            plan.n += 1;
        }
        Ok(plan.n + plan.budget)
    }
    renamed(io, n: u32) -> u32 {
        let mut plan = Renamed { n, limit: Some(700) };
        for round in 0..3 {
            step!("round", io.did(format!("round {round}"), ()).await?);
            plan.n += 1;
        }
        Ok(plan.n + plan.limit.unwrap_or_default())
    }
    with_alias(io, n: u32) -> u32 {
        let mut plan = WithAlias { n, limit: Some(700) };
        for round in 0..3 {
            step!("round", io.did(format!("round {round}"), ()).await?);
            plan.n += 1;
        }
        Ok(plan.n + plan.limit.unwrap_or_default())
    }
}

#[tokio::test(start_paused = true)]
async fn a_field_that_a_worker_of_before_does_not_know_is_kept_for_the_next_one() {
    let fiber = stopped(after::work(1), "round 1").await;
    fiber.resumes_until::<before::work>("round 2", &["round 1"]).await;
    assert!(fiber.snapshot().contains(r#""plan":{"n":2,"budget":700}"#), "{}", fiber.snapshot());
    // Once more, by what the worker of before has written.
    fiber.resumes_until::<before::work>("round 2", &[]).await;
    fiber.resumes::<after::work>(704, &["round 2"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_field_that_was_added_has_its_default() {
    let fiber = stopped(before::work(1), "round 1").await;
    fiber.resumes::<after::work>(4, &["round 1", "round 2"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_field_that_was_taken_away_resumes() {
    let fiber = stopped(after::work(1), "round 1").await;
    fiber.resumes::<before::work>(4, &["round 1", "round 2"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_field_that_was_renamed_parks_until_it_is_read_under_both_names() {
    let fiber = stopped(after::work(1), "round 1").await;
    let builder = || Forever::builder().sqlite(fiber.path()).resource(World::without(None));
    let says = "local `plan` saved at step `round` may have a field that was renamed, and would lose its value: \"budget\" is stored and not \
                read, and \"limit\" is not stored; read it under both names with `#[serde(alias = \"..\")]`, or, if they are two fields, allow it \
                with `Builder::on_renamed_field(OnRenamedField::Warn)`";
    let found = builder().fiber::<renamed::work>().check().await.unwrap();
    assert_eq!(found.entries[0].verdict.to_string(), says);
    let found = builder().fiber::<renamed::work>().on_renamed_field(OnRenamedField::Warn).check().await.unwrap();
    assert!(found.is_ok(), "{found}");
    fiber.parks_saying::<renamed::work>(says).await;
    fiber.resumes::<with_alias::work>(704, &["round 1", "round 2"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_field_that_looks_renamed_takes_its_default_where_that_is_allowed_and_the_other_one_is_kept() {
    let fiber = stopped(after::work(1), "round 1").await;
    let world = World::without(Some("round 2"));
    let builder = Forever::builder().sqlite(fiber.path()).resource(world.clone()).fiber::<renamed::work>();
    let forever = builder.on_renamed_field(OnRenamedField::Warn).open().await.unwrap();
    world.reached().await;
    drop(forever);
    assert!(fiber.snapshot().contains(r#""plan":{"n":2,"limit":null,"budget":700}"#), "{}", fiber.snapshot());
    // By then both are stored, and it need not be allowed.
    fiber.resumes::<renamed::work>(4, &["round 2"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_field_of_an_argument_is_kept_from_the_start() {
    versions! {
        before(io, plan: Before) -> u32 {
            step!("a", io.did("a", ()).await?);
            step!("b", io.did("b", ()).await?);
            Ok(plan.n)
        }
        after(io, plan: After) -> u32 {
            step!("a", io.did("a", ()).await?);
            step!("b", io.did("b", ()).await?);
            Ok(plan.n + plan.budget)
        }
        renamed(io, plan: Renamed) -> u32 {
            step!("a", io.did("a", ()).await?);
            step!("b", io.did("b", ()).await?);
            Ok(plan.n + plan.limit.unwrap_or_default())
        }
    }
    let fiber = stopped(after::work(After { n: 1, budget: 700 }), "a").await;
    fiber.parks_naming::<renamed::work>("argument `plan` may have a field that was renamed").await;
    fiber.resumes_until::<before::work>("b", &["a"]).await;
    fiber.resumes::<after::work>(701, &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_field_goes_with_its_value_into_another_local() {
    versions! {
        before(io, start: Before) -> u32 {
            let mut plan = start;
            step!("a", io.did("a", ()).await?);
            let last;
            plan.n += 1;
            last = plan;
            step!("b", io.did("b", ()).await?);
            Ok(last.n)
        }
        after(io, start: After) -> u32 {
            let mut plan = start;
            step!("a", io.did("a", ()).await?);
            let last;
            plan.n += 1;
            last = plan;
            step!("b", io.did("b", ()).await?);
            Ok(last.n + last.budget)
        }
    }
    let fiber = stopped(after::work(After { n: 1, budget: 700 }), "a").await;
    fiber.resumes_until::<before::work>("b", &["a"]).await;
    fiber.resumes_until::<before::work>("b", &[]).await;
    fiber.resumes::<after::work>(702, &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_local_of_one_turn_had_is_not_given_to_that_of_the_next() {
    versions! {
        before(io) -> u32 {
            let mut sum = 0;
            for round in 0..3 {
                let plan = Before { n: round };
                step!("first", io.did(format!("first {round}"), ()).await?);
                step!("second", io.did(format!("second {round}"), ()).await?);
                sum += plan.n;
            }
            Ok(sum)
        }
        after(io) -> u32 {
            let mut sum = 0;
            for round in 0..3 {
                let plan = After { n: round, budget: 700 };
                step!("first", io.did(format!("first {round}"), ()).await?);
                step!("second", io.did(format!("second {round}"), ()).await?);
                sum += plan.n + plan.budget;
            }
            Ok(sum)
        }
    }
    let fiber = stopped(after::work(), "second 0").await;
    fiber.resumes_until::<before::work>("second 0", &[]).await;
    fiber.resumes_until::<before::work>("second 1", &["second 0", "first 1"]).await;
    assert!(fiber.snapshot().contains(r#""plan":{"n":1}"#), "{}", fiber.snapshot());
    // 0 and 1 by the code of before, 702 by its own.
    fiber.resumes::<after::work>(703, &["second 1", "first 2", "second 2"]).await;
}

#[tokio::test(start_paused = true)]
async fn what_the_value_of_a_step_had_is_not_given_to_its_next_one() {
    versions! {
        before(io) -> u32 {
            let mut plan = Before { n: 0 };
            while plan.n < 3 {
                plan = step!("next", Before { n: io.did(format!("next {}", plan.n), plan.n + 1).await? });
                step!("use", io.did(format!("use {}", plan.n), ()).await?);
            }
            Ok(plan.n)
        }
        after(io) -> u32 {
            let mut plan = After { n: 0, budget: 0 };
            while plan.n < 3 {
                plan = step!("next", After { n: io.did(format!("next {}", plan.n), plan.n + 1).await?, budget: 700 });
                step!("use", io.did(format!("use {}", plan.n), ()).await?);
            }
            Ok(plan.n + plan.budget)
        }
    }
    let fiber = stopped(after::work(), "use 1").await;
    fiber.resumes_until::<before::work>("next 1", &["use 1"]).await;
    assert!(fiber.snapshot().contains(r#""plan":{"n":1,"budget":700}"#), "{}", fiber.snapshot());
    fiber.resumes_until::<before::work>("use 2", &["next 1"]).await;
    assert!(fiber.snapshot().contains(r#"{"n":2}"#), "{}", fiber.snapshot());
    fiber.resumes_until::<before::work>("next 2", &["use 2"]).await;
    assert!(fiber.snapshot().contains(r#""plan":{"n":2}"#), "{}", fiber.snapshot());
}

#[forever::fiber]
async fn inner(io: forever::fiber::Res<World>, n: u32) -> anyhow::Result<u32> {
    let plan = Before { n };
    step!("inner", io.did(format!("inner {n}"), ()).await?);
    Ok(plan.n)
}

#[tokio::test(start_paused = true)]
async fn a_called_function_has_its_own() {
    versions! {
        before(io) -> u32 {
            let plan = Before { n: 0 };
            step!("a", io.did("a", ()).await?);
            let first = call!(inner(1))?;
            let second = call!(inner(2))?;
            Ok(plan.n + first + second)
        }
        after(io) -> u32 {
            let plan = After { n: 0, budget: 700 };
            step!("a", io.did("a", ()).await?);
            let first = call!(inner(1))?;
            let second = call!(inner(2))?;
            Ok(plan.n + plan.budget + first + second)
        }
    }
    let fiber = stopped(after::work(), "inner 1").await;
    fiber.resumes_until::<before::work>("inner 2", &["inner 1"]).await;
    fiber.resumes::<after::work>(703, &["inner 2"]).await;
}
