//! Moving data: pages, batches, parsing, joining, loading.
use crate::prelude::*;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Row {
    id: u32,
    name: String,
    score: Option<f32>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Page<T> {
    items: Vec<T>,
    next: Option<String>,
}

async fn fetch_page(io: &Io, cursor: Option<&str>) -> anyhow::Result<Page<Row>> {
    let at: u32 = cursor.map_or(Ok(0), str::parse)?;
    let items = (at..at + 3).map(|id| Row { id, name: format!("row {id}"), score: (id % 3 != 1).then_some(id as f32 / 2.0) }).collect();
    io.did(format!("page {cursor:?}"), Page { items, next: (at < 6).then(|| (at + 3).to_string()) }).await
}

twin! {
    async fn paginate_with_a_cursor(io, stop_after: usize) -> anyhow::Result<(usize, f32)> {
        let mut cursor: Option<String> = None;
        let mut rows = Vec::new();
        loop {
            let Page { items, next } = step!("page", fetch_page(&io, cursor.as_deref()).await?);
            rows.extend(items);
            cursor = next;
            if cursor.is_none() || rows.len() >= stop_after {
                break;
            }
        }
        let scored: Vec<f32> = rows.iter().filter_map(|row| row.score).collect();
        let mean = scored.iter().sum::<f32>() / scored.len() as f32;
        step!("store", io.did(format!("store {} rows", rows.len()), ()).await?);
        Ok((rows.len(), mean))
    }
}

twin! {
    async fn load_in_batches(io, rows: Vec<u32>, size: usize) -> anyhow::Result<Vec<usize>> {
        let mut counts = Vec::new();
        for (n, batch) in rows.chunks(size).enumerate() {
            let sum: u32 = batch.iter().sum();
            let loaded = step!("load", io.did(format!("batch {n}: {batch:?}"), batch.len()).await?);
            counts.push(loaded);
            if sum > 20 {
                step!("vacuum", io.did(format!("vacuum after {}", batch[0]), ()).await?);
            }
        }
        Ok(counts)
    }
}

twin! {
    async fn parse_csv_with_a_header(io, text: String) -> anyhow::Result<Vec<BTreeMap<String, String>>> {
        let mut lines = text.lines().map(str::trim).filter(|l| !l.is_empty()).map(String::from).collect::<VecDeque<_>>();
        let header: Vec<String> = lines.pop_front().context("empty file")?.split(',').map(|c| c.trim().to_lowercase()).collect();
        let mut records = vec![];
        let mut bad = 0;
        for (number, line) in lines.iter().enumerate() {
            let cells: Vec<&str> = line.split(',').collect();
            if cells.len() != header.len() {
                bad += 1;
                step!("reject", io.did(format!("line {}: {} cells", number + 2, cells.len()), ()).await?);
                continue;
            }
            let record: BTreeMap<String, String> = header.iter().cloned().zip(cells.into_iter().map(|c| c.trim().to_owned())).collect();
            step!("insert", io.did(format!("{record:?}"), ()).await?);
            records.push(record);
        }
        ensure!(bad <= records.len(), "{bad} bad lines of {}", lines.len());
        Ok(records)
    }
}

twin! {
    async fn for_each_line_of_a_text(io, text: String) -> anyhow::Result<usize> {
        let mut total = 0;
        for line in text.lines() {
            let Some((key, value)) = line.split_once('=') else { continue };
            let n: usize = value.parse().with_context(|| format!("value of {key}"))?;
            total += step!("set", io.did(format!("{key} := {n}"), n).await?);
        }
        Ok(total)
    }
}

twin! {
    async fn differences_of_neighbours(io, readings: Vec<i32>) -> anyhow::Result<Vec<i32>> {
        let mut jumps = Vec::new();
        for pair in readings.windows(2) {
            let [before, after] = pair else { continue };
            let jump = after - before;
            if jump.abs() > 3 {
                let confirmed = step!("confirm", io.did(format!("{before} to {after}"), jump > 0).await?);
                jumps.push(if confirmed { jump } else { -jump * 100 });
            }
        }
        step!("save", io.did(format!("{jumps:?}"), ()).await?);
        Ok(jumps)
    }
}

twin! {
    async fn join_two_sources(io, users: Vec<(u32, String)>, orders: Vec<(u32, u32)>) -> anyhow::Result<Vec<String>> {
        let names: BTreeMap<u32, String> = users.into_iter().collect();
        let mut lines = Vec::new();
        for (user, amount) in &orders {
            let name = match names.get(user) {
                Some(name) => name.clone(),
                None => step!("look up", io.did(format!("look up {user}"), format!("user{user}")).await?),
            };
            lines.push(format!("{name}:{amount}"));
            if let Some(known) = names.get(user).cloned() {
                step!("touch", io.did(format!("touch {known}"), ()).await?);
                lines.push(known.to_uppercase());
            }
        }
        lines.dedup();
        Ok(lines)
    }
}

fn normalised(values: impl IntoIterator<Item = f64>) -> impl Iterator<Item = f64> {
    let values: Vec<f64> = values.into_iter().collect();
    let max = values.iter().copied().fold(f64::MIN, f64::max);
    values.into_iter().map(move |v| (v / max * 100.0).round() / 100.0)
}

twin! {
    async fn normalise_then_upload(io, columns: BTreeMap<String, Vec<f64>>) -> anyhow::Result<String> {
        let mut done = BTreeSet::new();
        for (name, values) in &columns {
            let scaled: Vec<f64> = normalised(values.iter().copied()).collect();
            let checksum = scaled.iter().fold(0u64, |sum, v| sum.wrapping_mul(31).wrapping_add(v.to_bits()));
            step!("upload", retry = Retry::times(3).backoff(Backoff::none()), |op| {
                ensure!(op.attempt() > values.len() as u32 - 1, "flaky");
                io.did(format!("upload {name} {checksum:x}"), ()).await?
            });
            done.insert((scaled.len(), name.clone()));
        }
        Ok(format!("{done:?}"))
    }
}

twin! {
    async fn upsert_with_statistics(io, incoming: Vec<Row>) -> anyhow::Result<(u32, u32, u32)> {
        let mut store: BTreeMap<u32, Row> = BTreeMap::new();
        let (mut inserted, mut updated, mut same) = (0, 0, 0);
        for row in incoming {
            use std::collections::btree_map::Entry;
            match store.entry(row.id) {
                Entry::Vacant(slot) => {
                    slot.insert(row);
                    inserted += 1;
                }
                Entry::Occupied(slot) if *slot.get() == row => same += 1,
                Entry::Occupied(mut slot) => {
                    slot.get_mut().name = row.name;
                    updated += 1;
                }
            }
            step!("flush", io.did(format!("{inserted}/{updated}/{same}"), ()).await?);
        }
        Ok((inserted, updated, same))
    }
}

twin! {
    async fn schema_migration(io, versions: Vec<u32>, current: u32) -> anyhow::Result<u32> {
        const SCRIPTS: [(u32, &str); 3] = [(1, "create"), (2, "alter"), (5, "drop")];
        let mut at = current;
        for (version, script) in SCRIPTS {
            if version <= at {
                continue;
            }
            if !versions.contains(&version) {
                bail!("{script} is not released");
            }
            step!("migrate", io.did(format!("{script} {version}"), ()).await?);
            at = version;
            if step!("check", io.did("check", at == 5).await?) {
                break;
            }
        }
        Ok(at)
    }
}

twin! {
    async fn sample_until_the_error_is_small(io, seed: u64) -> anyhow::Result<String> {
        let next = |state: u64| state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let mut state = seed;
        let mut samples: Vec<f64> = Vec::new();
        let error = loop {
            state = next(state);
            let value = step!("measure", io.did("measure", (state >> 40) as f64 / 1e6).await?);
            samples.push(value);
            if samples.len() < 3 {
                continue;
            }
            let mean = samples.iter().sum::<f64>() / samples.len() as f64;
            let variance = samples.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / (samples.len() - 1) as f64;
            let error = (variance / samples.len() as f64).sqrt();
            if error < 2.0 || samples.len() > 6 {
                break error;
            }
        };
        step!("publish", io.did("publish", samples.len()).await?);
        Ok(format!("{} samples, error {error:.3}", samples.len()))
    }
}

corpus! {
    paginate_with_a_cursor => completes(|| paginate_with_a_cursor(99)), completes(|| paginate_with_a_cursor(5));
    load_in_batches => completes(|| load_in_batches((1..9).collect(), 3));
    parse_csv_with_a_header => completes(|| parse_csv_with_a_header("Name, Age\nada, 36\n\nbob\n eve,1 ".into())), fails("2 bad lines", || parse_csv_with_a_header("a,b\n1\n2\n3,4".into()));
    for_each_line_of_a_text => completes(|| for_each_line_of_a_text("a=1\n# no\nb=22\nc=3".into())), fails("value of b", || for_each_line_of_a_text("a=1\nb=x".into()));
    differences_of_neighbours => completes(|| differences_of_neighbours(vec![1, 9, 10, 2, 8]));
    join_two_sources => completes(|| join_two_sources(vec![(1, "ada".into()), (2, "bob".into())], vec![(1, 5), (3, 7), (2, 9)]));
    normalise_then_upload => completes(|| normalise_then_upload([("a".into(), vec![1.0, 3.0]), ("b".into(), vec![0.5, 0.25, 4.0])].into()));
    upsert_with_statistics => completes(|| upsert_with_statistics([1, 2, 1, 2].into_iter().enumerate().map(|(i, id)| Row { id, name: if i == 3 { "b".into() } else { String::new() }, score: None }).collect()));
    schema_migration => completes(|| schema_migration(vec![2, 5], 1)), fails("drop is not released", || schema_migration(vec![1, 2], 0));
    sample_until_the_error_is_small => completes(|| sample_until_the_error_is_small(7));
}
