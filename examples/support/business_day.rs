//! The first process of `payments`: the bank, the kills, and the table.
use std::path::Path;
use std::time::Duration;

use anyhow::{bail, ensure};
use forever::Forever;
use forever::fiber::FiberState;
use forever::ops::OpState;
use forever_testkit::prng::Prng;
use forever_testkit::process::Process;
use tokio::time::{sleep, timeout};

use super::DATABASE;
use super::bank::{Policy, Receipt};
use super::bank_server::{Plan, Point, Server};

/// Time after which a worker that neither ends nor reaches its death counts as stuck.
const HANGS: Duration = Duration::from_secs(30);

/// Plans of the workers' deaths: at random times of the day, at each point of each account in turn.
fn plans(orders: u32, kills: u32, seed: u64) -> Vec<Plan> {
    let mut prng = Prng::of_purpose(seed, "kills");
    let mut charged: Vec<_> = (0..kills).map(|_| prng.below(orders) as usize).collect();
    charged.sort_unstable();
    let at = |n: usize| (Point::ALL[n % Point::ALL.len()], Policy::ALL[n / Point::ALL.len() % Policy::ALL.len()]);
    charged
        .into_iter()
        .enumerate()
        .map(|(n, charged)| (at(n), charged))
        .map(|((point, policy), charged)| Plan { point, policy, charged })
        .collect()
}

/// Runs the day with `kills` kills. Returns whether everything is as expected.
pub(crate) fn run(orders: u32, kills: u32, seed: u64, forgetful: bool) -> anyhow::Result<bool> {
    let dir = tempfile::Builder::new().prefix("forever-").tempdir()?;
    let good = run_in(dir.path(), orders, kills, seed, forgetful);
    if good.is_err() {
        eprintln!("the database is kept in {}", dir.keep().display());
    }
    good
}

#[tokio::main(flavor = "current_thread")]
async fn run_in(dir: &Path, orders: u32, kills: u32, seed: u64, forgetful: bool) -> anyhow::Result<bool> {
    let (server, url) = Server::start(orders as usize, forgetful, seed).await?;
    let start = || {
        let orders = orders.to_string();
        Process::start_again(["--worker".as_ref(), dir.as_os_str(), "--bank".as_ref(), url.as_ref(), "--orders".as_ref(), orders.as_ref()])
    };
    let mut prng = Prng::of_purpose(seed, "how long until a kill");
    let mut died = 0;
    for plan in plans(orders, kills, seed) {
        let at_start = (plan.point == Point::Start).then(|| prng.below(60_u64));
        server.next_life(Some(plan));
        let mut worker = start()?;
        let place = if let Some(millis) = at_start {
            sleep(Duration::from_millis(millis)).await;
            format!("{millis} ms after its start")
        } else {
            let (point, order) = tokio::select! {
                hit = timeout(HANGS, server.hit()) => hit?,
                status = worker.ended() => bail!("worker {} was to be killed, but had ended with {}", worker.id(), status?),
            };
            if point == Point::After {
                sleep(Duration::from_millis(prng.below(3_u64))).await;
            }
            match point {
                Point::Before => format!("before the charge of {order}"),
                Point::Between => format!("between the charge of {order} and its answer"),
                _ => format!("after the answer about {order}"),
            }
        };
        let id = worker.id();
        worker.kill()?;
        died += 1;
        println!("✗ kill {died}/{kills} of process {id}, {place}; {} of {orders} are charged", server.charged());
    }
    server.next_life(None);
    let mut worker = start()?;
    let status = timeout(HANGS, worker.ended()).await??;
    ensure!(status.success(), "the last worker ended with {status}");
    let ledger = Ledger::read(&dir.join(DATABASE)).await?;
    table(&server, orders);

    let charges = server.charges().len();
    let unasked: usize = [Policy::Check, Policy::Park].iter().map(|policy| server.account(*policy).unasked).sum();
    let again = server.account(Policy::Fail).again;
    ensure!(ledger.started == 0, "{} operations are left in doubt", ledger.started);
    ensure!(unasked == 0 && again == 0, "{} charges were asked for again before anybody had looked", unasked + again);
    for receipt in &ledger.receipts {
        ensure!(server.charges().iter().any(|(_, made)| made == receipt), "{receipt:?} is no receipt of the bank's");
    }
    ensure!(ledger.receipts.len() == orders as usize, "{} of {orders} orders have a receipt", ledger.receipts.len());
    let good = charges == orders as usize;
    if !good {
        let twice = |policy: &&Policy| server.account(**policy).charges > super::orders(**policy, orders).count();
        let twice: Vec<_> = Policy::ALL.iter().filter(twice).map(|policy| policy.name()).collect();
        eprintln!("error: {orders} orders, but {charges} charges: under {} orders were charged twice", twice.join(", "));
    }
    let result = if good { "ok" } else { "charged twice" };
    println!("policy=all orders={orders} kills={died} charges={charges} started_left={} result={result}", ledger.started);
    Ok(good)
}

/// Operations that the fibers have left.
struct Ledger {
    receipts: Vec<Receipt>,
    /// Operations whose outcome is unknown.
    started: usize,
}

impl Ledger {
    async fn read(database: &Path) -> anyhow::Result<Self> {
        // No fiber is registered here, so nothing runs.
        let forever = Forever::builder().sqlite(database).open().await?;
        let mut ledger = Ledger { receipts: Vec::new(), started: 0 };
        for fiber in forever.fibers().limit(1000).await?.fibers {
            ensure!(fiber.state == FiberState::Completed, "order `{}` is {}", fiber.id, fiber.state);
            ledger.receipts.push(forever.find_fiber(&fiber.id).await?.wait().await?);
            ledger.started += forever.ops(&fiber.id).await?.iter().filter(|op| op.state == OpState::Started).count();
        }
        forever.close().await?;
        Ok(ledger)
    }
}

fn table(server: &Server, orders: u32) {
    println!("\npolicy  orders  requests  charges  repeated  how it was decided what had happened");
    for policy in Policy::ALL {
        let account = server.account(policy);
        let made_or_not = |by: &str, [made, not]: [usize; 2]| format!("{by}: {made} times it was made, {not} times not");
        let decided = match policy {
            Policy::Retry => format!("by no one: called again {} times, with the same key", account.again),
            Policy::Check => made_or_not("the bank was asked", account.asked),
            Policy::Park => made_or_not("an operator looked", account.asked),
            Policy::Fail => made_or_not("the fiber looked it up", account.asked_by_order),
        };
        let (requests, charges, repeated) = (account.requests, account.charges, account.replayed);
        println!(
            "{:<6}  {:>6}  {requests:>8}  {charges:>7}  {repeated:>8}  {decided}",
            policy.name(),
            super::orders(policy, orders).count()
        );
    }
    println!("repeated: requests for a charge that was made before\n");
}
