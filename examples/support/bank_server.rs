//! A payment server on loopback that counts. It also decides when the worker that calls it is
//! killed, and so on which side of a charge.
use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use forever_testkit::prng::Prng;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::sleep;

use super::bank::{Order, Policy, Receipt};

/// Point at which a worker dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    /// The operation has begun, and no charge is made.
    Before,
    /// The charge is made, and its answer does not reach the worker.
    Between,
    /// The answer has arrived; it may or may not be stored.
    After,
    /// During the start, or soon after.
    Start,
}

impl Point {
    pub(crate) const ALL: [Point; 4] = [Point::Before, Point::Between, Point::After, Point::Start];
}

/// Plan of a worker's death.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) point: Point,
    /// The account whose request it is to hit.
    pub(crate) policy: Policy,
    /// Number of orders that are charged before.
    pub(crate) charged: usize,
}

/// Counts of one account.
#[derive(Debug, Clone, Default)]
pub(crate) struct Account {
    /// Requests for a charge.
    pub(crate) requests: usize,
    pub(crate) charges: usize,
    /// Requests under a key that had been used before.
    pub(crate) again: usize,
    /// Of these, the ones without a query about that key in between.
    pub(crate) unasked: usize,
    /// Requests under a key for which there was a charge.
    pub(crate) replayed: usize,
    /// Queries about a key: how many found a charge, and how many found none.
    pub(crate) asked: [usize; 2],
    /// Queries about an order, likewise.
    pub(crate) asked_by_order: [usize; 2],
}

#[derive(Debug, Default)]
struct Books {
    orders: usize,
    forgetful: bool,
    charges: Vec<(String, Receipt)>,
    accounts: BTreeMap<Policy, Account>,
    /// Keys under which a charge was requested, and whether a client has queried them since.
    keys: BTreeMap<String, bool>,
    /// Number of the worker that is alive. Requests of earlier ones have arrived by now, or are
    /// lost.
    life: u32,
    plan: Option<Plan>,
}

#[derive(Clone)]
pub(crate) struct Server {
    books: Arc<Mutex<Books>>,
    prng: Arc<Mutex<Prng>>,
    /// The point that the worker has reached, and the order.
    hit: Arc<watch::Sender<Option<(Point, String)>>>,
}

enum Answer {
    Charged(Receipt, bool),
    None,
}

impl Server {
    /// Starts the server, and returns its URL. It runs as long as the tokio runtime.
    pub(crate) async fn start(orders: usize, forgetful: bool, seed: u64) -> std::io::Result<(Self, String)> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let books = Books { orders, forgetful, ..Books::default() };
        let prng = Arc::new(Mutex::new(Prng::of_purpose(seed, "how long the bank takes")));
        let server = Server { books: Arc::new(Mutex::new(books)), prng, hit: Arc::default() };
        let app = Router::new()
            .route("/{account}/charges", post(charge))
            .route("/{account}/charges/{key}", get(find))
            .route("/{account}/orders/{order}", get(find_order))
            .with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok((server, url))
    }

    /// Begins with the next worker, which dies as planned, if there is a plan.
    pub(crate) fn next_life(&self, plan: Option<Plan>) {
        let mut books = locked(&self.books);
        books.life += 1;
        books.plan = plan;
        self.hit.send_replace(None);
    }

    /// Waits until the worker is at the point at which it is to die.
    pub(crate) async fn hit(&self) -> (Point, String) {
        let mut hit = self.hit.subscribe();
        let there = hit.wait_for(Option::is_some).await.map(|there| there.clone());
        match there {
            Ok(Some(there)) => there,
            // The sender is in `self`.
            _ => pending().await,
        }
    }

    pub(crate) fn account(&self, policy: Policy) -> Account {
        locked(&self.books).accounts.get(&policy).cloned().unwrap_or_default()
    }

    /// All charges, with their keys.
    pub(crate) fn charges(&self) -> Vec<(String, Receipt)> {
        locked(&self.books).charges.clone()
    }

    /// Number of orders that are charged.
    pub(crate) fn charged(&self) -> usize {
        locked(&self.books).charged()
    }

    /// Waits, as networks and banks do.
    async fn takes_a_while(&self) {
        let millis = 1 + locked(&self.prng).below(4_u64);
        sleep(Duration::from_millis(millis)).await;
    }

    fn decide(&self, life: u32, key: &str, order: &Order) -> Answer {
        let mut books = locked(&self.books);
        if books.life != life {
            return Answer::None; // of a worker that is dead: lost on the way
        }
        if let Some(receipt) = books.of_key(key).filter(|_| !books.forgetful) {
            return Answer::Charged(receipt, false);
        }
        let last = books.charged() + 1 == books.orders;
        let point = books.planned(order.policy, last);
        let hit = |point| drop(self.hit.send_replace(Some((point, order.id()))));
        match point {
            // The work must not be over before the last kill.
            _ if last && books.plan.is_some() => {
                if point.is_some() {
                    hit(Point::Before);
                }
                Answer::None
            }
            Some(Point::Before) => {
                hit(Point::Before);
                Answer::None
            }
            Some(Point::Between) => {
                books.make(key, order);
                hit(Point::Between);
                Answer::None
            }
            Some(Point::After) => Answer::Charged(books.make(key, order), true),
            Some(Point::Start) | None => Answer::Charged(books.make(key, order), false),
        }
    }
}

impl Books {
    fn charged(&self) -> usize {
        self.charges.iter().map(|(_, receipt)| &receipt.order).collect::<BTreeSet<_>>().len()
    }

    fn of_key(&self, key: &str) -> Option<Receipt> {
        self.charges.iter().find(|(there, _)| there == key).map(|(_, receipt)| receipt.clone())
    }

    /// The plan for a request at this account that would make a charge. One request meets each
    /// plan.
    fn planned(&mut self, policy: Policy, last: bool) -> Option<Point> {
        let charged = self.charged();
        let plan = self.plan.as_mut().filter(|plan| plan.point != Point::Start && plan.charged <= charged)?;
        if plan.policy != policy && !last && charged < plan.charged + Policy::ALL.len() {
            return None; // that account's request comes soon, if it has any left
        }
        plan.charged = usize::MAX;
        Some(plan.point)
    }

    fn make(&mut self, key: &str, order: &Order) -> Receipt {
        let receipt = Receipt { charge: self.charges.len() + 1, order: order.id(), cents: order.cents };
        self.charges.push((key.to_owned(), receipt.clone()));
        self.accounts.entry(order.policy).or_default().charges += 1;
        receipt
    }

    /// Counts a request for a charge.
    fn heard(&mut self, key: &str, order: &Order) -> u32 {
        let charged = self.of_key(key).is_some();
        let account = self.accounts.entry(order.policy).or_default();
        account.requests += 1;
        account.replayed += usize::from(charged);
        if let Some(asked) = self.keys.insert(key.to_owned(), false) {
            account.again += 1;
            account.unasked += usize::from(!asked);
        }
        self.life
    }
}

/// `POST /{account}/charges`
async fn charge(State(server): State<Server>, headers: HeaderMap, Json(order): Json<Order>) -> Response {
    let Some(key) = headers.get("Idempotency-Key").and_then(|key| key.to_str().ok()) else {
        return (StatusCode::BAD_REQUEST, "no Idempotency-Key").into_response();
    };
    let life = locked(&server.books).heard(key, &order);
    server.takes_a_while().await;
    match server.decide(life, key, &order) {
        Answer::Charged(receipt, dies) => {
            server.takes_a_while().await;
            if dies {
                server.hit.send_replace(Some((Point::After, order.id())));
            }
            Json(receipt).into_response()
        }
        Answer::None => pending().await,
    }
}

/// `GET /{account}/charges/{key}`
async fn find(State(server): State<Server>, Path((account, key)): Path<(Policy, String)>) -> Response {
    let mut books = locked(&server.books);
    let found = books.of_key(&key);
    books.accounts.entry(account).or_default().asked[usize::from(found.is_none())] += 1;
    if let Some(asked) = books.keys.get_mut(&key) {
        *asked = true;
    }
    found_or_not(found)
}

/// `GET /{account}/orders/{order}`
async fn find_order(State(server): State<Server>, Path((account, order)): Path<(Policy, String)>) -> Response {
    let mut books = locked(&server.books);
    let found = books.charges.iter().find(|(_, receipt)| receipt.order == order).map(|(_, receipt)| receipt.clone());
    books.accounts.entry(account).or_default().asked_by_order[usize::from(found.is_none())] += 1;
    found_or_not(found)
}

fn found_or_not(receipt: Option<Receipt>) -> Response {
    receipt.map_or_else(|| StatusCode::NOT_FOUND.into_response(), |receipt| Json(receipt).into_response())
}

/// Locks a mutex. No panic under these locks leaves them inconsistent, so poison is ignored.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
