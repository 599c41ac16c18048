//! One series: a fleet, its deploys, and the audit.
use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::path::Path;
use std::time::Duration;

use anyhow::{bail, ensure};
use forever_testkit::history;
use forever_testkit::prng::Prng;
use forever_testkit::process::{Process, this_program};
use tokio::time::Instant;

use super::audit::{Findings, audit};
use super::jobs::JOBS;
use super::member::Role;
use super::{Plan, interleavings};
use crate::journal::{Journal, Line, Reader};

/// How often the log is read.
const LOOK: Duration = Duration::from_millis(2);

/// How long the log may stay as it is before the series counts as stuck.
const LAST: Duration = Duration::from_secs(60);

/// How long after a worker has opened an old one is closed, in milliseconds: a random time below.
const OVERLAP_MS: u32 = 400;

/// When the round of a deploy begins, after half of the jobs wait for it: a random time below.
const PHASE_MS: u32 = 300;

/// Runs a series, and prints its line; returns whether it is good.
pub(super) fn run(plan: &Plan, number: u32, url: &str) -> anyhow::Result<bool> {
    let dir = tempfile::Builder::new().prefix("forever-deploys-").tempdir()?;
    let schema = format!("deploys {} {number}", std::process::id());
    crate::history::begin(url, &schema)?;
    let mut series = Series {
        plan,
        dir: dir.path(),
        url,
        schema: &schema,
        journal: Journal::open(dir.path())?,
        reader: Reader::open(dir.path())?,
        lines: Vec::new(),
        members: Vec::new(),
        prng: Prng::of_case(plan.seed, u64::from(number), 0),
        counts: Counts::default(),
    };
    let all_ended = series.go()?;
    let findings = audit(&series.lines, u64::from(plan.deploys));
    let good = all_ended && findings.faults.is_empty() && findings.steps > 0;
    let counts = series.counts;
    report(plan, number, &findings, &counts, &interleavings::read(url, &schema)?, good);
    if !good || plan.keep {
        println!("the log is kept in {}", dir.keep().display());
    }
    Ok(good)
}

fn report(plan: &Plan, number: u32, findings: &Findings, counts: &Counts, met: &interleavings::Met, good: bool) {
    for fault in findings.faults.iter().take(20) {
        println!("✗ {fault}");
    }
    let Findings {
        steps, effects, repeated_steps, repeated_effects, lost_stashes, ledger_started, set_back, lost_jobs, stuck_jobs, ..
    } = findings;
    let Findings { late_steps, late_effects, resolved, claims_refused, .. } = findings;
    let Counts { closes, kills, pauses, idle_closes } = counts;
    let interleavings::Met { claims, woken_elsewhere, taken_over } = met;
    println!(
        "series={number} deploys={} closes={closes} kills={kills} pauses={pauses} idle_closes={idle_closes} steps={steps} effects={effects} \
         repeated_steps={repeated_steps} repeated_effects={repeated_effects} lost_stashes={lost_stashes} ledger_started={ledger_started} set_back={set_back} \
         lost_jobs={lost_jobs} stuck_jobs={stuck_jobs} late_steps={late_steps} late_effects={late_effects} resolved={resolved} claims={claims} \
         woken_elsewhere={woken_elsewhere} taken_over={taken_over} claims_refused={claims_refused} audit={}",
        plan.deploys,
        if good { "ok" } else { "failed" }
    );
}

/// What was done to the members.
#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    closes: u32,
    kills: u32,
    pauses: u32,
    /// Closes and kills of idle members.
    idle_closes: u32,
}

struct Running {
    role: Role,
    process: Process,
    /// Until when it stands still.
    paused: Option<Instant>,
}

struct Series<'a> {
    plan: &'a Plan,
    dir: &'a Path,
    url: &'a str,
    schema: &'a str,
    journal: Journal,
    reader: Reader,
    lines: Vec<Line>,
    /// The oldest first.
    members: Vec<Running>,
    prng: Prng,
    counts: Counts,
}

impl Series<'_> {
    /// Runs the series to its end; returns whether all jobs have ended.
    fn go(&mut self) -> anyhow::Result<bool> {
        self.start(Role::First)?;
        self.until_said("started")?;
        for _ in 1..self.plan.workers {
            self.start(Role::Sender)?;
        }
        for _ in 0..self.plan.idle {
            self.start(Role::Idle)?;
        }
        for round in 0..self.plan.deploys {
            self.until_half_ask_for(round)?;
            self.journal.write("round", &round.to_string(), "");
            self.deploy()?;
        }
        let all_ended = self.until_all_have_ended()?;
        self.start(Role::Auditor)?;
        self.until_said("audited")?;
        for mut member in std::mem::take(&mut self.members) {
            member.process.terminate()?;
            self.ends_well(&mut member)?;
        }
        self.follow()?;
        Ok(all_ended)
    }

    /// Starts a member; it is open when this returns.
    fn start(&mut self, role: Role) -> anyhow::Result<()> {
        let lease = self.plan.lease.as_millis().to_string();
        let (dir, rounds) = (self.dir.display().to_string(), self.plan.deploys.to_string());
        let skew = if self.plan.skew_ms > 0 { (i64::from(self.prng.below(2_001_u32)) - 1_000) * self.plan.skew_ms / 1_000 } else { 0 };
        let errors = OpenOptions::new().append(true).create(true).open(self.dir.join("errors"))?;
        let mut command = this_program()?;
        command.args(["--role", role.word(), "--dir", &dir, "--url", self.url, "--schema", self.schema, "--lease-ms", &lease]);
        command.args(["--rounds", &rounds, "--own-skew-ms", &skew.to_string()]);
        command.env("RUST_BACKTRACE", "1").current_dir(self.dir).stderr(errors);
        let process = Process::start_silent(&mut command)?;
        let id = process.id().to_string();
        self.members.push(Running { role, process, paused: None });
        self.until(|line| line.what == "up" && line.about == id)?;
        self.tell_senders();
        Ok(())
    }

    fn tell_senders(&self) {
        let senders = self.members.iter().filter(|member| matches!(member.role, Role::First | Role::Sender));
        let senders: Vec<_> = senders.map(|member| member.process.id().to_string()).collect();
        self.journal.write("senders", "fleet", senders.join(" "));
    }

    /// Waits until half of the jobs are through with the rounds before this one. The others are in
    /// the middle of their work.
    fn until_half_ask_for(&mut self, round: u32) -> anyhow::Result<()> {
        let (question, begun) = (format!("go {round}"), Instant::now());
        let mut jobs = BTreeSet::new();
        let mut seen = 0;
        loop {
            jobs.extend(
                self.lines[seen..].iter().filter(|line| line.what == "asks" && line.detail == question).map(|line| line.about.clone()),
            );
            seen = self.lines.len();
            if jobs.len() >= JOBS as usize / 2 {
                let phase = Duration::from_millis(self.prng.below(PHASE_MS).into());
                return self.wait(phase);
            }
            ensure!(begun.elapsed() < LAST * 4, "{} jobs have come to round {round}", jobs.len());
            self.step()?;
        }
    }

    /// A new member starts, and the oldest of its role goes while it runs.
    fn deploy(&mut self) -> anyhow::Result<()> {
        let is_idle = self.plan.idle > 0 && self.prng.below(self.plan.workers + self.plan.idle) < self.plan.idle;
        let role = if is_idle { Role::Idle } else { Role::Sender };
        self.start(role)?;
        if self.plan.pauses {
            self.pause()?;
        }
        let overlap = Duration::from_millis(self.prng.below(OVERLAP_MS).into());
        self.wait(overlap)?;
        let goes = |member: &Running| (member.role == Role::Idle) == is_idle && member.paused.is_none();
        let Some(at) = self.members.iter().position(goes) else { return Ok(()) };
        let mut member = self.members.remove(at);
        self.counts.idle_closes += u32::from(is_idle);
        self.tell_senders();
        if self.plan.kills && self.prng.chance(50) {
            member.process.kill()?;
            self.journal.write("killed", &member.process.id().to_string(), "");
            self.counts.kills += 1;
            return Ok(());
        }
        member.process.terminate()?;
        self.counts.closes += 1;
        self.ends_well(&mut member)
    }

    /// Lets a member stand still, in the bodies that it is in, for a time on either side of its
    /// lease.
    fn pause(&mut self) -> anyhow::Result<()> {
        let at = self.prng.below(self.members.len());
        let member = &mut self.members[at];
        if member.paused.is_some() {
            return Ok(());
        }
        member.process.stop()?;
        let length = self.plan.lease * (50 + self.prng.below(200_u32)) / 100;
        member.paused = Some(Instant::now() + length);
        self.journal.write("paused", &member.process.id().to_string(), length.as_millis());
        self.counts.pauses += 1;
        Ok(())
    }

    /// Waits until a member that closes has ended.
    fn ends_well(&mut self, member: &mut Running) -> anyhow::Result<()> {
        if member.paused.take().is_some() {
            member.process.go_on()?;
        }
        loop {
            if let Some(status) = member.process.status()? {
                ensure!(status.success(), "a member closed with {status}: {}", self.errors());
                return Ok(());
            }
            self.step()?;
        }
    }

    fn wait(&mut self, time: Duration) -> anyhow::Result<()> {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.step()?;
        }
        Ok(())
    }

    fn until_said(&mut self, what: &str) -> anyhow::Result<()> {
        self.until(|line| line.what == what)
    }

    /// Waits until the log has a line.
    fn until(&mut self, is_there: impl Fn(&Line) -> bool) -> anyhow::Result<()> {
        let begun = Instant::now();
        let mut seen = 0;
        loop {
            if self.lines[seen..].iter().any(&is_there) {
                return Ok(());
            }
            seen = self.lines.len();
            ensure!(begun.elapsed() < LAST * 5, "a member does not come on: {}", self.errors());
            self.step()?;
        }
    }

    /// Lets the jobs that are left end; returns whether they have.
    fn until_all_have_ended(&mut self) -> anyhow::Result<bool> {
        let sql = history::in_schema("SELECT count(*) FROM @fibers WHERE finished_ms IS NULL", self.schema);
        let (mut changed, mut known) = (Instant::now(), 0);
        loop {
            let left: i64 = crate::history::with(self.url, async |client| Ok(client.query_one(&sql, &[]).await?.get(0)))?;
            if left == 0 {
                return Ok(true);
            }
            self.wait(LOOK * 50)?;
            if self.lines.len() > std::mem::replace(&mut known, self.lines.len()) {
                changed = Instant::now();
            }
            if changed.elapsed() > LAST {
                println!("{left} jobs do not end:\n{}", self.stuck()?);
                return Ok(false);
            }
        }
    }

    /// Where the jobs stand that have not ended, for people.
    fn stuck(&self) -> anyhow::Result<String> {
        let sql = "SELECT f.id || ' ' || f.state || coalesce(': ' || f.reason, '') || ', at ' || coalesce(s.at, 'its start') || ' after '
                       || coalesce(s.number, 0) || ' checkpoints, waits for ' || coalesce((SELECT string_agg(t.topic, ' ') FROM @wait_topics t
                       WHERE t.fiber = f.seq), 'no message')
                   FROM @fibers f LEFT JOIN @snapshots s ON s.fiber = f.seq WHERE f.finished_ms IS NULL ORDER BY f.seq LIMIT 20";
        let sql = history::in_schema(sql, self.schema);
        let rows = crate::history::with(self.url, async |client| client.query(&sql, &[]).await)?;
        Ok(rows.iter().map(|row| row.get::<_, Option<String>>(0).unwrap_or_default()).collect::<Vec<_>>().join("\n"))
    }

    /// Lets a moment pass.
    fn step(&mut self) -> anyhow::Result<()> {
        std::thread::sleep(LOOK);
        self.follow()?;
        let now = Instant::now();
        for at in 0..self.members.len() {
            if self.members[at].paused.take_if(|until| *until <= now).is_some() {
                self.members[at].process.go_on()?;
                self.journal.write("goes-on", &self.members[at].process.id().to_string(), "");
            }
            if let Some(status) = self.members[at].process.status()? {
                bail!("a member ended by itself with {status}: {}", self.errors());
            }
        }
        Ok(())
    }

    fn follow(&mut self) -> anyhow::Result<()> {
        self.lines.extend(self.reader.next()?);
        Ok(())
    }

    fn errors(&self) -> String {
        fs::read_to_string(self.dir.join("errors")).unwrap_or_default()
    }
}
