//! How much room there is: connections of an agent and of all, and how much one agent is asked.
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use super::Limits;
use super::http::At;
use super::rate::Rate;

/// Agents are looked through for those of which nothing is left, when there are twice as many as after the last time; not before there are these.
const FEW: usize = 1024;

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
    /// How many agents there were when they were looked through.
    kept: usize,
}

type Key = (&'static str, String);

struct Room {
    connections: usize,
    rate: Rate,
}

/// There is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Full {
    /// The agent has as many connections as it may have.
    Agent,
    /// The agent is asked more than it may be.
    Asked,
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
        })?;
        Ok(Place { rooms: Arc::clone(self), key: key(at) })
    }

    /// Counts something that an agent is asked.
    pub(super) fn ask(&self, at: &At) -> Result<(), Full> {
        self.with(at, |room| if room.rate.takes_one() { Ok(()) } else { Err(Full::Asked) })
    }

    fn with<T>(&self, at: &At, look: impl FnOnce(&mut Room) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { agents, kept } = &mut *state;
        if agents.len() >= (*kept * 2).max(FEW) {
            agents.retain(|_, room| room.connections > 0 || !room.rate.is_full());
            *kept = agents.len();
        }
        look(agents.entry(key(at)).or_insert_with(|| Room { connections: 0, rate: Rate::new(self.limits.agent_rate) }))
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
        let mut state = self.rooms.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(room) = state.agents.get_mut(&self.key) {
            room.connections -= 1;
        }
        self.rooms.taken.send_modify(|taken| *taken -= 1);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::rate::Limit;
    use super::*;

    fn at(name: &str) -> At {
        At { class: "Chat", segment: "chat".to_owned(), name: name.to_owned() }
    }

    fn rooms(connections: usize, connections_in_all: usize, at_once: u32) -> Arc<Rooms> {
        let agent_rate = Limit { each_second: 1, at_once };
        Arc::new(Rooms::new(Limits { connections, connections_in_all, agent_rate, ..Limits::default() }))
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
