//! Killed before and after every write of an effect, and in its body on both sides of the charge, under each policy.
use std::time::Duration;

use forever::fiber::{Fiber, FiberErrorKind, FiberHandle};
use forever::ops::OpResolution;
use forever::prelude::*;
use forever::testing::Fuse;
use forever_testkit::database;

use crate::support::{Bank, Place, Plan, opening, soon, words};

const ID: &str = "order-1";

#[fiber(name = "order")]
async fn retrying(bank: Res<Bank>, cents: u64) -> anyhow::Result<u64> {
    let price = step!(priced(cents));
    let receipt = step!("charge", effect, on_unknown = OnUnknown::Retry, |op| bank.charge(op.id(), price).await?);
    step!(noted(receipt));
    Ok(receipt)
}

#[fiber(name = "order")]
async fn checking(bank: Res<Bank>, cents: u64) -> anyhow::Result<u64> {
    let price = step!(priced(cents));
    let check = OnUnknown::check(async |op| bank.find(op.id()));
    let receipt = step!("charge", effect, on_unknown = check, |op| bank.charge(op.id(), price).await?);
    step!(noted(receipt));
    Ok(receipt)
}

#[fiber(name = "order")]
async fn failing(bank: Res<Bank>, cents: u64) -> anyhow::Result<u64> {
    let price = step!(priced(cents));
    let receipt = step!("charge", effect, on_unknown = OnUnknown::Fail, |op| bank.charge(op.id(), price).await?);
    step!(noted(receipt));
    Ok(receipt)
}

#[fiber(name = "order")]
async fn parking(bank: Res<Bank>, cents: u64) -> anyhow::Result<u64> {
    let price = step!(priced(cents));
    let receipt = step!("charge", effect, |op| bank.charge(op.id(), price).await?);
    step!(noted(receipt));
    Ok(receipt)
}

fn priced(cents: u64) -> u64 {
    cents * 2
}

fn noted(_: u64) {}

/// Where the process dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    BeforeWrite(u64),
    AfterWrite(u64),
    /// In the body, when the request has not arrived.
    BeforeTheCharge,
    /// In the body, when the charge is made and the answer is on its way.
    AfterTheCharge,
}

/// The writes of one life: the fiber is accepted, "price", the effect begins, its checkpoint, "noted", the end. In Postgres the layout is
/// stored before "price".
fn begins() -> u64 {
    if database::is_in_postgres() { 4 } else { 3 }
}

fn writes() -> u64 {
    begins() + 3
}

fn deaths() -> Vec<Death> {
    let writes = (1..=writes()).flat_map(|n| [Death::BeforeWrite(n), Death::AfterWrite(n)]);
    writes.chain([Death::BeforeTheCharge, Death::AfterTheCharge]).collect()
}

impl Death {
    /// Whether the next process finds the operation begun and not ended.
    fn leaves_it_unknown(self) -> bool {
        match self {
            Death::BeforeWrite(n) => n == begins() + 1,
            Death::AfterWrite(n) => n == begins(),
            Death::BeforeTheCharge | Death::AfterTheCharge => true,
        }
    }

    /// Whether the charge was made then.
    fn charged(self) -> bool {
        match self {
            Death::BeforeWrite(n) | Death::AfterWrite(n) => n > begins(),
            Death::BeforeTheCharge => false,
            Death::AfterTheCharge => true,
        }
    }
}

/// A fiber that was begun, and whose process has died.
struct Left {
    place: Place,
    bank: Bank,
    death: Death,
}

async fn dies<F: Fiber<Output = u64>>(call: F, death: Death) -> Left {
    let (place, bank) = (Place::new(), Bank::default());
    let fuse = match death {
        Death::BeforeWrite(n) => Fuse::before(opening() + n),
        Death::AfterWrite(n) => Fuse::after(opening() + n),
        Death::BeforeTheCharge | Death::AfterTheCharge => Fuse::never(),
    };
    let forever = place.builder(&bank).fiber::<F>().fuse(fuse.clone()).open().await.unwrap();
    let life = async { forever.spawn(call).id(ID).await.unwrap().wait().await };
    match death {
        Death::BeforeWrite(_) | Death::AfterWrite(_) => tokio::select! {
            ended = soon(life) => panic!("it lived: {ended:?}"),
            () = fuse.blown() => {}
        },
        Death::BeforeTheCharge | Death::AfterTheCharge => {
            bank.plan([if death == Death::BeforeTheCharge { Plan::Lost } else { Plan::Silent }]);
            tokio::select! {
                ended = soon(life) => panic!("it lived: {ended:?}"),
                () = bank.called(1) => {}
            }
        }
    }
    assert_eq!(bank.charges().len(), usize::from(death.charged()), "{death:?}");
    Left { place, bank, death }
}

impl Left {
    /// The next process: finds the fiber, or starts it if it was not accepted.
    async fn opened<F: Fiber<Output = u64>>(&self, call: F) -> (Forever, FiberHandle<u64>) {
        let forever = self.place.builder(&self.bank).fiber::<F>().open().await.unwrap();
        let handle = forever.spawn(call).id(ID).await.unwrap();
        (forever, handle)
    }

    /// What a person finds at the bank.
    fn found(&self) -> OpResolution {
        match self.bank.charges().first() {
            Some((id, _)) => OpResolution::completed(&self.bank.find(id)).unwrap(),
            None => OpResolution::NotExecuted,
        }
    }

    /// It completed, and the bank was called so often for the one charge.
    async fn completed(&self, forever: &Forever, handle: &FiberHandle<u64>, calls: usize) {
        assert_eq!(soon(handle.wait()).await.unwrap(), 1000, "{:?}", self.death);
        let charges = self.bank.charges();
        let ops = forever.ops(ID).await.unwrap();
        assert_eq!(words(&ops), ["charge completed 1000"], "{:?}", self.death);
        assert_eq!(charges, [(ops[0].id.clone(), 200)], "{:?}", self.death);
        assert_eq!(self.bank.calls(), calls, "{:?}", self.death);
    }
}

#[tokio::test(start_paused = true)]
async fn one_life_has_the_writes_that_the_deaths_are_counted_in() {
    let (place, bank, fuse) = (Place::new(), Bank::default(), Fuse::never());
    let forever = place.builder(&bank).fiber::<parking>().fuse(fuse.clone()).open().await.unwrap();
    let opened = fuse.writes();
    forever.run(parking(100)).await.unwrap();
    assert_eq!((opened, fuse.writes()), (opening(), opening() + writes()));
}

#[tokio::test(start_paused = true)]
async fn under_retry_the_bank_is_called_again_under_the_same_id() {
    for death in deaths() {
        let left = dies(retrying(100), death).await;
        let (forever, handle) = left.opened(retrying(100)).await;
        let calls = match death {
            Death::BeforeTheCharge => 2,
            death => 1 + usize::from(death.leaves_it_unknown() && death.charged()),
        };
        left.completed(&forever, &handle, calls).await;
        forever.close().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn under_check_the_bank_is_asked_and_called_once() {
    for death in deaths() {
        let left = dies(checking(100), death).await;
        let asked = left.bank.asked();
        let (forever, handle) = left.opened(checking(100)).await;
        // A request that was lost is made anew: that it was lost, the bank has said.
        left.completed(&forever, &handle, if death == Death::BeforeTheCharge { 2 } else { 1 }).await;
        assert_eq!(left.bank.asked() - asked, usize::from(death.leaves_it_unknown()), "{death:?}");
        forever.close().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn under_fail_the_fiber_goes_its_own_way() {
    for death in deaths() {
        let left = dies(failing(100), death).await;
        let (forever, handle) = left.opened(failing(100)).await;
        if death.leaves_it_unknown() {
            let error = soon(handle.wait()).await.unwrap_err();
            let ops = forever.ops(ID).await.unwrap();
            assert_eq!(
                error.reason(),
                format!("operation `{}` may have executed; verify, then resolve it: step `charge` was interrupted", ops[0].id)
            );
            assert_eq!(words(&ops), ["charge started"], "nobody has said what became of it: {death:?}");
            assert_eq!(left.bank.charges().len(), usize::from(death.charged()));
            // A person has looked at the bank, and lets the failed fiber go on.
            forever.resolve_op(&ops[0].id, left.found()).await.unwrap();
            forever.resume(ID).await.unwrap();
        }
        left.completed(&forever, &handle, 1 + usize::from(death == Death::BeforeTheCharge)).await;
        forever.close().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn under_park_nothing_is_called_until_somebody_resolves_it() {
    for death in deaths() {
        let left = dies(parking(100), death).await;
        let calls = left.bank.calls();
        if death.leaves_it_unknown() {
            for restart in 0..3 {
                let (forever, handle) = left.opened(parking(100)).await;
                let error = soon(handle.wait()).await.unwrap_err();
                let ops = forever.ops(ID).await.unwrap();
                let why = format!("operation `{}` may have executed; verify, then resolve it: step `charge` was interrupted", ops[0].id);
                assert_eq!((error.kind(), error.reason()), (FiberErrorKind::Parked, why.as_str()), "{death:?}, restart {restart}");
                assert_eq!((words(&ops), left.bank.calls()), (vec!["charge started".to_owned()], calls), "{death:?}, restart {restart}");
                forever.close().await.unwrap();
            }
        }
        let (forever, handle) = left.opened(parking(100)).await;
        if death.leaves_it_unknown() {
            soon(handle.wait()).await.unwrap_err();
            let op = forever.ops(ID).await.unwrap().remove(0);
            forever.resolve_op(&op.id, left.found()).await.unwrap();
        }
        left.completed(&forever, &handle, 1 + usize::from(death == Death::BeforeTheCharge)).await;
        forever.close().await.unwrap();
    }
}

/// The number of writes, when those that no call waits for have begun as well: over Postgres they are not in one queue with the others.
async fn settled(fuse: &Fuse) -> u64 {
    let mut before = None;
    loop {
        let writes = fuse.writes();
        if !database::is_in_postgres() || before == Some(writes) {
            return writes;
        }
        before = Some(writes);
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
}

/// Killed between what a person has said and what the fiber does with it, on both sides of every write.
#[tokio::test(start_paused = true)]
async fn a_resolution_outlives_the_process() {
    for (fate, calls) in [(Death::AfterTheCharge, 1), (Death::BeforeTheCharge, 2)] {
        // The resolution, the fiber is entered, the effect begins (or not), its checkpoint, "noted", the end.
        let writes = 4 + calls as u64;
        for (n, after) in (1..=writes).flat_map(|n| [(n, false), (n, true)]) {
            let left = dies(parking(100), fate).await;
            let (opened, parked) = {
                let (forever, handle) = left.opened(parking(100)).await;
                soon(handle.wait()).await.unwrap_err();
                let op = forever.ops(ID).await.unwrap().remove(0);
                forever.close().await.unwrap();
                // The fiber is entered, and parked as before.
                let fuse = Fuse::never();
                let forever = left.place.builder(&left.bank).fiber::<parking>().fuse(fuse.clone()).open().await.unwrap();
                soon(forever.fiber::<parking>(ID).wait()).await.unwrap_err();
                let writes = settled(&fuse).await;
                forever.close().await.unwrap();
                (op, writes)
            };
            assert!(database::is_in_postgres() || parked == opening() + 2, "{parked} writes");
            let at = parked + n;
            let fuse = if after { Fuse::after(at) } else { Fuse::before(at) };
            let forever = left.place.builder(&left.bank).fiber::<parking>().fuse(fuse.clone()).open().await.unwrap();
            let handle = forever.fiber::<parking>(ID);
            soon(handle.wait()).await.unwrap_err();
            assert_eq!(settled(&fuse).await, parked);
            let life = async {
                forever.resolve_op(&opened.id, left.found()).await.unwrap();
                handle.wait().await
            };
            tokio::select! {
                ended = soon(life) => panic!("it lived at write {n}: {ended:?}, {} writes", fuse.writes()),
                () = fuse.blown() => {}
            }
            drop((handle, forever));

            let (forever, handle) = left.opened(parking(100)).await;
            let begun_anew = fate == Death::BeforeTheCharge && (n, after) == (3, true) || (n, after) == (4, false) && calls == 2;
            let should_park = n == 1 && !after || begun_anew;
            // Over Postgres the writes behind the resolution are others.
            if should_park || database::is_in_postgres() {
                let parks = soon(handle.wait()).await.is_err();
                assert!(parks == should_park || n > 1 && database::is_in_postgres(), "write {n}, after: {after}");
                if parks {
                    forever.resolve_op(&opened.id, left.found()).await.unwrap();
                }
            }
            let again = left.bank.calls();
            assert_eq!(soon(handle.wait()).await.unwrap(), 1000, "write {n}, after: {after}");
            assert!(left.bank.calls() <= again.max(calls), "write {n}, after: {after}");
            assert_eq!(left.bank.charges().len(), 1, "write {n}, after: {after}");
            forever.close().await.unwrap();
        }
    }
}
