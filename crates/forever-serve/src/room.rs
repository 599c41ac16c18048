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
use super::rate::Rate;

/// Unused agents are removed when there are twice as many agents as after the last removal, but not
/// below this number.
const FEW: usize = 1024;

/// Interval at which unused agents and addresses are removed, while there are any.
const SWEEP: Duration = Duration::from_secs(5);

/// Counts of the connections of a server.
pub(super) struct Rooms {
    limits: Limits,
    state: Mutex<State>,
    /// Number of connections.
    taken: watch::Sender<usize>,
}

#[derive(Default)]
struct State {
    agents: HashMap<Key, Room>,
    /// Number of conversations, over all agents, that are being sent.
    readings: usize,
    /// Rate limits of new agents, by address.
    addresses: HashMap<Option<IpAddr>, Rate>,
    /// Whether the task that removes unused entries runs.
    is_swept: bool,
    /// Number of agents after the last removal.
    kept: usize,
}

impl State {
    fn sweep(&mut self) {
        self.agents.retain(|_, room| room.is_used());
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

impl Room {
    fn is_used(&mut self) -> bool {
        self.connections > 0 || self.readings > 0 || !self.rate.is_full()
    }
}

type Key = (&'static str, String);

struct Room {
    connections: usize,
    /// Number of conversations that are being sent to clients.
    readings: usize,
    rate: Rate,
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

impl Rooms {
    pub(super) fn new(limits: Limits) -> Self {
        Rooms { limits, state: Mutex::default(), taken: watch::Sender::new(0) }
    }

    /// Takes a place among the connections, until it is dropped.
    pub(super) fn enter(self: &Arc<Self>, at: &At) -> Result<Place, Full> {
        self.ask(at)?;
        self.with(at, |room| {
            if room.connections >= self.limits.connections {
                return Err(Full::Agent);
            }
            // All places are counted under the lock of the agents, so that none is given twice.
            if *self.taken.borrow() >= self.limits.connections_in_all {
                return Err(Full::Server);
            }
            room.connections += 1;
            self.taken.send_modify(|taken| *taken += 1);
            Ok(())
        })??;
        Ok(Place { rooms: Arc::clone(self), key: key(at) })
    }

    /// Takes a place for a conversation that is sent as a response, until it is dropped.
    ///
    /// There are as many as for connections, but counted apart: a page reads the conversation
    /// before it connects.
    pub(super) fn read(self: &Arc<Self>, at: &At) -> Result<Reading, Full> {
        self.ask(at)?;
        let mut state = self.state();
        let State { agents, readings, .. } = &mut *state;
        if *readings >= self.limits.connections_in_all {
            return Err(Full::Server);
        }
        // It existed a moment ago, and is not removed while it has a request.
        let Some(room) = agents.get_mut(&key(at)) else { return Err(Full::Asked) };
        if room.readings >= self.limits.connections {
            return Err(Full::Agent);
        }
        room.readings += 1;
        *readings += 1;
        drop(state);
        Ok(Reading { rooms: Arc::clone(self), key: key(at) })
    }

    /// Counts a request to an agent.
    pub(super) fn ask(self: &Arc<Self>, at: &At) -> Result<(), Full> {
        self.with(at, |room| if room.rate.takes_one() { Ok(()) } else { Err(Full::Asked) })?
    }

    /// Accesses the counts of an agent. An unknown agent gets an entry, if the rate limit of the
    /// address allows it.
    fn with<T>(self: &Arc<Self>, at: &At, look: impl FnOnce(&mut Room) -> T) -> Result<T, Full> {
        let mut state = self.state();
        self.sweep_soon(&mut state);
        let State { agents, addresses, kept, .. } = &mut *state;
        if let Some(room) = agents.get_mut(&key(at)) {
            return Ok(look(room));
        }
        let address = addresses.entry(at.client.map(neighbourhood)).or_insert_with(|| Rate::new(self.limits.new_agents));
        if !address.takes_one() {
            return Err(Full::Named);
        }
        if agents.len() >= (*kept * 2).max(FEW) {
            agents.retain(|_, room| room.is_used());
            *kept = agents.len();
        }
        Ok(look(agents.entry(key(at)).or_insert_with(|| Room { connections: 0, readings: 0, rate: Rate::new(self.limits.agent_rate) })))
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
        let rooms = Arc::downgrade(self);
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(SWEEP).await;
                let Some(rooms) = rooms.upgrade() else { return };
                let mut state = rooms.state();
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
    rooms: Arc<Rooms>,
    key: Key,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.rooms.state();
        if let Some(room) = state.agents.get_mut(&self.key) {
            room.connections -= 1;
        }
        self.rooms.taken.send_modify(|taken| *taken -= 1);
    }
}

/// Place of a conversation that is being sent.
pub(super) struct Reading {
    rooms: Arc<Rooms>,
    key: Key,
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut state = self.rooms.state();
        state.readings -= 1;
        if let Some(room) = state.agents.get_mut(&self.key) {
            room.readings -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::rate::Limit;
    use super::*;

    fn at(name: &str) -> At {
        At { class: "Chat", segment: "chat".to_owned(), name: name.to_owned(), client: None, asking: None }
    }

    fn rooms(connections: usize, connections_in_all: usize, at_once: u32) -> Arc<Rooms> {
        let agent_rate = Limit { each_second: 1, at_once };
        let new_agents = Limit { each_second: 1_000_000, at_once: 1_000_000 };
        Arc::new(Rooms::new(Limits { connections, connections_in_all, agent_rate, new_agents, ..Limits::default() }))
    }

    #[tokio::test(start_paused = true)]
    async fn places_are_of_one_agent_and_of_all_and_are_given_back() {
        let rooms = rooms(2, 3, 100);
        let first = rooms.enter(&at("a")).ok();
        let second = rooms.enter(&at("a")).ok();
        assert_eq!(rooms.enter(&at("a")).err(), Some(Full::Agent));
        let third = rooms.enter(&at("b")).ok();
        assert_eq!(rooms.enter(&at("c")).err(), Some(Full::Server));
        drop(first);
        assert!(rooms.enter(&at("a")).is_ok());
        drop((second, third));
        rooms.are_empty().await;
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_left_of_agents_that_were_left() {
        let rooms = rooms(1, 100_000, 5);
        let places: Vec<_> = (0..20_000).map(|n| rooms.enter(&at(&n.to_string())).ok()).collect();
        assert_eq!(rooms.state().agents.len(), 20_000);
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(rooms.state().agents.len(), 20_000, "they are connected");
        drop(places);
        tokio::time::sleep(SWEEP * 3).await;
        let state = rooms.state();
        assert!(state.is_empty() && state.agents.capacity() == 0 && !state.is_swept);
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_names_so_many_agents_and_no_more() {
        let limits = Limits { new_agents: Limit { each_second: 1, at_once: 3 }, ..Limits::default() };
        let rooms = Arc::new(Rooms::new(limits));
        let from = |name: &str, address: &str| At { client: Some(address.parse().unwrap()), ..at(name) };
        let places: Vec<_> = ["a", "b", "c"].iter().map(|name| rooms.enter(&from(name, "10.0.0.1")).ok()).collect();
        assert!(places.iter().all(Option::is_some));
        assert_eq!(rooms.enter(&from("d", "10.0.0.1")).err(), Some(Full::Named));
        assert_eq!(rooms.ask(&from("d", "::ffff:10.0.0.1")).err(), Some(Full::Named));
        // Those that are there are not named anew, and other addresses have their own.
        assert_eq!(rooms.ask(&from("a", "10.0.0.1")), Ok(()));
        assert_eq!(rooms.ask(&from("d", "10.0.0.2")), Ok(()));
        for (name, address) in [("e", "2001:db8::1"), ("f", "2001:db8::2"), ("g", "2001:db8::3")] {
            assert_eq!(rooms.ask(&from(name, address)), Ok(()));
        }
        assert_eq!(rooms.ask(&from("h", "2001:db8::4")), Err(Full::Named));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(rooms.ask(&from("h", "2001:db8::4")), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn agents_of_which_nothing_is_left_are_forgotten() {
        let rooms = rooms(1, 10, 1);
        let place = rooms.enter(&at("stays")).unwrap_or_else(|full| panic!("{full:?}"));
        for n in 0..FEW * 3 {
            assert_eq!(rooms.ask(&at(&n.to_string())), Ok(()));
            assert_eq!(rooms.ask(&at(&n.to_string())), Err(Full::Asked));
        }
        assert!(rooms.state.lock().unwrap().agents.len() > FEW * 3, "those that are asked too much are not forgotten");
        tokio::time::advance(Duration::from_secs(2)).await;
        for n in 0..FEW * 4 {
            let _ = rooms.ask(&at(&format!("more {n}")));
            tokio::time::advance(Duration::from_secs(2)).await;
        }
        let kept = rooms.state.lock().unwrap().agents.len();
        assert!(kept <= FEW * 2, "{kept} are kept");
        assert_eq!(rooms.enter(&at("stays")).err(), Some(Full::Agent));
        drop(place);
    }
}
