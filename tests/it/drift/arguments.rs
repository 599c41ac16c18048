//! Arguments added, removed, renamed and given other types, before the first step and after it; functions that are gone.
use super::{World, stopped, versions};

versions! {
    one(io, n: u32) -> u32 {
        let a = step!(io.did("a", 7).await?);
        let b = step!(io.did("b", a).await?);
        Ok(a + b + n)
    }
    added(io, n: u32, more: u32) -> u32 {
        let a = step!(io.did("a", 7).await?);
        let b = step!(io.did("b", a).await?);
        Ok(a + b + n + more)
    }
    added_for_the_first_step(io, n: u32, more: u32) -> u32 {
        let a = step!(io.did("a", more).await?);
        let b = step!(io.did("b", a).await?);
        Ok(a + b + n)
    }
    removed(io) -> u32 {
        let a = step!(io.did("a", 7).await?);
        let b = step!(io.did("b", a).await?);
        Ok(a + b)
    }
    renamed(io, number: u32) -> u32 {
        let a = step!(io.did("a", 7).await?);
        let b = step!(io.did("b", a).await?);
        Ok(a + b + number)
    }
    wider(io, n: u64) -> u64 {
        let a = step!(io.did("a", 7).await?);
        let b = step!(io.did("b", a).await?);
        Ok(a + b + n)
    }
    text(io, n: String) -> String {
        let a = step!(io.did("a", 7).await?);
        let b = step!(io.did("b", a).await?);
        Ok(format!("{a}{b}{n}"))
    }
    next[version = 2](io, n: u32) -> u32 {
        let a = step!(io.did("a", 70).await?);
        Ok(a + n)
    }
}

#[tokio::test(start_paused = true)]
async fn an_argument_added_parks() {
    let fiber = stopped(one::work(1), "a").await;
    fiber.parks_saying::<added::work>("argument `more` is not stored").await;
    fiber.resumes::<one::work>(15, &["a", "b"]).await;
    let fiber = stopped(one::work(1), "b").await;
    fiber.parks::<added::work>("local `more` is needed after step `a` but was not kept: put it into the snapshot with `migrate`").await;
    fiber.resumes::<one::work>(15, &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_argument_added_that_only_finished_steps_need_resumes() {
    stopped(one::work(1), "b").await.resumes::<added_for_the_first_step::work>(15, &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_argument_removed_resumes() {
    stopped(one::work(1), "a").await.resumes::<removed::work>(14, &["a", "b"]).await;
    stopped(one::work(1), "b").await.resumes::<removed::work>(14, &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_argument_renamed_parks() {
    let fiber = stopped(one::work(1), "a").await;
    fiber.parks_saying::<renamed::work>("argument `number` is not stored").await;
    fiber.resumes::<one::work>(15, &["a", "b"]).await;
    let fiber = stopped(one::work(1), "b").await;
    fiber.parks::<renamed::work>("local `number` is needed after step `a` but was not kept: put it into the snapshot with `migrate`").await;
    fiber.resumes::<one::work>(15, &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_argument_of_a_wider_type_resumes() {
    stopped(one::work(1), "a").await.resumes::<wider::work>(15, &["a", "b"]).await;
    stopped(one::work(1), "b").await.resumes::<wider::work>(15, &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn an_argument_of_another_type_parks() {
    let fiber = stopped(one::work(1), "a").await;
    fiber.parks_saying::<text::work>("argument `n` cannot be read as `String`: ").await;
    fiber.resumes::<one::work>(15, &["a", "b"]).await;
    let fiber = stopped(one::work(1), "b").await;
    fiber.parks_saying::<text::work>("local `n` saved at step `a` cannot be read as `String`: ").await;
    fiber.resumes::<one::work>(15, &["b"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_fiber_before_its_first_step_begins_under_whatever_code_there_is() {
    stopped(one::work(1), "a").await.resumes::<next::work>(71, &["a"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_function_that_is_not_registered_parks_its_fibers() {
    versions! {
        other[name = "other"](io) -> u32 {
            Ok(0)
        }
    }
    for at in ["a", "b"] {
        let fiber = stopped(one::work(1), at).await;
        fiber.parks_unknown::<one::work, other::work>().await;
        let left = if at == "a" { &["a", "b"][..] } else { &["b"] };
        fiber.resumes::<one::work>(15, left).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_function_of_another_name_resumes_under_its_stored_name() {
    #[forever::fiber]
    async fn labour(io: forever::fiber::Res<World>, n: u32) -> anyhow::Result<u32> {
        let a = step!(io.did("a", 7).await?);
        let b = step!(io.did("b", a).await?);
        Ok(a + b + n)
    }
    mod under_its_old_name {
        use super::World;
        #[forever::fiber(name = "work")]
        pub(super) async fn labour(io: forever::fiber::Res<World>, n: u32) -> anyhow::Result<u32> {
            let a = step!(io.did("a", 7).await?);
            let b = step!(io.did("b", a).await?);
            Ok(a + b + n)
        }
    }
    let fiber = stopped(one::work(1), "b").await;
    fiber.parks_unknown::<one::work, labour>().await;
    fiber.resumes::<under_its_old_name::labour>(15, &["b"]).await;
}

#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct Options {
    depth: u32,
    #[serde(default)]
    limit: u32,
}

#[derive(Clone, serde::Serialize, serde::Deserialize)]
struct OldOptions {
    depth: u32,
}

versions! {
    keyed(io, options: OldOptions) -> u32 {
        let a = step!(io.did("a", options.depth).await?);
        Ok(a)
    }
    keyed_with_more(io, options: Options, note: Option<String>) -> u32 {
        let a = step!(io.did("a", options.depth + options.limit).await?);
        step!(io.did(format!("{note:?}"), ()).await?);
        Ok(a)
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_survives_an_argument_and_a_field_that_are_added_with_defaults() {
    let folder = tempfile::tempdir().unwrap();
    let builder = || forever::Forever::builder().sqlite(folder.path().join("keys.db")).resource(crate::drift::World::without(None));
    let forever = builder().fiber::<keyed::work>().open().await.unwrap();
    assert_eq!(forever.spawn(keyed::work(OldOptions { depth: 3 })).key("order-1").await.unwrap().wait().await.unwrap(), 3);
    forever.close().await.unwrap();
    let forever = builder().fiber::<keyed_with_more::work>().open().await.unwrap();
    let spawn = |depth, limit, note: Option<&str>| {
        let call = keyed_with_more::work(Options { depth, limit }, note.map(str::to_owned));
        forever.spawn(call).key("order-1")
    };
    assert_eq!(spawn(3, 0, None).await.unwrap().wait().await.unwrap(), 3, "the one that has ended");
    for other in [spawn(4, 0, None), spawn(3, 1, None), spawn(3, 0, Some("new"))] {
        let error = other.await.unwrap_err();
        assert!(error.to_string().ends_with("key `order-1` belongs to a fiber `work` with other arguments"), "{error}");
    }
}
