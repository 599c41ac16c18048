//! How much room there is: connections of an agent and of all, and how much one agent is asked.
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

/// Agents are looked through for those of which nothing is left, when there are twice as many as
/// after the last time; not before there are these.
const FEW: usize = 1024;

/// How often it is looked whether something is left of agents and addresses, for as long as there
/// are some.
const SWEEP: Duration = Duration::from_secs(5);

/// What the connections of a server take.
pub(super) struct Rooms {
    limits: Limits,
    state: Mutex<State>,
    /// How many connections there are.
    taken: watch::Sender<usize>,
}

#[derive(Default)]
struct State {
    agents: HashMap<Key, Room>,
    /// Conversations of all agents that are being sent.
    readings: usize,
    /// How many agents each address may still name.
    addresses: HashMap<Option<IpAddr>, Rate>,
    /// Whether a task looks for what is left of nothing.
    is_swept: bool,
    /// How many agents there were when they were looked through.
    kept: usize,
}

impl State {
    fn sweep(&mut self) {
        self.agents.retain(|_, room| room.is_used());
        self.addresses.retain(|_, rate| !rate.is_full());
        self.kept = self.agents.len();
        if self.is_empty() {
            // What a crowd has taken is given back when it has left.
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
    /// Conversations that are being sent to clients that have asked for them.
    readings: usize,
    rate: Rate,
}

/// There is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    /// The agent has as many connections as it may have.
    Agent,
    /// The agent is asked more than it may be.
    Asked,
    /// The address names more agents than it may.
    Named,
    /// The server has as many connections as it may have.
    Server,
}

impl Rooms {
    pub(super) fn new(limits: Limits) -> Self {
        Rooms { limits, state: Mutex::default(), taken: watch::Sender::new(0) }
    }

    /// A place among the connections, until it is dropped.
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

    /// A place for a conversation that is sent as a response, until it is dropped.
    ///
    /// There are as many as for connections, and they are others: a page reads the conversation
    /// before it connects.
    pub(super) fn read(self: &Arc<Self>, at: &At) -> Result<Reading, Full> {
        self.ask(at)?;
        let mut state = self.state();
        let State { agents, readings, .. } = &mut *state;
        if *readings >= self.limits.connections_in_all {
            return Err(Full::Server);
        }
        // It was there a moment ago, and is not forgotten while it is asked something.
        let Some(room) = agents.get_mut(&key(at)) else { return Err(Full::Asked) };
        if room.readings >= self.limits.connections {
            return Err(Full::Agent);
        }
        room.readings += 1;
        *readings += 1;
        drop(state);
        Ok(Reading { rooms: Arc::clone(self), key: key(at) })
    }

    /// Counts something that an agent is asked.
    pub(super) fn ask(self: &Arc<Self>, at: &At) -> Result<(), Full> {
        self.with(at, |room| if room.rate.takes_one() { Ok(()) } else { Err(Full::Asked) })?
    }

    /// Looks at the room of an agent; one that has none gets one, if the address may name it.
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

    /// Sees to it that rooms and addresses of which nothing is left are forgotten, also if nothing
    /// else is asked.
    fn sweep_soon(self: &Arc<Self>, state: &mut State) {
        if state.is_swept {
            return;
        }
        // Where there is no runtime there are no connections.
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

/// A connection's place.
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

/// The place of a conversation that is being sent.
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
