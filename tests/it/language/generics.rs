//! The head of a fiber: generics, patterns, attributes, visibility, context and resources.
use std::collections::BTreeMap;
use std::fmt::{Debug, Display};

use forever::prelude::*;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::harness::{Io, everywhere, names, same_as_plain};

pub(crate) trait Stored: Serialize + DeserializeOwned + Send + 'static {}
impl<T: Serialize + DeserializeOwned + Send + 'static> Stored for T {}

#[fiber]
async fn largest<T: Stored + PartialOrd + Clone, const N: usize>(
    io: Res<Io>,
    items: Vec<T>,
    padding: [u8; 2],
) -> anyhow::Result<(Option<T>, usize)>
where
    T: Debug,
{
    let mut best: Option<T> = None;
    for item in items {
        let seen = step!(io.did(format!("{item:?}"), item).await?);
        if best.as_ref().is_none_or(|b| seen > *b) {
            best = Some(seen);
        }
        step!("round", io.did("round", ()).await?);
    }
    Ok((best, N + padding.len()))
}

async fn plain_largest<T: Stored + PartialOrd + Clone + Debug, const N: usize>(
    io: Io,
    items: Vec<T>,
    padding: [u8; 2],
) -> anyhow::Result<(Option<T>, usize)> {
    let mut best: Option<T> = None;
    for item in items {
        let seen = io.did(format!("{item:?}"), item).await?;
        if best.as_ref().is_none_or(|b| seen > *b) {
            best = Some(seen);
        }
        io.did("round", ()).await?;
    }
    Ok((best, N + padding.len()))
}

#[test]
fn a_fiber_is_generic_over_types_and_constants() {
    let numbers = || vec![3, 9, 4];
    let seen = same_as_plain(|| largest::<i64, 5>(numbers(), [0; 2]), |io| plain_largest::<i64, 5>(io, numbers(), [0; 2]));
    assert_eq!(seen.outcome, "Completed((Some(9), 7))");
    let words = || vec!["b".to_owned(), "a".to_owned()];
    let seen = same_as_plain(|| largest::<String, 0>(words(), [0; 2]), |io| plain_largest::<String, 0>(io, words(), [0; 2]));
    assert_eq!(seen.outcome, r#"Completed((Some("b"), 2))"#);
}

#[fiber]
async fn unused_parameters<T, U, E>(io: Res<Io>, t: T) -> Result<T, E>
where
    T: Stored,
    U: Default + Display + Send + 'static,
    E: std::error::Error + Send + Sync + std::convert::From<std::fmt::Error> + 'static,
{
    let text = step!("u", io.get("u", U::default().to_string()).await);
    if text == "1" {
        Err(std::fmt::Error)?;
    }
    Ok(t)
}

#[test]
fn type_parameters_need_not_be_in_the_arguments() {
    assert_eq!(everywhere(|| unused_parameters::<u8, u32, std::fmt::Error>(4)).0, "Completed(4)");
}

#[derive(Clone, Serialize, Deserialize)]
struct Job {
    id: u32,
    tags: Vec<String>,
}

#[fiber]
async fn patterns(
    io: Res<Io>,
    Job { id, mut tags }: Job,
    (a, [b, ..]): (u32, [u32; 3]),
    mut count: u32,
    _: String,
    _unused: (),
) -> anyhow::Result<String> {
    count += step!("count", io.did("count", b).await?);
    tags.push(count.to_string());
    step!("tags", io.did(tags.join(","), ()).await?);
    count *= 2;
    Ok(format!("{id} {tags:?} {a} {b} {count}"))
}

async fn plain_patterns(io: Io, Job { id, mut tags }: Job, (a, [b, ..]): (u32, [u32; 3]), mut count: u32) -> anyhow::Result<String> {
    count += io.did("count", b).await?;
    tags.push(count.to_string());
    io.did(tags.join(","), ()).await?;
    count *= 2;
    Ok(format!("{id} {tags:?} {a} {b} {count}"))
}

#[test]
fn parameters_are_patterns_and_mut() {
    let job = || Job { id: 1, tags: vec!["x".into()] };
    let seen = same_as_plain(|| patterns(job(), (2, [3, 4, 5]), 6, "unused".into(), ()), |io| plain_patterns(io, job(), (2, [3, 4, 5]), 6));
    assert_eq!(seen.outcome, r#"Completed("1 [\"x\", \"9\"] 2 3 18")"#);
    assert_eq!(names(&seen.snapshots[0]), ["a", "b", "count", "count()", "id", "tags"]);
}

/// Documented: adds one.
///
/// # Errors
/// Never.
#[fiber(name = "renamed", version = 3, max_recoveries = 2)]
#[must_use]
#[allow(clippy::missing_errors_doc)]
#[inline(never)]
pub(crate) async fn documented(io: Res<Io>, #[allow(unused)] n: u32) -> Result<u32, String> {
    Ok(step!("n", io.get("n", n + 1).await))
}

#[test]
fn attributes_docs_and_visibility_stay() {
    assert_eq!(everywhere(|| documented(1)).0, "Completed(2)");
    assert_eq!(forever::layout::of::<documented>().to_string().lines().next().map(|l| l.contains("renamed")), Some(true));
}

mod elsewhere {
    use forever::prelude::*;

    use super::Io;

    #[::forever::fiber]
    pub(in crate::language) async fn visible(io: forever::fiber::Res<Io>) -> ::core::result::Result<u32, std::num::ParseIntError> {
        let n = ::forever::step!("n", io.get("n", "7").await.parse::<u32>()?);
        let m = forever::step!(io.get("m", n).await);
        Ok(n + m)
    }
}

#[test]
fn paths_to_the_macros_and_types_may_be_written_out() {
    assert_eq!(everywhere(elsewhere::visible).0, "Completed(14)");
}

#[fiber]
async fn no_arguments() -> Result<String, String> {
    let x = step!("x".to_owned());
    Ok(x)
}

#[fiber]
async fn no_steps(ctx: &FiberContext, n: u32) -> Result<String, String> {
    Ok(format!("{} {n}", ctx.id()))
}

#[fiber]
async fn empty() -> Result<(), String> {
    Ok(())
}

#[test]
fn a_fiber_needs_neither_arguments_nor_resources_nor_steps() {
    let (outcome, _, snapshots) = everywhere(no_arguments);
    assert_eq!(outcome, r#"Completed("x")"#);
    assert_eq!(snapshots, [r#"{"at":"x","locals":{"x":"x"},"call":null}"#]);
    assert_eq!(everywhere(|| no_steps(1)).0, r#"Completed("test 1")"#);
    assert_eq!(everywhere(empty).0, "Completed(())");
}

#[fiber]
async fn context(ctx: &FiberContext, io: Res<Io>, Ctx { ctx: n }: Ctx) -> Result<String, String> {
    let a = step!("a", io.get(format!("a {}", ctx.id()), n).await);
    let also = ctx.id().len();
    step!("b", io.get("b", also).await);
    let io = io.clone();
    step!("c", io.get("c", ()).await);
    Ok(format!("{a} {}", ctx.id()))
}

#[derive(Clone, Serialize, Deserialize)]
struct Ctx {
    ctx: u32,
}

#[test]
fn the_context_and_the_resources_are_there_after_every_step() {
    let (outcome, log, _) = everywhere(|| context(Ctx { ctx: 3 }));
    assert_eq!(outcome, r#"Completed("3 test")"#);
    assert_eq!(log, ["a test", "b", "c"]);
}

#[fiber]
async fn several_resources(
    _: &FiberContext,
    io: Res<Io>,
    words: Res<Vec<&'static str>>,
    shared: Res<std::sync::Arc<str>>,
) -> Result<usize, String> {
    let mut n = shared.len();
    for i in 0..words.len() {
        let w = &words[i];
        n += step!("w", io.get(*w, w.len()).await);
    }
    Ok(n)
}

#[test]
fn resources_are_found_by_type_and_may_be_borrowed_across_steps() {
    use forever::testing::{Outcome, Stage, StartFrom};
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let io = Io::default();
    let stage = Stage::new().resource(io.clone()).resource(vec!["a", "bc"]).resource(std::sync::Arc::<str>::from("xyz"));
    runtime.block_on(async {
        let whole = stage.run(StartFrom::Start(several_resources()), None).await;
        assert_eq!(whole.outcome, Outcome::Completed(6));
        let resumed = stage.run::<several_resources>(StartFrom::Snapshot(whole.snapshots[0].clone()), None).await;
        assert_eq!(resumed.outcome, Outcome::Completed(6));
    });
    assert_eq!(io.taken(), ["a", "bc", "bc"]);
}

#[fiber]
async fn keyed<K, V>(io: Res<Io>, map: BTreeMap<K, Vec<V>>) -> anyhow::Result<Vec<(K, usize)>>
where
    K: Stored + Ord + Clone + Sync,
    V: Stored + Sync,
    for<'a> &'a K: Into<String>,
{
    let mut out = Vec::new();
    for (k, v) in &map {
        let n = step!(io.did(k, v.len()).await?);
        out.push((k.clone(), n));
    }
    Ok(out)
}

#[test]
fn higher_ranked_bounds_stay() {
    let map = || BTreeMap::from([("a".to_owned(), vec![1u8, 2]), ("b".to_owned(), vec![])]);
    assert_eq!(everywhere(|| keyed(map())).0, r#"Completed([("a", 2), ("b", 0)])"#);
}

#[fiber]
async fn defaults<T: Stored + Default>(io: Res<Io>, t: T) -> Result<(T, T), String> {
    let fresh = T::default();
    let size = std::mem::size_of::<T>();
    step!("t", io.get("t", size).await);
    let again = step!(io.get("again", t).await);
    Ok((fresh, again))
}

#[test]
fn generic_values_are_kept_across_steps() {
    assert_eq!(everywhere(|| defaults(Some(5u8))).0, "Completed((None, Some(5)))");
}

type Answer<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[fiber]
async fn aliased(io: Res<Io>, n: u32) -> Answer<u32> {
    let x = step!(io.get("x", n.to_string()).await);
    Ok(x.parse::<u32>()? + u32::try_from(n)?)
}

#[test]
fn the_return_type_may_be_an_alias() {
    assert_eq!(everywhere(|| aliased(2)).0, "Completed(4)");
}
