//! Fibers that do what they are told, and the hall in which they wait for it. The hall is outside the process and outlives it.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use forever::BoxError;
use forever::agent::{Agent, RecoveredFiber, RecoveryAction};
use forever::prelude::*;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

/// What a fiber is told at its next step.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Order {
    Pass,
    /// For so many seconds.
    Sleep(u64),
    Hear,
    HearFor(u64),
    /// A child of this name.
    Spawn(String),
    /// Waits for the child that it spawned last.
    Join,
    /// An effect, which takes as long as it is told.
    Act,
    /// Fails each time it comes here until it is mended.
    Fail,
    End,
}

/// The most deaths that a puppet may see between two checkpoints.
pub(crate) const MAX_RECOVERIES: u32 = 2;

// Two functions that do the same: a program that does not register `guest` parks its fibers and no others.
macro_rules! puppet {
    ($function:ident) => {
        #[fiber(max_recoveries = 2)]
        pub(crate) async fn $function(ctx: &FiberContext, hall: Res<Hall>, name: String) -> anyhow::Result<Vec<String>> {
            let mut heard: Vec<String> = Vec::new();
            let mut children: Vec<FiberHandle<Vec<String>>> = Vec::new();
            let mut passed = 0;
            loop {
                let order = step!("order", hall.order(ctx, &name, passed, &heard).await);
                passed += 1;
                match order {
                    Order::Pass => {}
                    Order::Sleep(seconds) => sleep!(Duration::from_secs(seconds)),
                    Order::Hear => {
                        let word: u64 = recv!("word");
                        heard.push(word.to_string());
                    }
                    Order::HearFor(seconds) => {
                        let word: Option<u64> = recv!("word", timeout = Duration::from_secs(seconds));
                        heard.push(word.map_or("nothing".to_owned(), |word| word.to_string()));
                    }
                    Order::Spawn(child) => children.push(spawn!(puppet(child))),
                    Order::Join => {
                        if let Some(child) = children.pop() {
                            let ended = wait!(child);
                            heard.push(told_of(&ended));
                        }
                    }
                    Order::Act => {
                        let gave = step!("act", effect, |op| hall.act(ctx, &name, op.id(), &heard).await?);
                        heard.push(gave);
                    }
                    Order::Fail => anyhow::ensure!(hall.is_mended(&name), "it is broken"),
                    Order::End => return Ok(heard),
                }
            }
        }
    };
}

puppet!(puppet);
puppet!(guest);

/// What a parent notes of its child.
fn told_of(ended: &Result<Vec<String>, forever::fiber::FiberError>) -> String {
    match ended {
        Ok(_) => "completed".to_owned(),
        Err(error) => format!("{:?}", error.kind()).to_lowercase(),
    }
}

/// What its agent says of each fiber that was interrupted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    #[default]
    Resume,
    Restart,
    Skip,
    Complete,
    Fail,
}

#[derive(Debug)]
pub(crate) struct Keeper(pub(crate) Hall);

impl Agent for Keeper {
    const CLASS: &'static str = "keeper";
    type State = ();

    async fn on_fiber_recovered(&self, _: &RecoveredFiber) -> Result<RecoveryAction, BoxError> {
        Ok(match self.0.inner().answer {
            Answer::Resume => RecoveryAction::Resume,
            Answer::Restart => RecoveryAction::Restart,
            Answer::Skip => RecoveryAction::Skip,
            Answer::Complete => RecoveryAction::complete(&["said so"])?,
            Answer::Fail => RecoveryAction::Fail("somebody said so".to_owned()),
        })
    }
}

/// Where fibers wait to be told what to do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hall(Arc<Mutex<Inner>>);

#[derive(Debug, Default)]
struct Inner {
    there: BTreeMap<String, (Held, oneshot::Sender<Command>)>,
    /// The orders that each fiber has shown to have passed.
    passed: BTreeMap<String, u64>,
    mended: BTreeSet<String>,
    /// The bodies of effects that were begun and are not known to have failed, by the ids of the operations.
    begun: BTreeSet<String>,
    answer: Answer,
    wrong: Vec<String>,
}

/// A fiber that waits to be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Held {
    /// Whether it is in the body of an effect.
    pub(crate) acts: bool,
    pub(crate) heard: Vec<String>,
    /// Whether it was asked to stop.
    pub(crate) asked: bool,
}

#[derive(Debug)]
pub(crate) enum Command {
    Order(Order),
    /// How its effect ends.
    Gave(Result<String, String>),
}

impl Hall {
    async fn order(&self, ctx: &FiberContext, name: &str, passed: u64, heard: &[String]) -> Order {
        self.inner().passed.insert(name.to_owned(), passed);
        match self.hold(ctx, name, Held { acts: false, heard: heard.to_vec(), asked: false }).await {
            Command::Order(order) => order,
            Command::Gave(_) => panic!("{name} is told how an effect ends that it is not in"),
        }
    }

    async fn act(&self, ctx: &FiberContext, name: &str, op: &str, heard: &[String]) -> anyhow::Result<String> {
        if !self.inner().begun.insert(op.to_owned()) {
            self.wrong(format!("{name} has begun operation {op} again, of which nobody has said that it was not carried out"));
        }
        match self.hold(ctx, name, Held { acts: true, heard: heard.to_vec(), asked: false }).await {
            Command::Gave(Ok(gave)) => Ok(gave),
            Command::Gave(Err(why)) => {
                self.may_begin_again(op);
                anyhow::bail!(why)
            }
            Command::Order(order) => panic!("{name} is told {order:?} in the body of an effect"),
        }
    }

    async fn hold(&self, ctx: &FiberContext, name: &str, held: Held) -> Command {
        let (tell, mut told) = oneshot::channel();
        if self.inner().there.insert(name.to_owned(), (held, tell)).is_some() {
            self.wrong(format!("there are two of {name}"));
        }
        let _leaves = Leaves { hall: self, name };
        tokio::select! {
            told = &mut told => return told.expect("whoever is there twice is told once"),
            () = ctx.cancelled() => if let Some((held, _)) = self.inner().there.get_mut(name) { held.asked = true },
        }
        told.await.expect("whoever is there twice is told once")
    }

    /// Tells a fiber that is there; one that is not does not hear it.
    pub(crate) fn tell(&self, name: &str, told: Command) {
        if let Some((_, tell)) = self.inner().there.remove(name) {
            let _ = tell.send(told);
        }
    }

    pub(crate) fn there(&self) -> BTreeMap<String, Held> {
        self.inner().there.iter().map(|(name, (held, _))| (name.clone(), held.clone())).collect()
    }

    pub(crate) fn passed(&self, name: &str) -> u64 {
        self.inner().passed.get(name).copied().unwrap_or(0)
    }

    /// It goes on from where it has passed so many.
    pub(crate) fn goes_on(&self, name: &str, passed: u64) {
        self.inner().passed.insert(name.to_owned(), passed);
    }

    pub(crate) fn mend(&self, name: &str, mended: bool) {
        let mut inner = self.inner();
        if mended {
            inner.mended.insert(name.to_owned())
        } else {
            inner.mended.remove(name)
        };
    }

    fn is_mended(&self, name: &str) -> bool {
        self.inner().mended.contains(name)
    }

    /// An operation was not carried out.
    pub(crate) fn may_begin_again(&self, op: &str) {
        self.inner().begun.remove(op);
    }

    pub(crate) fn answer(&self, answer: Answer) {
        self.inner().answer = answer;
    }

    fn wrong(&self, what: String) {
        self.inner().wrong.push(what);
    }

    /// What no fiber may do, whatever happens.
    pub(crate) fn wrongs(&self) -> Vec<String> {
        self.inner().wrong.clone()
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }
}

/// Takes a fiber out of the hall that is dropped where it is.
struct Leaves<'a> {
    hall: &'a Hall,
    name: &'a str,
}

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.hall.inner().there.remove(self.name);
    }
}
