//! The real runtime beside the model: does what is asked of both, and says where they differ.
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;
use std::path::PathBuf;
use std::task::Poll;
use std::time::{Duration, Instant, UNIX_EPOCH};

use forever::fiber::{FiberError, FiberErrorKind, FiberFilter, FiberState, Resolution};
use forever::ops::OpResolution;
use forever::testing::{Fuse, VirtualClock};
use forever::{Clock, Durability, ErrorKind, Forever, Retention};
use forever_testkit::database;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::driver::{Answer, Command, Hall, Held, Keeper, Order, guest, puppet};
use crate::model::{Fiber, Model, Process, Task};
use crate::ops::{self, Numbers, Op};
use crate::requests::{Asked, How, Named, Said};
use crate::rows::{Database, Ids, Rows, differences, of_model, of_status};

/// The model, and a real database with a process that may be open.
pub(crate) struct Pair {
    model: Model,
    hall: Hall,
    clock: VirtualClock,
    folder: TempDir,
    begun: i64,
    life: Option<Open>,
    ids: Ids,
    /// How long the runtime may take to come to rest.
    patience: Duration,
    /// What was asked for, to be told when something is wrong.
    story: String,
    pub(crate) seen: Seen,
}

/// What happened, to see that random sequences come everywhere.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) asked: BTreeMap<String, u64>,
    pub(crate) states: BTreeMap<String, u64>,
    pub(crate) deaths_at_writes: u64,
    /// Of these, how many left something between what was before and what would have been after.
    pub(crate) half_way: u64,
    /// Calls that were given up: of which nothing came, and that were carried out.
    pub(crate) given_up: [u64; 2],
}

/// What a call says that was given up; no error of a call that was not.
const GIVEN_UP: ErrorKind = ErrorKind::Format;

struct Open {
    forever: Forever,
    fuse: Fuse,
    database: Database,
    /// Who waits for fibers since before they stopped.
    waiters: BTreeMap<String, JoinHandle<Result<Vec<String>, FiberError>>>,
}

/// Whether the process is still there.
#[derive(PartialEq, Eq)]
enum Lives {
    Yes,
    No,
}

impl Pair {
    pub(crate) fn new(patience: Duration) -> Self {
        let clock = VirtualClock::new();
        let begun = i64::try_from(clock.now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
        Pair {
            model: Model::default(),
            hall: Hall::default(),
            clock,
            folder: tempfile::tempdir().unwrap(),
            begun,
            life: None,
            ids: Ids::default(),
            patience,
            story: String::new(),
            seen: Seen::default(),
        }
    }

    /// All of a sequence, and then two more lives, which find what is stored and nothing else.
    pub(crate) async fn run(&mut self, ops: &[Op], lives: &[ops::Life]) -> Result<(), String> {
        let mut numbers = Numbers { last: 0, lives: lives.iter().cycle() };
        for op in ops {
            if self.model.process.is_none() && op.needs_process() {
                self.ask(numbers.opens()).await?;
            }
            if self.model.process.is_none() && op.needs_process() {
                // It has died before it was open.
                continue;
            }
            if let Some(asked) = op.chosen(&self.model, &mut numbers) {
                self.ask(asked).await?;
            }
        }
        for _ in 0..2 {
            if self.model.process.is_some() {
                self.ask(Asked::Kill).await?;
            }
            self.ask(Asked::Open { process: Process { guests: true, answer: Answer::Resume }, dies: None }).await?;
        }
        self.ask(Asked::Close).await
    }

    /// Asks both for the same.
    pub(crate) async fn ask(&mut self, asked: Asked) -> Result<(), String> {
        let _ = writeln!(self.story, "  {asked:?}");
        *self.seen.asked.entry(format!("{asked:?}").split(' ').next().unwrap_or_default().to_owned()).or_default() += 1;
        self.prepare(&asked);
        let before = self.model.clone();
        let mut after = before.clone();
        let mut expected = after.does(&asked);
        let writes = self.life.as_ref().map_or(0, |life| life.fuse.writes());
        let mut said = self.really(&asked).await;
        if said == Some(Err(GIVEN_UP)) {
            // Either it was carried out, whole, or nothing of it was.
            let (is, _) = self.life.as_ref().expect("it is open").database.rows();
            if is == of_model(&before) {
                after = before.clone();
            }
            self.seen.given_up[usize::from(after != before)] += 1;
            (said, expected) = (Some(Ok(0)), Ok(0));
        }
        let lives = match said {
            None => {
                self.died(writes, &[before, after]).await?;
                Lives::No
            }
            Some(said) if said != expected => return Err(self.wrong(&format!("it should say {expected:?}, and says {said:?}"))),
            Some(_) if after.process.is_none() => {
                self.model = after;
                self.agrees_while_closed()?;
                Lives::No
            }
            Some(_) => {
                let rest = after.at_rest();
                let lives = self.comes_to(&rest).await?;
                match lives {
                    Lives::Yes => self.model = rest,
                    Lives::No => self.died(writes, &[after]).await?,
                }
                lives
            }
        };
        for (name, fiber) in &self.model.fibers {
            self.hall.goes_on(name, fiber.passed);
        }
        if lives == Lives::Yes {
            for fiber in self.model.fibers.values() {
                *self.seen.states.entry(fiber.state.to_string()).or_default() += 1;
            }
        }
        match self.hall.wrongs() {
            wrongs if wrongs.is_empty() => Ok(()),
            wrongs => Err(self.wrong(&wrongs.join("; "))),
        }
    }

    fn wrong(&self, what: &str) -> String {
        format!("after\n{}  {what}", self.story)
    }

    /// What is outside the process.
    fn prepare(&mut self, asked: &Asked) {
        match asked {
            Asked::Open { process, .. } => self.hall.answer(process.answer),
            Asked::Spawn { name, .. } if !self.model.fibers.contains_key(name) => self.hall.goes_on(name, 0),
            Asked::Tell { name, order: Order::Fail } => self.mend(name, false),
            Asked::Resume { name } => self.mend(name, true),
            Asked::ResolveOp { name, number, how: How::NotExecuted } => self.hall.may_begin_again(&self.op(name, *number)),
            Asked::GivenUp { asked, .. } => self.prepare(&asked.clone()),
            _ => {}
        }
    }

    fn mend(&mut self, name: &str, mended: bool) {
        self.hall.mend(name, mended);
        if let Some(fiber) = self.model.fibers.get_mut(name) {
            fiber.mended = mended;
        }
    }

    fn id(&self, name: &str) -> &str {
        self.ids.fibers.get(name).map_or("nobody", String::as_str)
    }

    fn op(&self, name: &str, number: u64) -> String {
        self.ids.ops.get(&(name.to_owned(), number)).cloned().unwrap_or_default()
    }

    /// Asks the real one; `None` if it dies before it answers.
    async fn really(&mut self, asked: &Asked) -> Option<Said> {
        match asked {
            Asked::Open { process, dies } => return self.open(process.guests, *dies).await,
            Asked::Kill => {
                self.life.as_ref()?.fuse.blow();
                self.ends().await;
                return Some(Ok(0));
            }
            Asked::Pass { seconds } => {
                self.clock.advance(Duration::from_secs(*seconds));
                return Some(Ok(0));
            }
            _ => {}
        }
        let life = self.life.as_ref()?;
        if let Asked::GivenUp { asked, polls } = asked {
            return tokio::select! {
                biased;
                () = life.fuse.blown() => None,
                said = self.given_up(&life.forever, asked, *polls) => Some(said),
            };
        }
        let answer = async {
            match self.asked_of(&life.forever, asked).await {
                Ok(said) => Ok(said),
                Err(error) => Err(error.kind()),
            }
        };
        let said = tokio::select! {
            biased;
            () = life.fuse.blown() => return None,
            said = answer => said,
        };
        if matches!(asked, Asked::Close) {
            self.ends().await;
        }
        Some(said)
    }

    /// Asks, and drops the call after so many polls, unless it is done by then.
    async fn given_up(&self, forever: &Forever, asked: &Asked, polls: u64) -> Said {
        let said = {
            let mut call = std::pin::pin!(self.asked_of(forever, asked));
            let mut left = polls;
            std::future::poll_fn(|cx| {
                left -= 1;
                match call.as_mut().poll(cx) {
                    Poll::Ready(said) => Poll::Ready(Some(said)),
                    Poll::Pending if left == 0 => Poll::Ready(None),
                    Poll::Pending => Poll::Pending,
                }
            })
            .await
        };
        match said {
            Some(Ok(said)) => return Ok(said),
            Some(Err(error)) => return Err(error.kind()),
            None => {}
        }
        // What it has begun is in the writer's queue by then, and carried out when something behind it is; or a session does it.
        for _ in 0..200 {
            tokio::task::yield_now().await;
        }
        if database::is_in_postgres() {
            database::until_idle(&self.path()).await;
        } else {
            forever.transaction(|_| Ok::<_, forever::Error>(())).await.map_err(|error| error.kind())?;
        }
        Err(GIVEN_UP)
    }

    async fn asked_of(&self, forever: &Forever, asked: &Asked) -> forever::Result<u64> {
        match asked {
            Asked::Spawn { name, how, guest: true, agent } => {
                return self.spawn(forever.spawn(guest(name.clone())), name, *how, *agent).await;
            }
            Asked::Spawn { name, how, guest: false, agent } => {
                return self.spawn(forever.spawn(puppet(name.clone())), name, *how, *agent).await;
            }
            Asked::Tell { name, order } => self.hall.tell(name, Command::Order(order.clone())),
            Asked::Give { name, gave } => self.hall.tell(name, Command::Gave(gave.clone())),
            Asked::Send { name, word } => forever.send(self.id(name), "word", word).await?,
            Asked::Cancel { name, reason } => forever.cancel(self.id(name), reason).await?,
            Asked::Resume { name } => forever.resume(self.id(name)).await?,
            Asked::Restart { name } => forever.restart(self.id(name)).await?,
            Asked::Resolve { name, completes: true } => forever.resolve(self.id(name), Resolution::completed(&["said so"])?).await?,
            Asked::Resolve { name, completes: false } => forever.resolve(self.id(name), Resolution::failed("somebody said so")).await?,
            Asked::ResolveOp { name, number, how } => {
                let how = match how {
                    How::Completed => OpResolution::completed("said so")?,
                    How::NotExecuted => OpResolution::NotExecuted,
                    How::Failed => OpResolution::Failed("declined".to_owned()),
                };
                forever.resolve_op(&self.op(name, *number), how).await?;
            }
            Asked::Delete { state } => return forever.delete(FiberFilter::new().state(*state)).await,
            Asked::Close => forever.close().deadline(Duration::ZERO).await?,
            Asked::Open { .. } | Asked::Kill | Asked::Pass { .. } | Asked::GivenUp { .. } => unreachable!("not asked of a runtime"),
        }
        Ok(0)
    }

    async fn spawn<F>(&self, spawn: forever::fiber::Spawn<F>, name: &str, how: Named, agent: Option<&str>) -> forever::Result<u64>
    where
        F: forever::fiber::Fiber,
    {
        let spawn = match how {
            Named::Key => spawn.key(name),
            Named::Id => spawn.id(name),
            Named::Nothing => spawn,
        };
        let spawn = if let Some(agent) = agent { spawn.agent("keeper", agent) } else { spawn };
        Ok(u64::from(spawn.await?.accepted()))
    }

    async fn open(&mut self, guests: bool, dies: Option<(u64, bool)>) -> Option<Said> {
        let fuse = match dies {
            Some((write, true)) => Fuse::after(write),
            Some((write, false)) => Fuse::before(write),
            None => Fuse::never(),
        };
        let (path, hall) = (self.path(), self.hall.clone());
        let builder = Forever::builder().sqlite(&path).durability(Durability::Process).clock(self.clock.clone()).fuse(fuse.clone());
        let builder = builder.retention(Retention::forever()).resource(self.hall.clone()).fiber::<puppet>();
        let builder = builder.agent(move |_| Keeper(hall.clone()));
        let builder = if guests { builder.fiber::<guest>() } else { builder };
        let opened = tokio::select! {
            biased;
            () = fuse.blown() => return None,
            opened = builder.open() => opened,
        };
        match opened {
            Ok(forever) => {
                let database = Database::look(&path, self.begun).expect("it is open");
                self.life = Some(Open { forever, fuse, database, waiters: BTreeMap::new() });
                Some(Ok(0))
            }
            Err(error) => Some(Err(error.kind())),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("model.db")
    }

    /// Drops all that is of the process.
    async fn ends(&mut self) {
        if let Some(Open { waiters, .. }) = self.life.take() {
            for waiter in waiters.into_values() {
                waiter.abort();
                let _ = waiter.await;
            }
        }
        while !self.hall.there().is_empty() {
            tokio::task::yield_now().await;
        }
        database::end_sessions(&self.path()).await;
    }

    /// Waits until the runtime stands as it should: what is stored, who waits to be told, and what it says when it is asked.
    #[expect(clippy::disallowed_methods, reason = "how long to wait for something that does not come")]
    async fn comes_to(&mut self, rest: &Model) -> Result<Lives, String> {
        let should = of_model(rest);
        let begun = Instant::now();
        let mut turns = 0;
        loop {
            let mut life = self.life.take().expect("it is open");
            let fuse = life.fuse.clone();
            let stands = tokio::select! {
                biased;
                () = fuse.blown() => Ok(None),
                stands = self.stands(&mut life, rest, &should) => stands.map(Some),
            };
            self.life = Some(life);
            match stands.map_err(|why| self.wrong(&why))? {
                None => return Ok(Lives::No),
                Some(None) => return Ok(Lives::Yes),
                Some(Some(why)) if begun.elapsed() > self.patience => return Err(self.wrong(&why)),
                Some(Some(_)) => turn(turns).await,
            }
            turns += 1;
        }
    }

    /// Looks whether all is as it should be; what is not, where that may be because the runtime has not come to rest.
    async fn stands(&mut self, life: &mut Open, rest: &Model, should: &Rows) -> Result<Option<String>, String> {
        if let Some(difference) = self.differs(life, rest, should) {
            return Ok(Some(difference));
        }
        for (name, fiber) in &rest.fibers {
            self.waits_for(life, name, fiber).await?;
        }
        // One that is looked at anew may come from the state in which it was to the same one: whoever waits for it hears when it has.
        if let Some(difference) = self.differs(life, rest, should) {
            return Ok(Some(difference));
        }
        self.says(life, rest, should).await.map(|()| None)
    }

    /// In what the database, and those who wait to be told, are not as they should be.
    fn differs(&mut self, life: &Open, rest: &Model, should: &Rows) -> Option<String> {
        let (is, ids) = life.database.rows();
        self.ids = ids;
        let (hall, there) = (there_in(rest), self.hall.there());
        if is == *should && there == hall {
            return None;
        }
        let who = if there == hall { String::new() } else { format!("\n    to be told should be {hall:?}, and are {there:?}") };
        Some(format!("it does not come to rest as it should:{}{who}", differences(should, &is)))
    }

    /// Whether the lists that the runtime gives are what is stored.
    async fn says(&self, life: &Open, rest: &Model, should: &Rows) -> Result<(), String> {
        let page = life.forever.fibers().limit(1000).await.map_err(|error| error.to_string())?;
        let listed: Rows = page
            .fibers
            .iter()
            .map(|status| {
                let name = self.ids.fibers.iter().find(|(_, id)| **id == status.id).map(|(name, _)| name.clone());
                (name.unwrap_or_else(|| status.id.clone()), of_status(status, &self.ids))
            })
            .collect();
        let mut to_list = should.clone();
        for row in to_list.values_mut() {
            row.retain(|field, _| listed.values().next().is_none_or(|listed| listed.contains_key(field)));
        }
        if to_list != listed {
            return Err(format!("the list of fibers is not what is stored:{}", differences(&to_list, &listed)));
        }
        for (name, fiber) in &rest.fibers {
            let ops = life.forever.ops(self.id(name)).await.map_err(|error| error.to_string())?;
            let told: Vec<_> = ops.iter().map(|op| (op.checkpoints.unwrap_or_default(), (op.state, op.resolved))).collect();
            let stored: Vec<_> = fiber.ops.iter().map(|(number, act)| (*number, (act.state, act.resolved))).collect();
            if told != stored {
                return Err(format!("the ledger of {name} should be {stored:?}, and is {told:?}"));
            }
        }
        Ok(())
    }

    /// Whoever waits for a fiber hears how it has stopped, and nothing before.
    async fn waits_for(&self, life: &mut Open, name: &str, fiber: &Fiber) -> Result<(), String> {
        let handle = life.forever.find_fiber::<Vec<String>>(self.id(name)).await.map_err(|error| error.to_string())?;
        let Some(should) = outcome(fiber) else {
            let waiter = life.waiters.entry(name.to_owned()).or_insert_with(|| tokio::spawn(async move { handle.wait().await }));
            return if waiter.is_finished() { Err(format!("whoever waits for {name} has heard of an end")) } else { Ok(()) };
        };
        let before = life.waiters.remove(name);
        let now = tokio::time::timeout(self.patience, handle.wait()).await;
        let before = match before {
            Some(waiter) => Some(tokio::time::timeout(self.patience, waiter).await),
            None => None,
        };
        let told = |told: Result<Vec<String>, FiberError>| told.map_err(|error| error.kind());
        let now = now.map(told).map_err(|_| "nothing");
        let before = before.map(|before| before.map(|told_| told(told_.expect("it waits"))).map_err(|_| "nothing"));
        for heard in [Some(now), before].into_iter().flatten() {
            if heard.as_ref() != Ok(&should) {
                return Err(format!("whoever waits for {name} should hear {should:?}, and hears {heard:?}"));
            }
        }
        Ok(())
    }

    fn agrees_while_closed(&mut self) -> Result<(), String> {
        let (is, ids) = self.stored();
        let should = of_model(&self.model);
        if is != should {
            return Err(self.wrong(&format!("it leaves something else than it should:{}", differences(&should, &is))));
        }
        self.ids = ids;
        Ok(())
    }

    fn stored(&self) -> (Rows, Ids) {
        Database::look(&self.path(), self.begun).map(|database| database.rows()).unwrap_or_default()
    }

    /// The process has died on its way from one of these on, after so many writes: it leaves what one of the models on the way is.
    async fn died(&mut self, writes_before: u64, from: &[Model]) -> Result<(), String> {
        let writes = self.life.as_ref().map_or(u64::MAX, |life| life.fuse.writes()) - writes_before;
        self.story += "    dies\n";
        self.seen.deaths_at_writes += 1;
        self.ends().await;
        let (is, ids) = self.stored();
        let fits = |model: &Model| of_model(model) == is && self.shown(model);
        let mut reached: HashSet<Model> = HashSet::new();
        let mut edge: Vec<Model> = from.to_vec();
        let mut least = None;
        for depth in 0..=writes {
            if let Some(model) = edge.iter().find(|model| fits(model)) {
                self.seen.half_way += u64::from(depth > 0);
                self.model = model.clone();
                self.model.dies();
                self.ids = ids;
                return Ok(());
            }
            for model in &edge {
                let difference = differences(&of_model(model), &is);
                if least.as_ref().is_none_or(|least: &String| difference.len() < least.len()) {
                    least = Some(difference);
                }
            }
            edge = edge.iter().flat_map(Model::next).filter(|model| reached.insert(model.clone())).collect();
            if edge.is_empty() {
                break;
            }
        }
        let least =
            least.filter(|least| !least.is_empty()).unwrap_or_else(|| " a fiber has shown to have passed more than is stored".to_owned());
        Err(self.wrong(&format!("it leaves what is neither before, after nor between; at the least:{least}")))
    }

    /// Whether all that fibers have shown to have passed is stored.
    fn shown(&self, model: &Model) -> bool {
        model.fibers.iter().all(|(name, fiber)| {
            let anew = self.model.fibers.get(name).is_some_and(|before| before.restarts < fiber.restarts);
            anew || fiber.passed >= self.hall.passed(name)
        })
    }
}

/// Lets the tasks of the runtime and its threads go on.
async fn turn(turns: u32) {
    if turns % 64 == 63 { tokio::time::sleep(Duration::from_millis(1)).await } else { tokio::task::yield_now().await }
}

/// Who waits to be told.
fn there_in(model: &Model) -> BTreeMap<String, Held> {
    let held = |fiber: &Fiber| match &fiber.task {
        Task::Runs(run) => Some(Held { acts: run.acts, heard: fiber.heard.clone(), asked: fiber.cancel.is_some() }),
        _ => None,
    };
    model.fibers.iter().filter_map(|(name, fiber)| Some((name.clone(), held(fiber)?))).collect()
}

/// What whoever waits for a fiber hears; nothing while it has not stopped.
fn outcome(fiber: &Fiber) -> Option<Result<Vec<String>, FiberErrorKind>> {
    Some(match fiber.state {
        FiberState::Completed => Ok(fiber.result.clone().unwrap_or_default()),
        FiberState::Failed => Err(FiberErrorKind::Failed),
        FiberState::Cancelled => Err(FiberErrorKind::Cancelled),
        FiberState::Parked => Err(FiberErrorKind::Parked),
        FiberState::Interrupted => Err(FiberErrorKind::Interrupted),
        _ => return None,
    })
}

impl Seen {
    pub(crate) fn add(&mut self, other: &Seen) {
        for (all, one) in [(&mut self.asked, &other.asked), (&mut self.states, &other.states)] {
            for (what, times) in one {
                *all.entry(what.clone()).or_default() += times;
            }
        }
        self.deaths_at_writes += other.deaths_at_writes;
        self.half_way += other.half_way;
        for (all, one) in self.given_up.iter_mut().zip(other.given_up) {
            *all += one;
        }
    }

    /// Whether the sequences have come to everything that can be asked for, and to each state that fibers rest in; a sample has
    /// come to most of both.
    pub(crate) fn is_enough(&self, is_sample: bool) {
        let (asked, states) = (self.asked.len(), self.states.len());
        if is_sample {
            assert!(asked >= 10 && states >= 5, "{self:?}");
            assert!(self.given_up.iter().any(|times| *times > 0), "{self:?}");
        } else {
            assert_eq!((asked, states), (15, 7), "{self:?}");
            assert!(self.given_up.iter().all(|times| *times > 0), "{self:?}");
        }
    }
}
