//! Limits of connections, of one agent and of all, and of requests per agent.
//!
//! Of places, one address gets no more than it leaves free, and of an agent's rate half: so it
//! cannot shut out the others.
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::watch;

use super::Limits;
use super::http::At;
use super::network::neighbourhood;
use super::token_bucket::{RateLimit, TokenBucket};

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
    connections: watch::Sender<usize>,
}

#[derive(Default)]
struct State {
    agents: HashMap<Key, Quota>,
    /// Over all agents.
    taken: Taken,
    addresses: HashMap<Option<IpAddr>, Address>,
    /// Whether the task that removes unused entries runs.
    is_swept: bool,
    /// Number of agents after the last removal.
    kept: usize,
}

impl State {
    fn sweep(&mut self) {
        self.agents.retain(|_, quota| quota.is_used());
        self.addresses.retain(|_, address| address.is_used());
        self.kept = self.agents.len();
        if self.is_empty() {
            // Memory that many clients have used is freed when they are gone.
            *self = State { is_swept: self.is_swept, ..State::default() };
        }
    }

    fn is_empty(&self) -> bool {
        self.agents.is_empty() && self.addresses.is_empty()
    }
}

impl Quota {
    fn is_used(&mut self) -> bool {
        self.shares.retain(|_, share| share.taken != Taken::default() || !share.rate.is_full());
        self.taken != Taken::default() || !self.rate.is_full() || !self.shares.is_empty()
    }
}

type Key = (&'static str, String);

struct Quota {
    taken: Taken,
    rate: TokenBucket,
    /// What addresses have of it.
    shares: HashMap<IpAddr, Share>,
}

struct Share {
    taken: Taken,
    rate: TokenBucket,
}

/// What one address has of all agents.
struct Address {
    taken: Taken,
    /// Rate limit of new agents.
    new_agents: TokenBucket,
}

impl Address {
    fn is_used(&mut self) -> bool {
        self.taken != Taken::default() || !self.new_agents.is_full()
    }
}

/// Taken places of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Taken([usize; 2]);

/// What a place is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Connection,
    /// A conversation that is being sent.
    Reading,
}

impl Taken {
    fn of(self, what: Use) -> usize {
        self.0[what as usize]
    }

    fn take(&mut self, what: Use) {
        self.0[what as usize] += 1;
    }

    fn give_back(&mut self, what: Use) {
        self.0[what as usize] -= 1;
    }

    /// Whether an address that has `own` of these places may take another one of `most`: it gets no
    /// more than it leaves free.
    fn leaves(self, what: Use, own: Option<Taken>, most: usize) -> bool {
        let free = most.saturating_sub(self.of(what));
        own.map_or(free > 0, |own| free > own.of(what))
    }
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
        Quotas { limits, state: Mutex::default(), connections: watch::Sender::new(0) }
    }

    /// Takes a place among the connections, until it is dropped.
    pub(super) fn enter(self: &Arc<Self>, at: &At) -> Result<Place, Full> {
        self.take(at, Use::Connection)
    }

    /// Takes a place for a conversation that is sent as a response, until it is dropped.
    ///
    /// There are as many as for connections, but counted apart: a page reads the conversation
    /// before it connects.
    pub(super) fn read(self: &Arc<Self>, at: &At) -> Result<Place, Full> {
        self.take(at, Use::Reading)
    }

    fn take(self: &Arc<Self>, at: &At, what: Use) -> Result<Place, Full> {
        self.ask(at)?;
        let mut state = self.state();
        let State { agents, addresses, taken, .. } = &mut *state;
        // It existed a moment ago, and is not removed while it has a request.
        let Some(quota) = agents.get_mut(&key(at)) else { return Err(Full::Asked) };
        let address = at.client.map(neighbourhood);
        let mut own = address.map(|address| share(&mut quota.shares, address, &self.limits));
        if !quota.taken.leaves(what, own.as_ref().map(|own| own.taken), self.limits.connections_per_agent) {
            return Err(Full::Agent);
        }
        let of_all = address.map(|address| {
            let new_agents = || TokenBucket::new(self.limits.new_agents);
            addresses.entry(Some(address)).or_insert_with(|| Address { taken: Taken::default(), new_agents: new_agents() })
        });
        // All places are counted under one lock, so that none is given twice.
        if !taken.leaves(what, of_all.as_ref().map(|of_all| of_all.taken), self.limits.connections) {
            return Err(Full::Server);
        }
        let counts = [Some(taken), Some(&mut quota.taken), own.as_mut().map(|own| &mut own.taken), of_all.map(|of_all| &mut of_all.taken)];
        counts.into_iter().flatten().for_each(|taken| taken.take(what));
        self.connections.send_replace(state.taken.of(Use::Connection));
        Ok(Place { quotas: Arc::clone(self), key: key(at), address, what })
    }

    /// Counts a request to an agent.
    pub(super) fn ask(self: &Arc<Self>, at: &At) -> Result<(), Full> {
        self.with(at, |quota| {
            let own = at.client.map(|client| share(&mut quota.shares, neighbourhood(client), &self.limits));
            let is_let_in = own.is_none_or(|own| own.rate.takes_one()) && quota.rate.takes_one();
            if is_let_in { Ok(()) } else { Err(Full::Asked) }
        })?
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
        let address = addresses
            .entry(at.client.map(neighbourhood))
            .or_insert_with(|| Address { taken: Taken::default(), new_agents: TokenBucket::new(self.limits.new_agents) });
        if !address.new_agents.takes_one() {
            return Err(Full::Named);
        }
        if agents.len() >= (*kept * 2).max(FEW) {
            agents.retain(|_, quota| quota.is_used());
            *kept = agents.len();
        }
        Ok(look(agents.entry(key(at)).or_insert_with(|| Quota {
            taken: Taken::default(),
            rate: TokenBucket::new(self.limits.agent_rate),
            shares: HashMap::new(),
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
        let _ = self.connections.subscribe().wait_for(|taken| *taken == 0).await;
    }
}

/// The share of an address, which has half of the rate.
fn share<'s>(shares: &'s mut HashMap<IpAddr, Share>, address: IpAddr, limits: &Limits) -> &'s mut Share {
    let RateLimit { per_second, burst } = limits.agent_rate;
    let half = RateLimit { per_second: per_second.div_ceil(2), burst: burst.div_ceil(2) };
    shares.entry(address).or_insert_with(|| Share { taken: Taken::default(), rate: TokenBucket::new(half) })
}

fn key(at: &At) -> Key {
    (at.class, at.name.clone())
}

/// Place of a connection, or of a conversation that is being sent.
pub(super) struct Place {
    quotas: Arc<Quotas>,
    key: Key,
    address: Option<IpAddr>,
    what: Use,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.quotas.state();
        let State { agents, addresses, taken, .. } = &mut *state;
        let quota = agents.get_mut(&self.key);
        let (of_agent, shares) = quota.map(|quota| (&mut quota.taken, &mut quota.shares)).unzip();
        let own = self.address.zip(shares).and_then(|(address, shares)| shares.get_mut(&address));
        let of_all = self.address.and_then(|address| addresses.get_mut(&Some(address)));
        let counts = [Some(taken), of_agent, own.map(|own| &mut own.taken), of_all.map(|of_all| &mut of_all.taken)];
        counts.into_iter().flatten().for_each(|taken| taken.give_back(self.what));
        self.quotas.connections.send_replace(state.taken.of(Use::Connection));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
    async fn an_address_leaves_places_and_requests_to_the_others() {
        let from = |address: [u8; 4], name: &str| At { client: Some(address.into()), ..at(name) };
        let (greedy, others) = (from([10, 0, 0, 1], "a"), from([10, 0, 0, 2], "a"));
        let quotas = quotas(16, 1000, 100);
        for take in [Quotas::enter, Quotas::read] {
            let mut taken: Vec<_> = std::iter::from_fn(|| take(&quotas, &greedy).ok()).collect();
            assert_eq!((taken.len(), take(&quotas, &greedy).err()), (8, Some(Full::Agent)));
            taken.extend(std::iter::from_fn(|| take(&quotas, &others).ok()));
            assert_eq!(taken.len(), 12, "and the next one leaves half of the rest");
            assert!(take(&quotas, &from([10, 0, 0, 3], "a")).is_ok());
            drop(taken);
        }
        let mut elsewhere = (0..).map(|n: u32| from([10, 0, 0, 1], &n.to_string()));
        let taken: Vec<_> = std::iter::from_fn(|| quotas.enter(&elsewhere.next()?).ok()).collect();
        assert_eq!(taken.len(), 500);
        assert!(quotas.enter(&from([10, 0, 0, 2], "mine")).is_ok());
        while quotas.ask(&greedy).is_ok() {}
        assert_eq!(quotas.ask(&others), Ok(()));
        drop(taken);
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert!(quotas.state().is_empty());
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
