//! Agents: waking and leaving, state, keep-alive, schedules. Time is virtual.
mod calls;
mod dying;
mod fibers;
mod given_up;
mod keep_alive;
mod listing;
mod schedules;
mod state;
mod waking;

pub use dying::{die_in_a_schedule, keep_alive_for_ever};

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forever_runtime::agent::{Agent, AgentHandle, Due};
use forever_runtime::testing::VirtualClock;
use forever_runtime::{BoxError, Builder, Forever};
use forever_testkit::waiting::settled;
use tokio::sync::watch;

use crate::support::{Place, Probe};

pub const SECOND: Duration = Duration::from_secs(1);
pub const MINUTE: Duration = Duration::from_secs(60);
pub const HOUR: Duration = Duration::from_secs(3600);

type Start = Arc<dyn Fn(AgentHandle<Clerk>) -> Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>> + Send + Sync>;

type Also = Arc<dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>> + Send + Sync>;

/// Writes everything that is handed to it into the log: `a starts`, `a: tea`, `a leaves`.
pub struct Clerk {
    pub me: AgentHandle<Clerk>,
    world: World,
}

impl Agent for Clerk {
    const CLASS: &'static str = "clerk";
    type State = Vec<String>;

    async fn on_start(&self) -> Result<(), BoxError> {
        self.world.probe.step(&format!("{} starts", self.me.name())).await?;
        let start = self.world.start.lock().unwrap().clone();
        if let Some(start) = start {
            start(self.me.clone()).await?;
        }
        Ok(())
    }

    async fn on_schedule(&self, due: &Due) -> Result<(), BoxError> {
        self.world.dues.lock().unwrap().push(format!("{} {} {}", due.name(), at(due.scheduled()), due.attempt()));
        let also = self.world.also.lock().unwrap().clone();
        if let Some(also) = also {
            also().await?;
        }
        self.world.probe.step(&format!("{}: {}", self.me.name(), due.name())).await?;
        Ok(())
    }
}

impl Drop for Clerk {
    fn drop(&mut self) {
        self.world.probe.note(format!("{} leaves", self.me.name()));
    }
}

/// Tells that a time has come and everything due before it was looked at.
struct Marker(watch::Sender<u64>);

impl Agent for Marker {
    const CLASS: &'static str = "marker";
    type State = ();

    async fn on_schedule(&self, due: &Due) -> Result<(), BoxError> {
        let number: u64 = due.payload()?;
        self.0.send_modify(|seen| *seen = number.max(*seen));
        Ok(())
    }
}

/// A database, time, and what the agents in it have done.
#[derive(Clone)]
pub struct World {
    pub place: Arc<Place>,
    pub probe: Probe,
    pub clock: VirtualClock,
    /// What `on_start` does besides.
    start: Arc<Mutex<Option<Start>>>,
    /// What `on_schedule` does besides.
    also: Arc<Mutex<Option<Also>>>,
    /// Name, time and attempt of everything that was due.
    pub dues: Arc<Mutex<Vec<String>>>,
    marks: watch::Sender<u64>,
}

impl World {
    pub fn new() -> Self {
        World {
            place: Arc::new(Place::new()),
            probe: Probe::default(),
            clock: VirtualClock::new(),
            start: Arc::default(),
            also: Arc::default(),
            dues: Arc::default(),
            marks: watch::Sender::new(0),
        }
    }

    pub fn on_start<F: Future<Output = Result<(), BoxError>> + Send + 'static>(
        &self,
        start: impl Fn(AgentHandle<Clerk>) -> F + Send + Sync + 'static,
    ) {
        *self.start.lock().unwrap() = Some(Arc::new(move |me| Box::pin(start(me))));
    }

    pub fn on_schedule<F: Future<Output = Result<(), BoxError>> + Send + 'static>(&self, also: impl Fn() -> F + Send + Sync + 'static) {
        *self.also.lock().unwrap() = Some(Arc::new(move || Box::pin(also())));
    }

    pub fn builder(&self) -> Builder {
        let (world, marks) = (self.clone(), self.marks.clone());
        Forever::builder()
            .clock(self.clock.clone())
            .sqlite(self.place.path())
            .agent(move |me| Clerk { me, world: world.clone() })
            .agent(move |_| Marker(marks.clone()))
    }

    pub async fn open(&self) -> Forever {
        self.builder().open().await.unwrap()
    }

    /// Lets time pass and waits until everything that was due by then has been looked at.
    pub async fn pass(&self, forever: &Forever, by: Duration) {
        let number = *self.marks.borrow() + 1;
        forever.agent::<Marker>("m").schedule(by, "mark", number).await.unwrap();
        self.clock.advance(by);
        self.marks.subscribe().wait_for(|seen| *seen >= number).await.unwrap();
    }

    pub fn dues(&self) -> Vec<String> {
        self.dues.lock().unwrap().clone()
    }

    /// Waits until a query gives a number.
    pub async fn until(&self, query: &str, wanted: i64) {
        while self.place.number(query) != wanted {
            settled().await;
        }
    }

    pub fn heartbeats(&self) -> i64 {
        self.place.number("SELECT count(*) FROM agents WHERE heartbeat_ms IS NOT NULL")
    }
}

/// Seconds since the clock's start; 0 before.
pub fn at(time: std::time::SystemTime) -> u64 {
    time.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().as_secs().saturating_sub(1_704_067_200)
}
