//! The thread that writes: who is answered, when, and what it leaves.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Waker};

use crate::error::{ErrorKind, Result};
use crate::store::sqlite::job::Scope;
use crate::store::sqlite::sync::thread;
use crate::store::sqlite::worker::Worker;
use crate::support::{Book, caller, in_any_order};

/// Writes in turn, and looks each time whether what is told is true.
async fn writes(book: Book, worker: Arc<Worker>, numbers: [(u32, Scope); 2]) -> Vec<(u32, Result<()>)> {
    let mut told = Vec::new();
    for (n, scope) in numbers {
        let answer = book.write(&worker, n, scope).await;
        assert!(answer.is_err() || book.committed().contains(&n), "{n} is said to be stored, and is not");
        told.push((n, answer));
    }
    told
}

fn is_closed(answer: &Result<()>) -> bool {
    answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::Closed)
}

/// A caller spins for its answer while it is the only one, and sleeps otherwise: three of them do both.
fn three_callers() {
    let book = Book::default();
    let worker = Arc::new(book.worker());
    let (one, many) = (Scope::One, Scope::Many);
    let callers = [[(1, one), (2, one)], [(11, many), (19, many)], [(21, many), (22, one)]]
        .map(|numbers| caller(writes(book.clone(), Arc::clone(&worker), numbers)));
    let told: Vec<_> = callers.into_iter().flat_map(|caller| caller.join().unwrap()).collect();
    assert_eq!(told.len(), 6);
    for (n, answer) in &told {
        assert_eq!(answer.is_err(), *n == 19, "{n}: {answer:?}");
    }
    let stored = shuttle::future::block_on(book.read(&worker)).unwrap();
    let of = |ten: u32| stored.iter().copied().filter(|n| n / 10 == ten).collect::<Vec<_>>();
    assert_eq!([of(0), of(1), of(2)], [vec![1, 2], vec![11], vec![21, 22]], "all that was told, in the order of each caller: {stored:?}");
    worker.stop();
    assert_eq!(book.gone(), ["connection", "lock"]);
}

#[test]
fn each_caller_has_one_answer_and_what_it_was_told_is_stored() {
    in_any_order(three_callers);
}

#[test]
fn nobody_waits_for_ever_when_the_thread_is_told_to_stop() {
    in_any_order(|| {
        let book = Book::default();
        let worker = Arc::new(book.worker());
        let callers = [[(1, Scope::One), (2, Scope::One)], [(11, Scope::Many), (12, Scope::Many)]]
            .map(|numbers| caller(writes(book.clone(), Arc::clone(&worker), numbers)));
        let (of_thread, seen) = (Arc::clone(&worker), book.clone());
        let other = thread::spawn(move || {
            of_thread.stop();
            // One of the two has the thread to wait for.
            seen.gone().len()
        });
        shuttle::future::block_on(worker.stopped());
        assert_eq!(book.gone(), ["connection", "lock"], "closed before whoever stopped it goes on");
        other.join().unwrap();
        for (n, answer) in callers.into_iter().flat_map(|caller| caller.join().unwrap()) {
            assert!(answer.is_ok() || is_closed(&answer), "{n}: {answer:?}");
        }
        let late = shuttle::future::block_on(book.write(&worker, 31, Scope::One));
        assert!(is_closed(&late), "{late:?}");
    });
}

#[test]
fn calls_that_are_queued_together_are_stored_in_their_order() {
    in_any_order(|| {
        let book = Book::default();
        let worker = book.worker();
        // No more than there is place for: who waits for a place has no order.
        let mut first = Box::pin(book.write(&worker, 1, Scope::Many));
        let mut second = Box::pin(book.write(&worker, 2, Scope::Many));
        let (mut one, mut two) = (false, false);
        let both = std::future::poll_fn(|cx| {
            one = one || first.as_mut().poll(cx).map(Result::unwrap).is_ready();
            two = two || second.as_mut().poll(cx).map(Result::unwrap).is_ready();
            if one && two { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        });
        shuttle::future::block_on(both);
        assert_eq!(shuttle::future::block_on(book.read(&worker)).unwrap(), [1, 2]);
    });
}

/// A lone caller runs its jobs itself, in most orders; in none does a job overtake one that was queued, though its caller be gone.
#[test]
fn job_of_a_lone_caller_is_stored_behind_all_that_is_queued() {
    static INLINE: AtomicU32 = AtomicU32::new(0);
    in_any_order(|| {
        let book = Book::default();
        let worker = book.worker();
        {
            let mut gone = Box::pin(book.write_there(&worker, 1, Scope::One));
            let _ = gone.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        }
        for n in [2, 3, 4] {
            shuttle::future::block_on(book.write(&worker, n, if n == 3 { Scope::One } else { Scope::Many })).unwrap();
            assert!(book.committed().contains(&n), "{n} is said to be stored, and is not");
        }
        assert_eq!(book.committed(), [1, 2, 3, 4]);
        INLINE.fetch_add(book.inline(), Ordering::Relaxed);
        // The thread is woken for one that it has to do, and ends.
        shuttle::future::block_on(book.write_there(&worker, 5, Scope::One)).unwrap();
        worker.stop();
        assert_eq!(book.gone(), ["connection", "lock"]);
    });
    assert!(INLINE.load(Ordering::Relaxed) > 0, "no job was run by its caller");
}

/// Two callers of which each may have the connection, and the worker is told to stop meanwhile.
#[test]
fn connection_is_closed_once_and_used_by_one_thread_at_a_time() {
    in_any_order(|| {
        let book = Book::default();
        let worker = Arc::new(book.worker());
        let callers = [[(1, Scope::One), (2, Scope::Many)], [(11, Scope::Many), (12, Scope::One)]]
            .map(|numbers| caller(writes(book.clone(), Arc::clone(&worker), numbers)));
        worker.stop();
        assert_eq!(book.gone(), ["connection", "lock"]);
        let stored = book.committed();
        for (n, answer) in callers.into_iter().flat_map(|caller| caller.join().unwrap()) {
            assert!(answer.is_ok() || is_closed(&answer), "{n}: {answer:?}");
            assert!(answer.is_err() || stored.contains(&n), "{n} was stored after the worker had stopped");
        }
    });
}

/// Polls a call so often, and then goes away.
async fn goes_away(book: Book, worker: Arc<Worker>, polls: u32) {
    let mut call = std::pin::pin!(book.write(&worker, 41, Scope::Many));
    let mut left = polls;
    std::future::poll_fn(|cx| {
        if call.as_mut().poll(cx).is_ready() || left == 0 {
            return std::task::Poll::Ready(());
        }
        left -= 1;
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

#[test]
fn a_caller_that_goes_away_keeps_nobody_from_an_answer() {
    in_any_order(|| {
        let book = Book::default();
        let worker = Arc::new(book.worker());
        let away = [0, 1, 2].map(|polls| caller(goes_away(book.clone(), Arc::clone(&worker), polls)));
        let stays = caller(writes(book.clone(), Arc::clone(&worker), [(1, Scope::Many), (2, Scope::One)]));
        for caller in away {
            caller.join().unwrap();
        }
        assert!(stays.join().unwrap().iter().all(|(_, answer)| answer.is_ok()));
        // Its last owner goes.
        drop(worker);
        assert_eq!(book.gone(), ["connection", "lock"]);
    });
}

/// One thread that runs many tasks, as tokio's does: it drops a store while callers have been given a place in the queue and have not gone on yet.
#[test]
fn a_thread_stops_although_all_places_in_its_queue_are_given_to_callers_that_do_not_go_on() {
    in_any_order(|| {
        let book = Book::default();
        let worker = Arc::new(book.worker());
        let waker = std::task::Waker::noop();
        let mut cx = std::task::Context::from_waker(waker);
        let mut calls: Vec<_> = (1..7).map(|n| Box::pin(book.write(&worker, n, Scope::One))).collect();
        for call in &mut calls {
            let _ = call.as_mut().poll(&mut cx);
        }
        // Some of the threads' orders let the writer take all that is queued here.
        for _ in 0..8 {
            thread::yield_now();
        }
        worker.stop();
        drop(calls);
        assert_eq!(book.gone(), ["connection", "lock"]);
    });
}
