//! Requests that several callers make and one task carries out.
use std::sync::Arc;

use crate::runtime::rounds::Rounds;
use crate::runtime::sync::Mutex;
use crate::store::sqlite::sync::thread;
use crate::support::in_any_order;

#[test]
fn no_request_is_left_when_all_rounds_are_over() {
    in_any_order(|| {
        let (rounds, requests) = (Arc::<Rounds<&str>>::default(), Arc::new(Mutex::new((0, 0))));
        let callers: Vec<_> = (0..3)
            .map(|_| {
                let (rounds, requests) = (Arc::clone(&rounds), Arc::clone(&requests));
                thread::spawn(move || {
                    requests.lock().unwrap().0 += 1;
                    let Some(mut round) = rounds.ask(&"agent") else { return };
                    loop {
                        let waiting = std::mem::take(&mut requests.lock().unwrap().0);
                        requests.lock().unwrap().1 += waiting;
                        if !round.again() {
                            return;
                        }
                    }
                })
            })
            .collect();
        for caller in callers {
            caller.join().unwrap();
        }
        assert_eq!(*requests.lock().unwrap(), (0, 3), "waiting and carried out");
        // A round that is given up does not keep the next from beginning.
        drop(rounds.ask(&"agent").expect("none is under way"));
        assert!(rounds.ask(&"agent").is_some());
    });
}
