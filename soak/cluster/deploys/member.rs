//! A member of the fleet: a process that runs the jobs it claims, sends messages to jobs that ask
//! for one, and looks after effects in doubt.
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::pin::Pin;
use std::time::{Duration, SystemTime};

use forever::fiber::FiberState;
use forever::ops::{OpResolution, OpState};
use forever::prelude::*;
use forever::store::PostgresStore;
use forever::{Clock, ErrorKind, SystemClock};
use forever_testkit::process::end_with_parent;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use super::jobs::{JOBS, Office, effects_of, id_of, job};
use super::refused::Refusals;
use crate::journal::{Journal, Reader};

/// Arguments of a member.
pub(crate) struct Member {
    pub(crate) role: Role,
    pub(crate) dir: PathBuf,
    pub(crate) url: String,
    pub(crate) schema: String,
    pub(crate) lease: Duration,
    /// How far its clock is ahead of the machine's, in milliseconds.
    pub(crate) skew_ms: i64,
    pub(crate) rounds: u64,
}

/// What a member does beside running what it claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Starts the jobs.
    First,
    /// Sends messages, and resolves effects in doubt.
    Sender,
    /// Nothing.
    Idle,
    /// Writes down results and ledgers when all jobs have ended, and closes.
    Auditor,
}

impl Role {
    const ALL: [(Role, &'static str); 4] =
        [(Role::First, "first"), (Role::Sender, "sender"), (Role::Idle, "idle"), (Role::Auditor, "auditor")];

    pub(crate) fn word(self) -> &'static str {
        Self::ALL.iter().find(|(role, _)| *role == self).map_or("", |(_, word)| word)
    }
}

impl std::str::FromStr for Role {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        Self::ALL.iter().find(|(_, there)| *there == word).map(|(role, _)| *role).ok_or_else(|| format!("no role: {word}"))
    }
}

/// How often a member reads the log.
const LOOK: Duration = Duration::from_millis(2);

/// How often a member looks for effects in doubt.
const OPERATE: Duration = Duration::from_millis(100);

/// How long a job that asks is left to the member whose turn it is. After that all send.
const TURN: Duration = Duration::from_millis(400);

/// How long the auditor waits for the result of a job that has ended, or never will.
const ENDED: Duration = Duration::from_secs(2);

/// What the auditor writes down of a job that does not end.
pub(super) const STUCK: &str = "nothing";

/// A clock that is wrong.
#[derive(Debug)]
struct SkewedClock {
    clock: SystemClock,
    skew_ms: i64,
}

impl Clock for SkewedClock {
    fn now(&self) -> SystemTime {
        let (now, skew) = (self.clock.now(), Duration::from_millis(self.skew_ms.unsigned_abs()));
        if self.skew_ms < 0 { now - skew } else { now + skew }
    }

    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        self.clock.sleep(duration)
    }

    fn id(&self) -> String {
        self.clock.id()
    }
}

pub(crate) fn run(member: Member) -> anyhow::Result<()> {
    end_with_parent();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(work(member))
}

async fn work(member: Member) -> anyhow::Result<()> {
    let mut closes = signal(SignalKind::terminate())?;
    let refusals = Refusals::count()?;
    let journal = Journal::open(&member.dir)?;
    let (role, process) = (member.role, std::process::id().to_string());
    let forever = open(&member).await?;
    journal.write("up", &process, role.word());
    let fleet = Fleet { forever: forever.clone(), journal, member };
    tokio::select! {
        done = fleet.serve() => done?,
        _ = closes.recv() => {}
    }
    fleet.journal.write("closes", &process, "");
    forever.close().await?;
    fleet.journal.write("refused", &process, refusals.so_far());
    Ok(())
}

async fn open(member: &Member) -> forever::Result<Forever> {
    let store = PostgresStore::builder(&member.url).schema(&member.schema).lease(member.lease).connect().await?;
    let office = Office::new(&member.dir).map_err(|why| forever::Error::new(ErrorKind::Setup, format!("{why:#}")))?;
    let clock = SkewedClock { clock: SystemClock::new(), skew_ms: member.skew_ms };
    Forever::builder().store(store).clock(clock).fiber::<job>().resource(office).open().await
}

/// The log so far, as far as it says which jobs ask for a message.
#[derive(Default)]
struct Asked {
    /// The round that the driver has announced.
    round: Option<u64>,
    /// The processes that send.
    senders: Vec<u32>,
    /// Jobs that ask, by the text of the question, and since when this member knows of it.
    open: BTreeMap<(String, String), Instant>,
    /// Ids of the operations whose effects the bank has seen.
    charged: BTreeSet<String>,
}

impl Asked {
    fn take_in(&mut self, line: crate::journal::Line) {
        match line.what.as_str() {
            "round" => self.round = line.about.parse().ok(),
            "senders" => self.senders = line.detail.split(' ').filter_map(|process| process.parse().ok()).collect(),
            "asks" => drop(self.open.entry((line.about, line.detail)).or_insert_with(Instant::now)),
            // It has heard.
            "begin" => self.open.retain(|(job, _), _| *job != line.about),
            "charged" => drop(line.detail.split_once(' ').map(|(_, op)| self.charged.insert(op.to_owned()))),
            _ => {}
        }
    }

    /// The questions that this process answers now.
    fn take(&mut self) -> Vec<(String, String, u64)> {
        let place = self.senders.iter().position(|process| *process == std::process::id());
        let (members, current) = (self.senders.len().max(1), self.round);
        let mut taken = Vec::new();
        self.open.retain(|(job, question), since| {
            let Some((topic, round)) = question.split_once(' ').and_then(|(topic, round)| Some((topic, round.parse().ok()?))) else {
                return false;
            };
            if current.is_none_or(|current| round > current) {
                return true;
            }
            let hash = job.bytes().chain(question.bytes()).fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
            let is_ours = place == Some(hash % members);
            if is_ours || since.elapsed() > TURN {
                taken.push((job.clone(), topic.to_owned(), round));
                return false;
            }
            true
        });
        taken
    }
}

struct Fleet {
    forever: Forever,
    journal: Journal,
    member: Member,
}

impl Fleet {
    async fn serve(&self) -> anyhow::Result<()> {
        match self.member.role {
            Role::Auditor => return self.audit().await,
            Role::Idle => return std::future::pending().await,
            Role::First => self.start_jobs().await?,
            Role::Sender => {}
        }
        let (mut reader, mut asked) = (Reader::open(&self.member.dir)?, Asked::default());
        let mut operates = Instant::now() + OPERATE;
        loop {
            reader.next()?.into_iter().for_each(|line| asked.take_in(line));
            for (job, topic, round) in asked.take() {
                let (forever, id) = (self.forever.clone(), format!("{job}-{topic}-{round}"));
                // A job that did not hear it is sent it by the others.
                tokio::spawn(async move { forever.send(&job, &topic, &round).message_id(id).await });
            }
            if Instant::now() >= operates {
                self.operate(&mut reader, &mut asked).await?;
                operates = Instant::now() + OPERATE;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Starts the jobs, each once however often this is called.
    async fn start_jobs(&self) -> anyhow::Result<()> {
        for number in 0..JOBS {
            self.forever.spawn(job(self.member.rounds)).id(id_of(number)).await?;
        }
        self.journal.write("started", "jobs", JOBS);
        Ok(())
    }

    /// Resolves effects in doubt, as a person does: asks the bank.
    async fn operate(&self, reader: &mut Reader, asked: &mut Asked) -> anyhow::Result<()> {
        // A store that cannot be asked is asked again.
        let Ok(parked) = self.forever.fibers().name("job").state(FiberState::Parked).limit(1000).await else { return Ok(()) };
        for fiber in parked.fibers {
            let Ok(ops) = self.forever.ops(&fiber.id).await else { continue };
            // What the bank knows by now.
            reader.next()?.into_iter().for_each(|line| asked.take_in(line));
            for op in ops.into_iter().filter(|op| op.state == OpState::Started) {
                let is_charged = asked.charged.contains(&op.id);
                let how = if is_charged { OpResolution::completed(&1_u64)? } else { OpResolution::NotExecuted };
                if self.forever.resolve_op(&op.id, how).await.is_ok() {
                    let how = if is_charged { "completed" } else { "not-executed" };
                    self.journal.write("resolved", &fiber.id, format_args!("{how} {}", op.id));
                }
            }
        }
        Ok(())
    }

    /// Writes down the result of each job, and what its ledger says.
    async fn audit(&self) -> anyhow::Result<()> {
        for number in 0..JOBS {
            let id = id_of(number);
            let text = match tokio::time::timeout(ENDED, self.forever.fiber::<job>(&id).wait()).await {
                Ok(Ok(result)) => result.to_string(),
                Ok(Err(why)) => why.to_string(),
                Err(_) => STUCK.to_owned(),
            };
            self.journal.write("ended", &id, text.replace('\n', " "));
            for op in self.forever.ops(&id).await? {
                self.journal.write("ledger", &id, format_args!("{} {:?}", op.step, op.state));
            }
        }
        self.journal.write("audited", "jobs", effects_of(self.member.rounds));
        Ok(())
    }
}
