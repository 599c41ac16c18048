//! Fibers that start fibers: fan-out, pipelines, supervision. Children need a runtime, so these run in one that ends at each of
//! its writes, and must come to what the plain function comes to.
use forever::testing::{World, crash_everywhere};
use forever::{Builder, Forever};

use crate::language::harness::{Twin, world};
use crate::prelude::*;

/// Runs a parent in a runtime that ends before and after each of its writes.
fn family<F: Twin<Output: std::fmt::Debug, Error: std::fmt::Display>>(with_children: fn(Builder) -> Builder, make: impl Fn() -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let plain = match runtime.block_on(make().plain()) {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("failed: {error}"),
    };
    let setup = |world: &World| {
        let builder = Forever::builder().in_memory().clock(world.clock()).resource(world.shared::<Io>());
        with_children(builder.fiber::<F>())
    };
    let call = async |forever: Forever| match forever.spawn(make()).key("parent").await.unwrap().wait().await {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("failed: {}", error.reason()),
    };
    let survived = runtime.block_on(async { crash_everywhere(setup, call).await.unwrap() });
    assert_eq!(survived.outcome, plain);
}

twin! {
    async fn measure(io, what: String) -> anyhow::Result<u32> {
        let raw = step!("raw", io.did(format!("raw {what}"), what.len() as u32).await?);
        ensure!(raw > 0, "nothing to measure");
        let fine = step!("fine", io.did(format!("fine {what}"), raw * 10).await?);
        Ok(fine + 1)
    }
}

twin! {
    async fn fan_out_and_sum(io, names: Vec<String>) -> anyhow::Result<u32> {
        let mut handles = Vec::with_capacity(names.len());
        for name in &names {
            handles.push(spawn!(measure(name.clone())));
        }
        step!("started", io.did(format!("{} started", handles.len()), ()).await?);
        let mut sum = 0;
        for result in wait_all!(handles) {
            sum += result?;
        }
        Ok(sum)
    }
}

twin! {
    async fn some_children_may_fail(io, names: Vec<String>) -> anyhow::Result<(u32, Vec<String>)> {
        let mut children = Vec::new();
        for name in names {
            let child = spawn!(measure(name.trim().to_owned()));
            children.push((name, child));
        }
        let mut total = 0;
        let mut failures = Vec::new();
        for (name, child) in children {
            match wait!(child) {
                Ok(n) => total += n,
                Err(error) => {
                    let reason = error.reason().to_owned();
                    step!("note", io.did(format!("{name:?}: {reason}"), ()).await?);
                    failures.push(reason);
                }
            }
        }
        ensure!(failures.len() < 2, "too many failures: {}", failures.join(", "));
        Ok((total, failures))
    }
}

twin! {
    async fn pipeline_of_children(io, input: String, stages: u32) -> anyhow::Result<String> {
        let mut value = input;
        for stage in 1..=stages {
            let handle = spawn!(measure(value.clone()));
            let n = wait!(handle).with_context(|| format!("stage {stage}"))?;
            value = format!("{value}{n}");
        }
        let checked = step!("check", io.did(format!("check {value}"), value.len() % 2 == 0).await?);
        Ok(if checked { value } else { value + "!" })
    }
}

twin! {
    async fn batches_of_children(io, names: Vec<String>, width: usize) -> anyhow::Result<Vec<u32>> {
        let mut results = Vec::new();
        for (number, batch) in names.chunks(width).enumerate() {
            let mut running = Vec::new();
            for name in batch {
                running.push(spawn!(measure(format!("{name}{number}"))));
            }
            let finished: Vec<u32> = wait_all!(running).into_iter().collect::<Result<_, _>>()?;
            step!("batch", io.did(format!("batch {number}: {finished:?}"), ()).await?);
            results.extend(finished);
        }
        Ok(results)
    }
}

twin! {
    async fn unreliable(io, works_at: u32, attempt: u32) -> anyhow::Result<u32> {
        step!("try", io.did(format!("attempt {attempt}"), ()).await?);
        if attempt < works_at {
            bail!("attempt {attempt} failed");
        }
        Ok(attempt * 100)
    }
}

twin! {
    async fn supervise_with_restarts(io, works_at: u32, limit: u32) -> anyhow::Result<u32> {
        let mut log = Vec::new();
        for attempt in 1..=limit {
            let child = spawn!(unreliable(works_at, attempt));
            match wait!(&child) {
                Ok(value) => return Ok(value + log.len() as u32),
                Err(error) if error.is_failed() => log.push(error.reason().to_string()),
                Err(error) => return Err(error.into()),
            }
            sleep!(Duration::from_secs(u64::from(attempt)));
        }
        bail!("gave up: {}", log.join("; "))
    }
}

twin! {
    async fn region(io, name: String, cities: Vec<String>) -> anyhow::Result<BTreeMap<String, u32>> {
        let mut handles = BTreeMap::new();
        for city in cities {
            let handle = spawn!(measure(city.clone()));
            handles.insert(city, handle);
        }
        let mut found = BTreeMap::new();
        for (city, handle) in handles {
            let n = wait!(handle)?;
            found.insert(format!("{name}/{city}"), n);
        }
        Ok(found)
    }
}

twin! {
    async fn tree_of_fibers(io, regions: BTreeMap<String, Vec<String>>) -> anyhow::Result<Vec<(String, u32)>> {
        let mut parts = Vec::new();
        for (name, cities) in regions {
            parts.push(spawn!(region(name, cities)));
        }
        let mut all = BTreeMap::new();
        while let Some(part) = parts.pop() {
            all.append(&mut wait!(part)?);
        }
        let mut ranked: Vec<(String, u32)> = all.into_iter().collect();
        ranked.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        step!("publish", io.did(format!("{} cities", ranked.len()), ()).await?);
        Ok(ranked)
    }
}

twin! {
    async fn speculative_pair(io, question: String) -> anyhow::Result<String> {
        let (fast, slow) = (spawn!(measure(question.clone())), spawn!(measure(format!("{question} slowly"))));
        let quick = wait!(fast)?;
        let good_enough = step!("judge", io.did(format!("judge {quick}"), quick > 50).await?);
        let answer = if good_enough { quick } else { wait!(slow)?.max(quick) };
        Ok(format!("{question}: {answer}"))
    }
}

twin! {
    async fn inline_helpers(io, values: Vec<String>) -> anyhow::Result<u32> {
        let mut best = None;
        for value in values {
            let n = match call!(measure(value.clone())) {
                Ok(n) => n,
                Err(error) if error.to_string().contains("nothing") => continue,
                Err(error) => return Err(error.context(value)),
            };
            best = best.max(Some(n));
        }
        let extra = call!(unreliable(1, best.unwrap_or(1)))?;
        let handle = spawn!(measure("last".into()));
        Ok(best.context("no values")? + extra + wait!(handle)?)
    }
}

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

fn with_measure(builder: Builder) -> Builder {
    builder.fiber::<measure>()
}

corpus! {
    measure => completes(|| measure("a".into())), fails("nothing", || measure(String::new()));
    unreliable => fails("attempt 1 failed", || unreliable(3, 1));
    fan_out_and_sum => family(with_measure, || fan_out_and_sum(texts(&["a", "bb"])));
    some_children_may_fail => family(with_measure, || some_children_may_fail(texts(&["a", " "]))), family(with_measure, || some_children_may_fail(texts(&[" ", ""])));
    pipeline_of_children => family(with_measure, || pipeline_of_children("x".into(), 2));
    batches_of_children => family(with_measure, || batches_of_children(texts(&["a", "b", "c"]), 2));
    supervise_with_restarts => family(|b| b.fiber::<unreliable>(), || supervise_with_restarts(2, 3)), family(|b| b.fiber::<unreliable>(), || supervise_with_restarts(9, 2));
    tree_of_fibers => family(|b| with_measure(b).fiber::<region>(), || tree_of_fibers([("n".to_owned(), texts(&["x"])), ("s".to_owned(), texts(&["yy"]))].into()));
    region => family(with_measure, || region("r".into(), texts(&["a", "bb"])));
    speculative_pair => family(with_measure, || speculative_pair("why".into()));
    inline_helpers => family(|b| with_measure(b).fiber::<unreliable>(), || inline_helpers(texts(&["a", "", "ccc"])));
}
