//! The first process: starts the workers, kills and pauses them, tells what happens, and audits the
//! log.
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use forever_testkit::postgres::Cluster;
use forever_testkit::prng::Prng;
use forever_testkit::process::{Process, this_program};
use tokio::time::Instant;

use crate::audit::{Findings, audit};
use crate::bookings;
use crate::history;
use crate::journal::{Journal, Line, Reader};
use crate::orders::{PARCEL, bank, charges};
use crate::partition::{Link, Proxy};
use crate::worker::last_call;

/// What to do.
pub(crate) struct Plan {
    pub(crate) workers: u32,
    pub(crate) until: Until,
    pub(crate) seed: u64,
    pub(crate) lease: Duration,
    pub(crate) crashes: bool,
    pub(crate) partitions: bool,
    /// File for the history of the database.
    pub(crate) history: Option<PathBuf>,
    pub(crate) url: Option<String>,
    pub(crate) keep: bool,
}

/// When it ends.
#[derive(Clone, Copy)]
pub(crate) enum Until {
    Deaths(u32),
    Time(Duration),
}

/// How long the log may stay as it is, when nothing is killed any more, before orders that have not
/// ended count as lost. On a busy machine they end late.
const LAST: Duration = Duration::from_secs(120);

/// How often the log is read.
const LOOK: Duration = Duration::from_millis(20);

/// How often the workers are disturbed, in milliseconds: a random time between these.
const BETWEEN_MS: (u32, u32) = (150, 900);

/// A worker's place, and who is in it.
struct Place {
    number: u32,
    lives: u32,
    process: Process,
    /// Until when it is paused.
    paused: Option<Instant>,
    /// Its way to the server, where that can be cut.
    proxy: Option<Proxy>,
    /// Until when it is cut.
    cut: Option<Instant>,
}

impl Place {
    fn is_undisturbed(&self) -> bool {
        self.paused.is_none() && self.cut.is_none()
    }
}

#[derive(Debug, Default)]
struct Deaths {
    kills: u32,
    /// Pauses longer than the lease.
    long_pauses: u32,
    short_pauses: u32,
    /// Partitions longer than the lease, in either direction.
    long_partitions: u32,
    /// Shorter ones, and slow links.
    short_partitions: u32,
    closes: u32,
    crashes: u32,
}

impl Deaths {
    /// How many workers died, or lost their claims.
    fn all(&self) -> u32 {
        self.kills + self.long_pauses + self.long_partitions
    }
}

/// Orders of a worker that died, until others have taken them over.
struct Fallen {
    number: u32,
    at_us: u64,
    /// The orders that it had.
    orders: Vec<String>,
    /// The takeovers so far, by process.
    taken: BTreeMap<u32, Vec<Duration>>,
    /// Since when this process knows of it, until it was told that it is late.
    since: Option<Instant>,
}

/// How long a takeover may take before it is looked at in the database.
const LATE: Duration = Duration::from_secs(20);

/// The log so far, as far as it says who has which order.
#[derive(Default)]
struct Story {
    lines: Vec<Line>,
    /// The process that each order runs in.
    active: BTreeMap<String, u32>,
    /// Orders that are charged: from there on they wait most of the time.
    charged: BTreeSet<String>,
    /// The worker of each process.
    places: BTreeMap<u32, u32>,
    fallen: Vec<Fallen>,
}

pub(crate) fn run(plan: &Plan) -> anyhow::Result<bool> {
    let dir = tempfile::Builder::new().prefix("forever-cluster-").tempdir()?;
    fs::create_dir(bank(dir.path()))?;
    let server = match &plan.url {
        Some(_) => None,
        None => Some(Cluster::start().context("no Postgres is installed (`initdb` and `pg_ctl`): give the URL of one with `--url`")?),
    };
    let url = plan.url.clone().or_else(|| server.as_ref().map(Cluster::url)).context("there is a server")?;
    let mut stage = Stage {
        plan,
        dir: dir.path(),
        url,
        schema: format!("cluster {}", std::process::id()),
        server,
        journal: Journal::open(dir.path())?,
        reader: Reader::open(dir.path())?,
        places: Vec::new(),
        deaths: Deaths::default(),
        story: Story::default(),
        prng: Prng::of_purpose(plan.seed, "cluster"),
    };
    println!("{} workers over one Postgres, lease {:?}", plan.workers, plan.lease);
    if plan.history.is_some() {
        history::begin(&stage.url, &stage.schema)?;
    }
    bookings::create(&stage.url, &stage.schema)?;
    for number in 1..=plan.workers {
        let proxy = match &stage.server {
            Some(server) if plan.partitions => Some(Proxy::start(server.socket())?),
            _ => None,
        };
        let process = stage.start(number, 0, proxy.as_ref())?;
        stage.places.push(Place { number, lives: 0, process, paused: None, proxy, cut: None });
    }
    stage.disturb()?;
    let finished = stage.finish()?;
    if let Some(file) = &plan.history {
        history::write(&stage.url, &stage.schema, file)?;
    }
    let findings = audit(&stage.story.lines, &charges(dir.path())?, &bookings::counts(&stage.url, &stage.schema)?);
    let good = stage.report(&findings, finished);
    if !good || plan.keep {
        drop(stage);
        println!("the log is kept in {}", dir.keep().display());
    }
    Ok(good)
}

struct Stage<'a> {
    plan: &'a Plan,
    dir: &'a Path,
    url: String,
    schema: String,
    server: Option<Cluster>,
    journal: Journal,
    reader: Reader,
    places: Vec<Place>,
    deaths: Deaths,
    story: Story,
    prng: Prng,
}

impl Stage<'_> {
    fn start(&mut self, number: u32, life: u32, proxy: Option<&Proxy>) -> anyhow::Result<Process> {
        let url = proxy.map_or_else(|| self.url.clone(), Proxy::url);
        let lease = self.plan.lease.as_millis().to_string();
        let (number, life, dir) = (number.to_string(), life.to_string(), self.dir.display().to_string());
        let words = ["--worker", &number, "--life", &life, "--dir", &dir, "--url", &url, "--schema", &self.schema, "--lease-ms", &lease];
        let errors = OpenOptions::new().append(true).create(true).open(self.dir.join("errors"))?;
        let mut command = this_program()?;
        command.args(words).env("RUST_BACKTRACE", "1").current_dir(self.dir).stderr(errors);
        Ok(Process::start_silent(&mut command)?)
    }

    /// Starts a new worker in a place.
    fn replace(&mut self, at: usize) -> anyhow::Result<()> {
        let (number, life) = (self.places[at].number, self.places[at].lives + 1);
        let (proxy, cut) = (self.places[at].proxy.clone(), self.places[at].cut);
        let process = self.start(number, life, proxy.as_ref())?;
        self.places[at] = Place { number, lives: life, process, paused: None, proxy, cut };
        Ok(())
    }

    fn is_over(&self, begun: Instant) -> bool {
        match self.plan.until {
            Until::Deaths(wanted) => self.deaths.all() >= wanted,
            Until::Time(time) => begun.elapsed() >= time,
        }
    }

    fn disturb(&mut self) -> anyhow::Result<()> {
        let begun = Instant::now();
        let mut next = begun + Duration::from_secs(2);
        while !self.is_over(begun) {
            std::thread::sleep(LOOK);
            self.follow()?;
            self.go_on(Instant::now())?;
            for at in 0..self.places.len() {
                if let Some(status) = self.places[at].process.status()? {
                    let errors = fs::read_to_string(self.dir.join("errors")).unwrap_or_default();
                    bail!("worker {} ended by itself with {status}: {errors}", self.places[at].number);
                }
            }
            if Instant::now() >= next {
                self.strike()?;
                let (least, most) = BETWEEN_MS;
                next = Instant::now() + Duration::from_millis(u64::from(least + self.prng.below(most - least)));
            }
        }
        Ok(())
    }

    /// Does something to a worker, or to the server.
    fn strike(&mut self) -> anyhow::Result<()> {
        let at = self.prng.below(u32::try_from(self.places.len())?) as usize;
        let (number, process) = (self.places[at].number, self.places[at].process.id());
        match self.prng.below(20) {
            0 if self.plan.crashes && self.server.is_some() => {
                self.crash_server();
                Ok(())
            }
            0..=3 if self.places[at].is_undisturbed() => {
                self.journal.write("closes", &process.to_string(), "");
                println!("worker {number} is asked to close");
                let asked = Instant::now();
                self.places[at].process.terminate()?;
                // It may wait for another one that is paused or cut off.
                let status = loop {
                    if let Some(status) = self.places[at].process.status()? {
                        break status;
                    }
                    self.go_on(Instant::now())?;
                    std::thread::sleep(LOOK);
                };
                ensure!(status.success(), "worker {number} closed with {status}");
                if asked.elapsed() > LATE {
                    println!("worker {number} took {:.1?} to close", asked.elapsed());
                }
                self.deaths.closes += 1;
                self.replace(at)
            }
            4..=8 if self.plan.partitions && self.places[at].is_undisturbed() => {
                self.cut(at);
                Ok(())
            }
            4..=10 if self.places[at].is_undisturbed() => {
                let part = 20 + self.prng.below(230);
                let pause = self.plan.lease * part / 100;
                self.places[at].process.stop()?;
                self.journal.write("paused", &process.to_string(), pause.as_millis());
                println!("worker {number} is paused for {pause:.1?}{}", if part > 100 { ", longer than its lease" } else { "" });
                self.places[at].paused = Some(Instant::now() + pause);
                *(if part > 100 { &mut self.deaths.long_pauses } else { &mut self.deaths.short_pauses }) += 1;
                Ok(())
            }
            _ => {
                // Also one that is paused.
                self.follow()?;
                self.places[at].process.kill()?;
                self.journal.write("killed", &process.to_string(), number);
                self.deaths.kills += 1;
                self.replace(at)
            }
        }
    }

    /// Cuts a worker off from the server, in one direction or in both, or slows its link down.
    fn cut(&mut self, at: usize) {
        let Some(proxy) = &self.places[at].proxy else { return };
        let part = 20 + self.prng.below(230);
        let time = self.plan.lease * part / 100;
        let link = match self.prng.below(4) {
            0 => Link::Cut,
            1 => Link::CutToServer,
            2 => Link::CutToWorker,
            _ => Link::Slow(Duration::from_millis(10 + self.prng.below(300_u64))),
        };
        proxy.set(link);
        let (number, process) = (self.places[at].number, self.places[at].process.id());
        self.journal.write("partition", &process.to_string(), format!("{link:?}"));
        println!("the link of worker {number} is {link:?} for {time:.1?}{}", if part > 100 { ", longer than its lease" } else { "" });
        self.places[at].cut = Some(Instant::now() + time);
        let is_long = part > 100 && !matches!(link, Link::Slow(_));
        *(if is_long { &mut self.deaths.long_partitions } else { &mut self.deaths.short_partitions }) += 1;
    }

    fn crash_server(&mut self) {
        let Some(server) = &self.server else { return };
        println!("the server crashes, and is started again");
        self.journal.write("server-crash", "server", "");
        server.crash();
        std::thread::sleep(Duration::from_millis(self.prng.below(1500_u64)));
        server.start_again();
        self.deaths.crashes += 1;
    }

    /// Lets paused workers go on whose time is over, and mends links.
    fn go_on(&mut self, now: Instant) -> anyhow::Result<()> {
        for place in &mut self.places {
            if let Some(proxy) = place.proxy.as_ref().filter(|_| place.cut.is_some_and(|until| until <= now)) {
                place.cut = None;
                proxy.set(Link::Whole);
                self.journal.write("link-whole", &place.process.id().to_string(), "");
            }
            if place.paused.is_some_and(|until| until <= now) {
                place.paused = None;
                place.process.go_on()?;
                self.journal.write("goes-on", &place.process.id().to_string(), "");
            }
        }
        Ok(())
    }

    /// Reads what was logged since, and tells of takeovers.
    fn follow(&mut self) -> anyhow::Result<()> {
        for line in self.reader.next()? {
            self.story.take_in(&line);
            self.story.lines.push(line);
        }
        self.story.tell();
        self.story.late(|orders| println!("{}", history::stand_of(&self.url, &self.schema, orders)));
        Ok(())
    }

    /// Lets the orders that are left end, and closes the workers; returns whether all have ended.
    fn finish(&mut self) -> anyhow::Result<bool> {
        println!("nothing is killed any more; the orders that are left end");
        self.go_on(Instant::now() + Duration::from_secs(3600))?;
        fs::write(last_call(self.dir), "")?;
        let (mut changed, mut known) = (Instant::now(), 0);
        let mut finished = false;
        while !finished && changed.elapsed() < LAST {
            std::thread::sleep(LOOK);
            self.follow()?;
            if self.story.lines.len() > std::mem::replace(&mut known, self.story.lines.len()) {
                changed = Instant::now();
            }
            finished = self.story.lines.iter().rev().take(100).any(|line| line.what == "all-ended");
        }
        for place in &mut self.places {
            place.process.terminate()?;
        }
        for place in &mut self.places {
            let status = place.process.wait_with_input()?;
            if !status.success() {
                let errors = fs::read_to_string(self.dir.join("errors")).unwrap_or_default();
                bail!("worker {} closed with {status}: {errors}", place.number);
            }
        }
        self.follow()?;
        Ok(finished)
    }

    fn report(&self, findings: &Findings, finished: bool) -> bool {
        let Deaths { kills, long_pauses, short_pauses, long_partitions, short_partitions, closes, crashes } = self.deaths;
        for (time, order) in findings.takeovers.iter().rev().take(3).filter(|(time, _)| *time > self.plan.lease) {
            println!("order {order} was resumed {time:.1?} after the death of its worker");
        }
        for fault in findings.faults.iter().take(20) {
            println!("✗ {fault}");
        }
        let takeovers = &findings.takeovers;
        let part = |percent: usize| takeovers.get((takeovers.len() * percent / 100).min(takeovers.len().saturating_sub(1)));
        let ms =
            |takeover: Option<&(Duration, String)>| takeover.map_or_else(|| "none".to_owned(), |(time, _)| time.as_millis().to_string());
        println!(
            "\nkills={kills} pauses_beyond_lease={long_pauses} shorter_pauses={short_pauses} partitions_beyond_lease={long_partitions} \
             shorter_partitions={short_partitions} clean_closes={closes} server_crashes={crashes} late_bodies={} heard_elsewhere={}",
            findings.late_bodies, findings.heard
        );
        println!(
            "takeovers_after_kill={} takeover_p50_ms={} takeover_p99_ms={} takeover_max_ms={}",
            takeovers.len(),
            ms(part(50)),
            ms(part(99)),
            ms(takeovers.last())
        );
        let heard = |what: &str| findings.calls_heard.get(what).copied().unwrap_or_default();
        println!(
            "calls={} answered={} unknown={} void={} failed={} repeated_calls={} lost_answers={}",
            findings.calls,
            heard("answered"),
            heard("unknown"),
            heard("void"),
            heard("failed"),
            findings.repeated_calls,
            findings.lost_answers
        );
        let Findings { fibers, finished_steps, repeated, lost, duplicates, .. } = findings;
        // A run in which nothing happened shows nothing.
        let good = finished && findings.faults.is_empty() && *fibers > 0 && self.deaths.all() > 0;
        println!(
            "deaths={} fibers={fibers} finished_steps={finished_steps} repeated_finished_steps={repeated} lost_fibers={lost} \
             duplicate_effects={duplicates} audit={}",
            self.deaths.all(),
            if good { "ok" } else { "failed" }
        );
        good
    }
}

impl Story {
    fn take_in(&mut self, line: &Line) {
        match line.what.as_str() {
            "up" => {
                let number = line.about.rsplit('-').next().and_then(|number| number.parse().ok());
                self.places.insert(line.process, number.unwrap_or(0));
            }
            "enter" => {
                if !self.charged.contains(&line.about) && !line.about.ends_with(PARCEL) {
                    self.active.insert(line.about.clone(), line.process);
                }
                for fallen in &mut self.fallen {
                    if let Some(at) = fallen.orders.iter().position(|order| *order == line.about) {
                        fallen.orders.swap_remove(at);
                        let after = Duration::from_micros(line.at_us.saturating_sub(fallen.at_us));
                        fallen.taken.entry(line.process).or_default().push(after);
                    }
                }
            }
            "passed" if line.detail == "charge" => {
                self.active.remove(&line.about);
                self.charged.insert(line.about.clone());
            }
            "killed" => {
                let process: u32 = line.about.parse().unwrap_or(0);
                let orders: Vec<_> = self.active.iter().filter(|(_, by)| **by == process).map(|(order, _)| order.clone()).collect();
                let number = line.detail.parse().unwrap_or(0);
                println!("worker {number} is killed, with {} orders under way", orders.len());
                self.fallen.push(Fallen { number, at_us: line.at_us, orders, taken: BTreeMap::new(), since: Some(Instant::now()) });
            }
            _ => {}
        }
    }

    /// Looks once at the orders of each death that others have not taken over for long.
    fn late(&mut self, look: impl Fn(&[String])) {
        for fallen in &mut self.fallen {
            if fallen.since.take_if(|since| since.elapsed() > LATE).is_some() {
                println!("orders of worker {} are not taken over after {LATE:?}", fallen.number);
                look(&fallen.orders);
            }
        }
    }

    /// Tells of the dead whose orders all go on elsewhere.
    fn tell(&mut self) {
        let places = &self.places;
        self.fallen.retain(|fallen| {
            if !fallen.orders.is_empty() {
                return true;
            }
            for (process, after) in &fallen.taken {
                let worker = places.get(process).copied().unwrap_or(0);
                let last = after.iter().max().copied().unwrap_or_default();
                println!("  worker {worker} took over {} orders of worker {} within {:.0?}", after.len(), fallen.number, last);
            }
            false
        });
    }
}
