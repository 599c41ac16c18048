//! An order under each policy.
use std::sync::{Arc, Mutex, OnceLock};

use forever::Forever;
use forever::testing::{World, crash_everywhere};
use futures_util::FutureExt;

use super::bank::{Bank, Policy};
use super::bank_server::Server;
use super::{by_check, by_fail, by_park, by_retry, one_charge, orders, till};

/// The bank of a world, over a real socket.
#[derive(Clone, Default)]
struct Side(Arc<OnceLock<(Server, Bank)>>);

impl Side {
    fn of(world: &World) -> Self {
        let side: Side = world.shared();
        side.0.get_or_init(|| {
            // On loopback there is nothing to wait for.
            let (server, url) = Server::start(4, false, 1).now_or_never().unwrap().unwrap();
            (server, Bank::at(&url).unwrap())
        });
        side
    }

    fn bank(&self) -> &Bank {
        &self.0.get().unwrap().1
    }
}

#[tokio::test]
async fn each_order_is_charged_once_under_its_policy() {
    for policy in Policy::ALL {
        let side = Mutex::new(Side::default());
        let test = crash_everywhere(
            |world| {
                let here = Side::of(world);
                let builder = Forever::builder().in_memory().resource(here.bank().clone());
                *side.lock().unwrap() = here;
                builder.fiber::<by_retry>().fiber::<by_check>().fiber::<by_park>().fiber::<by_fail>().fiber::<one_charge>()
            },
            async |forever: Forever| {
                let here = side.lock().unwrap().clone();
                till(&forever, here.bank(), policy, 4).await.unwrap();
                let order = orders(policy, 4).next().unwrap();
                let charges = here.0.get().unwrap().0.charges();
                charges.iter().filter(|(_, receipt)| receipt.order == order.id()).count()
            },
        );
        // A fiber under `Fail` looks its charge up, if it does not know of it.
        let test = if policy == Policy::Fail { test.may_go_other_ways() } else { test };
        assert_eq!(test.await.unwrap().outcome, 1, "{policy:?}");
    }
}
