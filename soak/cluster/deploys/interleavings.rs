//! How often the interleavings of a series were met, as the database has seen it.
use std::collections::BTreeMap;

use forever_testkit::history;

/// Counts over all jobs of a series.
#[derive(Debug, Default)]
pub(super) struct Met {
    pub(super) claims: u32,
    /// Claims by another worker than the last one, which goes on with other jobs.
    pub(super) woken_elsewhere: u32,
    /// Claims by another worker than the last one, of which nothing is seen afterwards.
    pub(super) taken_over: u32,
}

/// Reads the history of a schema.
pub(super) fn read(url: &str, schema: &str) -> anyhow::Result<Met> {
    let sql = history::in_schema(history::LINES, schema);
    let rows = crate::history::with(url, async |client| client.query(&sql, &[]).await)?;
    Ok(count(&rows.iter().map(|row| row.get::<_, &str>(0)).collect::<Vec<_>>()))
}

fn count(lines: &[&str]) -> Met {
    let words: Vec<Vec<&str>> = lines.iter().map(|line| line.split(' ').collect()).collect();
    let worker = |words: &[&str]| words.get(4).map_or("0", |word| *word).to_owned();
    let last_seen: BTreeMap<String, usize> = words.iter().enumerate().map(|(at, words)| (worker(words), at)).collect();
    let (mut met, mut holders) = (Met::default(), BTreeMap::new());
    for (at, words) in words.iter().enumerate() {
        let [job, "made" | "claimed", ..] = words[..] else { continue };
        let by = worker(words);
        if by == "0" {
            continue;
        }
        met.claims += 1;
        match holders.insert(job, by.clone()) {
            Some(before) if before != by => {
                let is_at_work = last_seen.get(&before).is_some_and(|last| *last > at);
                *(if is_at_work { &mut met.woken_elsewhere } else { &mut met.taken_over }) += 1;
            }
            _ => {}
        }
    }
    met
}
