//! What the log says of a run, compared with what was promised.
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::journal::Line;
use crate::orders::{PARCEL, RESULT};

/// Result of an audit.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) fibers: usize,
    pub(crate) finished_steps: usize,
    pub(crate) repeated: usize,
    pub(crate) lost: usize,
    pub(crate) duplicates: usize,
    /// Bodies that a worker began although another one had finished their steps, and whose results
    /// were refused.
    pub(crate) late_bodies: usize,
    /// Calls of agents that were carried out.
    pub(crate) calls: usize,
    /// What their callers heard, by the word in the log.
    pub(crate) calls_heard: BTreeMap<String, usize>,
    /// Calls that were carried out more than once.
    pub(crate) repeated_calls: usize,
    /// Calls that were answered without being carried out, or carried out although the caller heard
    /// that they never begin.
    pub(crate) lost_answers: usize,
    /// Results that were waited for in another worker.
    pub(crate) heard: usize,
    /// What is not as promised.
    pub(crate) faults: Vec<String>,
    /// From the death of a worker to the resume of each of its orders elsewhere.
    pub(crate) takeovers: Vec<(Duration, String)>,
}

/// What the log says of one order.
#[derive(Debug, Default)]
struct Order {
    /// The process that has entered it last.
    holder: u32,
    /// Whether it runs there, as far as is known.
    is_active: bool,
    /// Steps whose results are stored.
    passed: BTreeSet<String>,
    /// The process that has carried out each of them and stored it.
    finished: BTreeMap<String, u32>,
    /// Bodies under way, by process and step, and whether the step had finished before.
    begun: BTreeMap<(u32, String), bool>,
}

/// Compares the calls of agents that were carried out with what their callers heard.
fn audit_calls(lines: &[Line], findings: &mut Findings) {
    let mut carried_out: BTreeMap<&str, usize> = BTreeMap::new();
    for line in lines.iter().filter(|line| line.what == "carried-out") {
        *carried_out.entry(&line.about).or_default() += 1;
    }
    findings.calls = carried_out.len();
    for (call, times) in carried_out.iter().filter(|(_, times)| **times > 1) {
        findings.repeated_calls += 1;
        findings.faults.push(format!("call `{call}` was carried out {times} times"));
    }
    for line in lines.iter().filter(|line| ["answered", "unknown", "void", "failed"].contains(&line.what.as_str())) {
        *findings.calls_heard.entry(line.what.clone()).or_default() += 1;
        let is_carried_out = carried_out.contains_key(line.about.as_str());
        let is_wrong = match line.what.as_str() {
            "answered" => !is_carried_out || line.detail != line.about,
            "void" => is_carried_out,
            _ => false,
        };
        if is_wrong {
            findings.lost_answers += 1;
            findings.faults.push(format!("call `{}` is {}, and carried out: {is_carried_out}", line.about, line.what));
        }
    }
}

/// Audits a log with what else there is of each order: its charges, and its rows in the table of the
/// program.
pub(crate) fn audit(lines: &[Line], charges: &BTreeMap<String, usize>, bookings: &BTreeMap<String, usize>) -> Findings {
    let mut findings = Findings::default();
    let mut orders: BTreeMap<&str, Order> = BTreeMap::new();
    let mut died: BTreeMap<u32, u64> = BTreeMap::new();
    let (mut accepted, mut ended, mut heard) = (BTreeSet::new(), BTreeMap::new(), BTreeMap::new());
    audit_calls(lines, &mut findings);
    for line in lines {
        let (about, process) = (line.about.as_str(), line.process);
        let detail = || line.detail.clone();
        match line.what.as_str() {
            "killed" => drop(died.insert(about.parse().unwrap_or(0), line.at_us)),
            "accepted" => drop(accepted.insert(about)),
            "ended" => drop(ended.insert(about, line.detail.as_str())),
            "heard" => {
                findings.heard += 1;
                heard.insert(about, line.detail.as_str());
            }
            "enter" => {
                let order = orders.entry(about).or_default();
                if order.is_active
                    && let Some(at) = died.get(&order.holder)
                {
                    findings.takeovers.push((Duration::from_micros(line.at_us.saturating_sub(*at)), about.to_owned()));
                }
                // What it had begun before is cut off.
                let late = order.begun.iter().filter(|((by, _), again)| *by == process && **again).count();
                order.begun.retain(|(by, _), _| *by != process);
                findings.late_bodies += late;
                // A charged order waits most of the time.
                (order.holder, order.is_active) = (process, !order.passed.contains("charge") && !about.ends_with(PARCEL));
            }
            "begin" => {
                let order = orders.entry(about).or_default();
                let again = order.passed.contains(&line.detail);
                order.begun.insert((process, detail()), again);
            }
            "passed" => {
                let order = orders.entry(about).or_default();
                order.passed.insert(detail());
                order.is_active &= line.detail != "charge";
                // After a resume behind a step its body was not carried out here.
                if order.begun.remove(&(process, detail())).is_some()
                    && let Some(before) = order.finished.insert(detail(), process)
                {
                    findings.repeated += 1;
                    findings.faults.push(format!("step `{}` of `{about}` finished in processes {before} and {process}", line.detail));
                }
            }
            _ => {}
        }
    }
    findings.fibers = accepted.len();
    for order in orders.values() {
        findings.finished_steps += order.passed.len();
        findings.late_bodies += order.begun.values().filter(|again| **again).count();
    }
    for (made, counts) in [("charged", charges), ("booked", bookings)] {
        for (id, count) in counts.iter().filter(|(_, count)| **count > 1) {
            findings.duplicates += count - 1;
            findings.faults.push(format!("`{id}` was {made} {count} times"));
        }
    }
    let wanted = RESULT.to_string();
    for id in accepted {
        match ended.get(id) {
            Some(result) if *result == wanted => {}
            Some(result) => {
                findings.lost += 1;
                findings.faults.push(format!("`{id}` ended with {result}, and not with {wanted}"));
            }
            None => {
                findings.lost += 1;
                findings.faults.push(format!("`{id}` was accepted, and has not ended"));
            }
        }
        for (made, _) in [("charged", charges), ("booked", bookings)].iter().filter(|(_, counts)| !counts.contains_key(id)) {
            findings.lost += 1;
            findings.faults.push(format!("`{id}` was never {made}"));
        }
    }
    for (id, result) in heard {
        if result != wanted {
            findings.lost += 1;
            findings.faults.push(format!("another worker heard that `{id}` ended with {result}"));
        }
    }
    findings.takeovers.sort_unstable();
    findings
}
