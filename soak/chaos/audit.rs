//! The audit of a round: the log of effects and the database must both agree with what was
//! promised.
//!
//! It reads the log line by line, as an outsider who has seen everything, and then the database. It
//! uses nothing of the library.
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::journal::{self, Line};
use super::outside::{Books, Clerks, Post};
use super::round::{Kind, Round, value};
use super::stored::Stored;
use super::track::Fibers;

/// Findings of an audit.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Counts of what was checked.
    pub(crate) counts: Counts,
    pub(crate) repeated: usize,
    pub(crate) lost: usize,
    pub(crate) duplicates: usize,
    /// Broken promises, with the fiber that each is about.
    pub(crate) faults: Vec<Fault>,
}

/// A broken promise.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) text: String,
    /// Word that selects the lines of the log about it.
    pub(crate) about: String,
    /// The line that shows it, if there is one.
    pub(crate) line: Option<usize>,
}

/// Counts of what was checked.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    pub(crate) lines: usize,
    pub(crate) fibers: usize,
    pub(crate) finished_steps: usize,
    /// Bodies of steps that began, including interrupted ones.
    pub(crate) begun: usize,
    pub(crate) panics: usize,
    pub(crate) charges: usize,
    pub(crate) requests: usize,
    pub(crate) questions: usize,
    pub(crate) rows: usize,
    pub(crate) messages: usize,
    pub(crate) children: usize,
    pub(crate) cancelled: usize,
    pub(crate) errands: usize,
    pub(crate) ticks: usize,
    pub(crate) full_disks: usize,
    /// Fibers that a full disk stopped.
    pub(crate) interrupted: usize,
    /// Fibers that another failure of the store stopped.
    pub(crate) interrupted_by_faults: usize,
    /// Calls of the program that the store refused.
    pub(crate) refused: usize,
    /// Closures that failed after ten recoveries.
    pub(crate) given_up: usize,
}

impl Counts {
    pub(crate) fn add(&mut self, more: &Counts) {
        self.lines += more.lines;
        self.fibers += more.fibers;
        self.finished_steps += more.finished_steps;
        self.begun += more.begun;
        self.panics += more.panics;
        self.charges += more.charges;
        self.requests += more.requests;
        self.questions += more.questions;
        self.rows += more.rows;
        self.messages += more.messages;
        self.children += more.children;
        self.cancelled += more.cancelled;
        self.errands += more.errands;
        self.ticks += more.ticks;
        self.full_disks += more.full_disks;
        self.interrupted += more.interrupted;
        self.interrupted_by_faults += more.interrupted_by_faults;
        self.refused += more.refused;
        self.given_up += more.given_up;
    }
}

impl Findings {
    pub(crate) fn repeated(&mut self, about: &str, line: &Line, text: String) {
        self.repeated += 1;
        self.fault(about, Some(line.number), text);
    }

    pub(crate) fn lost(&mut self, about: &str, text: String) {
        self.lost += 1;
        self.fault(about, None, text);
    }

    pub(crate) fn duplicate(&mut self, about: &str, more: usize, text: String) {
        self.duplicates += more;
        self.fault(about, None, text);
    }

    /// Adds a broken promise that none of the three numbers counts.
    pub(crate) fn fault(&mut self, about: &str, line: Option<usize>, text: String) {
        self.faults.push(Fault { text, about: about.to_owned(), line });
    }
}

/// Audits everything that a round has left.
pub(crate) fn round(dir: &Path, round: &Round) -> anyhow::Result<Findings> {
    let mut findings = Findings::default();
    let lines = journal::read(dir)?;
    one_owner_at_a_time(&lines, &mut findings);
    let (mut fibers, mut books, mut post, mut clerks) = (Fibers::new(round), Books::default(), Post::default(), Clerks::default());
    for line in &lines {
        fibers.read(line, &mut findings);
        books.read(line, round, &mut findings);
        post.read(line);
        clerks.read(line, &mut findings);
        match line.words() {
            ["full", _] => findings.counts.full_disks += 1,
            ["interrupted", why] if why.contains("full") => findings.counts.interrupted += 1,
            ["interrupted", _] => findings.counts.interrupted_by_faults += 1,
            ["refused", _] => findings.counts.refused += 1,
            ["panics", _] => findings.counts.panics += 1,
            _ => {}
        }
    }
    findings.counts.lines = lines.len();
    match Stored::read(dir) {
        Ok(stored) => {
            fibers.settle(&stored, &mut findings);
            books.settle(round, &stored, &mut findings);
            post.settle(round, &stored, &mut findings);
            clerks.settle(round, &stored, &mut findings);
            rows(round, &stored, &mut findings);
        }
        Err(error) => findings.fault("opens", None, format!("the database cannot be read: {error:#}")),
    }
    Ok(findings)
}

/// Checks that no other owner writes between two lines of a process that owns the database.
fn one_owner_at_a_time(lines: &[Line], findings: &mut Findings) {
    let watching = |line: &&Line| !["waits", "stored", "arrived"].iter().any(|verb| line.text.split(' ').next() == Some(verb));
    let (mut now, mut before) = (0, BTreeSet::new());
    for line in lines.iter().filter(watching) {
        if line.process != now {
            before.insert(now);
            now = line.process;
            if before.contains(&now) {
                let text = format!("process {now} goes on after another one has taken over");
                findings.fault(&now.to_string(), Some(line.number), text);
            }
        }
    }
}

/// Checks that each booking has one row.
fn rows(round: &Round, stored: &Stored, findings: &mut Findings) {
    let mut there: BTreeMap<(&str, u32), Vec<i64>> = BTreeMap::new();
    for (fiber, place, value) in &stored.bookings {
        there.entry((fiber, *place)).or_default().push(*value);
    }
    findings.counts.rows += stored.bookings.len();
    for spec in round.fibers.iter().filter(|spec| spec.kind == Kind::Booking) {
        for place in 1..=spec.size {
            let rows = there.remove(&(spec.id.as_str(), place)).unwrap_or_default();
            match rows.len() {
                0 => findings.fault(&spec.id, None, format!("fiber {} has no row for its step {place}", spec.id)),
                1 if rows[0].cast_unsigned() == value(&spec.id, place) => {}
                1 => findings.fault(&spec.id, None, format!("fiber {} has a wrong row for its step {place}", spec.id)),
                n => findings.duplicate(&spec.id, n - 1, format!("fiber {} has {n} rows for its step {place}", spec.id)),
            }
        }
    }
    for (fiber, place) in there.keys() {
        findings.duplicate(fiber, 1, format!("there is a row for step {place} of {fiber}, which has no such step"));
    }
}
