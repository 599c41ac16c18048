//! Limits of connections, of one agent and of all, and of requests per agent.
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;

use super::Limits;
use super::http::At;
use super::network::neighbourhood;
use super::token_bucket::TokenBucket;

/// Unused agents are removed when there are twice as many agents as after the last removal, but not
/// below this number.
const FEW: usize = 1024;

/// Interval at which unused agents and addresses are removed, while there are any.
const SWEEP: Duration = Duration::from_secs(5);

/// Counts of the connections of a server.
pub(super) struct Quotas {
    limits: Limits,
    state: Mutex<State>,
    /// Number of connections.
    taken: watch::Sender<usize>,
}

#[derive(Default)]
struct State {
    agents: HashMap<Key, Quota>,
    /// Number of conversations, over all agents, that are being sent.
    readings: usize,
    /// Rate limits of new agents, by address.
    addresses: HashMap<Option<IpAddr>, TokenBucket>,
    /// Whether the task that removes unused entries runs.
    is_swept: bool,
    /// Number of agents after the last removal.
    kept: usize,
}

impl State {
    fn sweep(&mut self) {
        self.agents.retain(|_, quota| quota.is_used());
        self.addresses.retain(|_, rate| !rate.is_full());
        self.kept = self.agents.len();
        if self.is_empty() {
            // Memory that many clients have used is freed when they are gone.
            *self = State { is_swept: self.is_swept, readings: self.readings, ..State::default() };
        }
    }

    fn is_empty(&self) -> bool {
        self.agents.is_empty() && self.addresses.is_empty()
    }
}

impl Quota {
    fn is_used(&mut self) -> bool {
        self.connections > 0 || self.readings > 0 || !self.rate.is_full()
    }
}

type Key = (&'static str, String);

struct Quota {
    connections: usize,
    /// Number of conversations that are being sent to clients.
    readings: usize,
    rate: TokenBucket,
}

/// Reason why a connection or request exceeds a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    /// The agent has its maximum number of connections.
    Agent,
    /// The agent exceeds its rate of requests.
    Asked,
    /// The address exceeds its rate of new agents.
    Named,
    /// The server has its maximum number of connections.
    Server,
}

impl Quotas {
    pub(super) fn new(limits: Limits) -> Self {
        Quotas { limits, state: Mutex::default(), taken: watch::Sender::new(0) }
    }

    /// Takes a place among the connections, until it is dropped.
    pub(super) fn enter(self: &Arc<Self>, at: &At) -> Result<Place, Full> {
        self.ask(at)?;
        self.with(at, |quota| {
            if quota.connections >= self.limits.connections_per_agent {
                return Err(Full::Agent);
            }
            // All places are counted under the lock of the agents, so that none is given twice.
            if *self.taken.borrow() >= self.limits.connections {
                return Err(Full::Server);
            }
            quota.connections += 1;
            self.taken.send_modify(|taken| *taken += 1);
            Ok(())
        })??;
        Ok(Place { quotas: Arc::clone(self), key: key(at) })
    }

    /// Takes a place for a conversation that is sent as a response, until it is dropped.
    ///
    /// There are as many as for connections, but counted apart: a page reads the conversation
    /// before it connects.
    pub(super) fn read(self: &Arc<Self>, at: &At) -> Result<Reading, Full> {
        self.ask(at)?;
        let mut state = self.state();
        let State { agents, readings, .. } = &mut *state;
        if *readings >= self.limits.connections {
            return Err(Full::Server);
        }
        // It existed a moment ago, and is not removed while it has a request.
        let Some(quota) = agents.get_mut(&key(at)) else { return Err(Full::Asked) };
        if quota.readings >= self.limits.connections_per_agent {
            return Err(Full::Agent);
        }
        quota.readings += 1;
        *readings += 1;
        drop(state);
        Ok(Reading { quotas: Arc::clone(self), key: key(at) })
    }

    /// Counts a request to an agent.
    pub(super) fn ask(self: &Arc<Self>, at: &At) -> Result<(), Full> {
        self.with(at, |quota| if quota.rate.takes_one() { Ok(()) } else { Err(Full::Asked) })?
    }

    /// Accesses the counts of an agent. An unknown agent gets an entry, if the rate limit of the
    /// address allows it.
    fn with<T>(self: &Arc<Self>, at: &At, look: impl FnOnce(&mut Quota) -> T) -> Result<T, Full> {
        let mut state = self.state();
        self.sweep_soon(&mut state);
        let State { agents, addresses, kept, .. } = &mut *state;
        if let Some(quota) = agents.get_mut(&key(at)) {
            return Ok(look(quota));
        }
        let address = addresses.entry(at.client.map(neighbourhood)).or_insert_with(|| TokenBucket::new(self.limits.new_agents));
        if !address.takes_one() {
            return Err(Full::Named);
        }
        if agents.len() >= (*kept * 2).max(FEW) {
            agents.retain(|_, quota| quota.is_used());
            *kept = agents.len();
        }
        Ok(look(agents.entry(key(at)).or_insert_with(|| Quota {
            connections: 0,
            readings: 0,
            rate: TokenBucket::new(self.limits.agent_rate),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes sure that unused agents and addresses are removed, even if no more requests come.
    fn sweep_soon(self: &Arc<Self>, state: &mut State) {
        if state.is_swept {
            return;
        }
        // Without a tokio runtime there are no connections.
        let Ok(runtime) = Handle::try_current() else { return };
        state.is_swept = true;
        let quotas = Arc::downgrade(self);
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(SWEEP).await;
                let Some(quotas) = quotas.upgrade() else { return };
                let mut state = quotas.state();
                state.sweep();
                if state.is_empty() {
                    state.is_swept = false;
                    return;
                }
            }
        });
    }

    /// Waits until there are no connections.
    pub(super) async fn are_empty(&self) {
        // The sender is in `self`, so the wait cannot fail.
        let _ = self.taken.subscribe().wait_for(|taken| *taken == 0).await;
    }
}

fn key(at: &At) -> Key {
    (at.class, at.name.clone())
}

/// Place of a connection.
pub(super) struct Place {
    quotas: Arc<Quotas>,
    key: Key,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.quotas.state();
        if let Some(quota) = state.agents.get_mut(&self.key) {
            quota.connections -= 1;
        }
        self.quotas.taken.send_modify(|taken| *taken -= 1);
    }
}

/// Place of a conversation that is being sent.
pub(super) struct Reading {
    quotas: Arc<Quotas>,
    key: Key,
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut state = self.quotas.state();
        state.readings -= 1;
        if let Some(quota) = state.agents.get_mut(&self.key) {
            quota.readings -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::token_bucket::RateLimit;
    use super::*;

    fn at(name: &str) -> At {
        At { class: "Chat", segment: "chat".to_owned(), name: name.to_owned(), client: None, auth_request: None }
    }

    fn quotas(connections_per_agent: usize, connections: usize, burst: u32) -> Arc<Quotas> {
        let agent_rate = RateLimit { per_second: 1, burst };
        let new_agents = RateLimit { per_second: 1_000_000, burst: 1_000_000 };
        Arc::new(Quotas::new(Limits { connections_per_agent, connections, agent_rate, new_agents, ..Limits::default() }))
    }

    #[tokio::test(start_paused = true)]
    async fn places_are_of_one_agent_and_of_all_and_are_given_back() {
        let quotas = quotas(2, 3, 100);
        let first = quotas.enter(&at("a")).ok();
        let second = quotas.enter(&at("a")).ok();
        assert_eq!(quotas.enter(&at("a")).err(), Some(Full::Agent));
        let third = quotas.enter(&at("b")).ok();
        assert_eq!(quotas.enter(&at("c")).err(), Some(Full::Server));
        drop(first);
        assert!(quotas.enter(&at("a")).is_ok());
        drop((second, third));
        quotas.are_empty().await;
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_left_of_agents_that_were_left() {
        let quotas = quotas(1, 100_000, 5);
        let places: Vec<_> = (0..20_000).map(|n| quotas.enter(&at(&n.to_string())).ok()).collect();
        assert_eq!(quotas.state().agents.len(), 20_000);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(quotas.state().agents.len(), 20_000, "they are connected");
        drop(places);
        tokio::time::sleep(SWEEP * 3).await;
        let state = quotas.state();
        assert!(state.is_empty() && state.agents.capacity() == 0 && !state.is_swept);
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_names_so_many_agents_and_no_more() {
        let limits = Limits { new_agents: RateLimit { per_second: 1, burst: 3 }, ..Limits::default() };
        let quotas = Arc::new(Quotas::new(limits));
        let from = |name: &str, address: &str| At { client: Some(address.parse().unwrap()), ..at(name) };
        let places: Vec<_> = ["a", "b", "c"].iter().map(|name| quotas.enter(&from(name, "10.0.0.1")).ok()).collect();
        assert!(places.iter().all(Option::is_some));
        assert_eq!(quotas.enter(&from("d", "10.0.0.1")).err(), Some(Full::Named));
        assert_eq!(quotas.ask(&from("d", "::ffff:10.0.0.1")).err(), Some(Full::Named));
        // Those that are there are not named anew, and other addresses have their own.
        assert_eq!(quotas.ask(&from("a", "10.0.0.1")), Ok(()));
        assert_eq!(quotas.ask(&from("d", "10.0.0.2")), Ok(()));
        for (name, address) in [("e", "2001:db8::1"), ("f", "2001:db8::2"), ("g", "2001:db8::3")] {
            assert_eq!(quotas.ask(&from(name, address)), Ok(()));
        }
        assert_eq!(quotas.ask(&from("h", "2001:db8::4")), Err(Full::Named));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(quotas.ask(&from("h", "2001:db8::4")), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn agents_of_which_nothing_is_left_are_forgotten() {
        let quotas = quotas(1, 10, 1);
        let place = quotas.enter(&at("stays")).unwrap_or_else(|full| panic!("{full:?}"));
        for n in 0..FEW * 3 {
            assert_eq!(quotas.ask(&at(&n.to_string())), Ok(()));
            assert_eq!(quotas.ask(&at(&n.to_string())), Err(Full::Asked));
        }
        assert!(quotas.state.lock().unwrap().agents.len() > FEW * 3, "those that are asked too much are not forgotten");
        tokio::time::advance(Duration::from_secs(2)).await;
        for n in 0..FEW * 4 {
            let _ = quotas.ask(&at(&format!("more {n}")));
            tokio::time::advance(Duration::from_secs(2)).await;
        }
        let kept = quotas.state.lock().unwrap().agents.len();
        assert!(kept <= FEW * 2, "{kept} are kept");
        assert_eq!(quotas.enter(&at("stays")).err(), Some(Full::Agent));
        drop(place);
    }
}
