//! Calls that are given up: each is dropped at every place where it waits, and what it has begun comes to its end all the same.
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::pin;
use std::task::Poll;

use forever_runtime::BoxError;
use forever_runtime::agent::{AgentHandle, Pushed};
use forever_runtime::fiber::FiberState;
use forever_testkit::waiting::{settled, soon};

use super::{Clerk, HOUR, MINUTE, SECOND, World};

/// Polls a future so often, each time when it is woken, and drops it then; what it gives if it is ready before.
async fn polled<F: Future>(future: F, times: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut left = times;
    poll_fn(|cx| {
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// An agent of its own for each number of polls.
async fn at_every_poll<F: Future<Output = bool>>(world: &World, check: impl Fn(AgentHandle<Clerk>, usize) -> F) {
    let forever = world.open().await;
    for times in 1.. {
        let agent = forever.agent::<Clerk>(format!("a{times}"));
        let given_up = check(agent, times).await;
        if !given_up {
            assert!(times > 1, "it never waits");
            break;
        }
    }
    // Nothing is left that keeps an agent in memory, or that the next process would have to do.
    soon("the end of the last heartbeat", world.until("SELECT count(*) FROM agents WHERE heartbeat_ms IS NOT NULL", 0)).await;
    world.pass(&forever, HOUR).await;
    soon("the end of the last schedule", world.until("SELECT count(*) FROM schedules WHERE class = 'clerk'", 0)).await;
    world.pass(&forever, HOUR).await;
    for times in 1..10 {
        let agent = forever.agent::<Clerk>(format!("a{times}"));
        assert!(!agent.is_awake(), "{times}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_is_asked_for_in_vain_leaves_memory() {
    at_every_poll(&World::new(), |agent, times| async move {
        let given_up = [
            polled(agent.wake(), times).await.is_none(),
            polled(agent.connect(), times).await.is_none(),
            polled(agent.state(), times).await.is_none(),
            polled(agent.schedules(), times).await.is_none(),
        ];
        given_up.contains(&true)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_state_that_is_stored_is_sent_to_connections_although_the_call_is_given_up() {
    at_every_poll(&World::new(), |agent, times| async move {
        let mut connection = agent.connect().await.unwrap();
        let given_up = polled(agent.set_state(&vec!["new".to_owned()]), times).await.is_none();
        let pushed = soon("the state", connection.recv()).await;
        assert!(matches!(pushed, Some(Pushed::State(state)) if state.json() == r#"["new"]"#));
        assert_eq!(agent.state().await.unwrap(), ["new"]);
        given_up
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_is_asked_for_in_vain_keeps_no_agent_awake() {
    at_every_poll(&World::new(), |agent, times| async move {
        let taken = polled(agent.keep_alive(), times).await.is_none();
        polled(agent.keep_alive_while(async { tokio::task::yield_now().await }), times).await.is_none() | taken
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_guard_is_released_although_the_call_is_given_up() {
    at_every_poll(&World::new(), |agent, times| async move {
        let mut guard = agent.keep_alive().await.unwrap();
        let given_up = polled(guard.release(), times).await.is_none();
        drop(guard);
        given_up
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_schedule_that_is_stored_runs_although_the_call_is_given_up() {
    let world = World::new();
    let in_test = world.clone();
    at_every_poll(&world, move |agent, times| {
        let world = in_test.clone();
        async move {
            let before = world.dues().len();
            let given_up = polled(agent.schedule(MINUTE, "tea", ()).into_future(), times).await.is_none();
            // Writes are carried out in their order.
            agent.set_state(&Vec::new()).await.unwrap();
            world.clock.advance(MINUTE);
            let ran = async {
                while world.dues().len() == before {
                    settled().await;
                }
            };
            soon("the time of a schedule", ran).await;
            let name = agent.name().to_owned();
            world.until(&format!("SELECT count(*) FROM schedules WHERE agent = '{name}'"), 0).await;
            given_up
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_interval_can_be_asked_for_and_taken_away_although_calls_are_given_up() {
    at_every_poll(&World::new(), |agent, times| async move {
        let asked = polled(agent.schedule_every(SECOND, "tick", ()).into_future(), times).await.is_none();
        let tick = agent.schedule_every(SECOND, "tick", ()).await.unwrap();
        assert_eq!(agent.schedules().await.unwrap().len(), 1);
        let cancelled = polled(agent.cancel_schedule(tick.id()), times).await.is_none();
        agent.cancel_schedule(tick.id()).await.unwrap();
        asked | cancelled
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_fiber_of_an_agent_that_is_stored_runs_although_the_call_is_given_up() {
    let world = World::new();
    let forever = world.open().await;
    for times in 1.. {
        let agent = forever.agent::<Clerk>(format!("a{times}"));
        let closure = agent.spawn_closure("work", |_| async { Ok::<_, BoxError>(1) });
        let given_up = polled(closure.start(), times).await.is_none();
        let all = || forever.fibers().agent("clerk", format!("a{times}"));
        agent.set_state(&Vec::new()).await.unwrap();
        let ended = async {
            while all().state(FiberState::Completed).await.unwrap().fibers.len() != 1 {
                settled().await;
            }
        };
        soon("the end of a fiber", ended).await;
        if !given_up {
            assert!(times > 1);
            return;
        }
    }
}
