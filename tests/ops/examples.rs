//! The examples of effects and of logs, run as a person runs them.
use std::process::Command;
use std::time::Duration;

use forever_testkit::process::{self, Ran};

/// How long an example may take before it is called hung; many times what it needs.
const LONGEST: Duration = Duration::from_secs(100);

fn run(name: &str, arguments: &[&str]) -> Ran {
    process::ran(Command::new(process::example(name)).args(arguments), LONGEST)
}

/// The numbers in the columns of a table's row: orders, requests, charges, repeated.
fn row(text: &str, policy: &str) -> [u32; 4] {
    let row = text.lines().find(|line| line.starts_with(policy)).unwrap();
    let mut numbers = row.split_whitespace().skip(1).map(|number| number.parse().unwrap());
    std::array::from_fn(|_| numbers.next().unwrap())
}

#[test]
fn a_hundred_orders_over_thirty_kills_are_charged_once_each_under_every_policy() {
    let Ran { status, text, errors } = run("payments", &[]);
    assert!(status.success(), "{text}{errors}");
    assert_eq!(text.lines().last(), Some("policy=all orders=100 kills=30 charges=100 started_left=0 result=ok"));
    let kills: Vec<_> = text.lines().filter(|line| line.starts_with("✗ kill ")).collect();
    assert_eq!(kills.len(), 30);
    for place in ["before the charge of", "between the charge of", "after the answer about", "after its start"] {
        assert!(kills.iter().any(|kill| kill.contains(place)), "no kill {place}: {text}");
    }
    for policy in ["retry", "check", "park", "fail"] {
        let [orders, requests, charges, repeated] = row(&text, policy);
        assert_eq!((orders, charges), (25, 25), "{text}");
        assert!(requests >= orders);
        assert!(policy == "retry" || repeated == 0, "asked for again although it was made: {text}");
    }
}

#[test]
fn more_kills_than_orders_charge_each_once() {
    let Ran { status, text, errors } = run("payments", &["--orders", "4", "--kills", "20", "--seed", "3"]);
    assert!(status.success(), "{text}{errors}");
    assert_eq!(text.lines().last(), Some("policy=all orders=4 kills=20 charges=4 started_left=0 result=ok"));
}

/// Shows that the count can go wrong, and which policies do not rest on the other side's memory.
#[test]
fn a_bank_that_forgets_keys_charges_twice_under_retry_alone() {
    let Ran { status, text, errors } = run("payments", &["--forgetful"]);
    assert_eq!(status.code(), Some(1), "{text}{errors}");
    let [orders, _, charges, _] = row(&text, "retry");
    assert!(charges > orders, "{text}");
    for policy in ["check", "park", "fail"] {
        assert_eq!(row(&text, policy)[2], 25, "{text}");
    }
    let message = format!("error: 100 orders, but {} charges: under retry orders were charged twice", charges + 75);
    assert_eq!(errors.lines().next(), Some(message.as_str()));
    assert!(text.lines().last().unwrap().ends_with("started_left=0 result=charged twice"), "{text}");
}

#[test]
fn a_stream_goes_on_behind_its_last_stored_chunk_over_kills() {
    for (arguments, kills) in [(&[] as &[&str], 6), (&["--kills", "0"], 0), (&["--kills", "20", "--seed", "9"], 20)] {
        let Ran { status, text, errors } = run("stream_resume", arguments);
        // The program itself compares what is asked for with what is stored, and the text with the whole.
        assert!(status.success(), "{text}{errors}");
        let last = text.lines().last().unwrap();
        assert!(last.starts_with(&format!("kills={kills} chunks=83 repeated_chunks=")) && last.ends_with(" result=ok"), "{last}");
        assert_eq!(text.lines().filter(|line| line.starts_with("✗ kill ")).count(), kills);
    }
}

#[test]
fn case_126_kills_in_the_middle_of_words_and_calls_lose_no_chunk_and_double_no_booking() {
    for (arguments, kills) in
        [(&["--kills", "0"] as &[&str], 0), (&["--kills", "6", "--seed", "3"], 6), (&["--kills", "12", "--seed", "5"], 12)]
    {
        let Ran { status, text, errors } = run("agent_loop", arguments);
        // The program itself compares what was shown with what is stored, and counts the bookings.
        assert!(status.success(), "{text}{errors}");
        let last = text.lines().last().unwrap();
        assert!(last.ends_with(" result=ok"), "{last}");
        // The answer may be whole before the last kill.
        let killed: u32 = last.strip_prefix("kills=").and_then(|rest| rest.split_once(' ')).unwrap().0.parse().unwrap();
        assert!(killed <= kills && killed >= kills / 2, "{last}");
    }
}

#[test]
fn wrong_arguments_are_explained() {
    let cases: [(&str, &[&str], &str); 8] = [
        ("agent_loop", &["--kills", "51"], "error: `--kills 51`: expected a number from 0 to 50"),
        ("payments", &["--orders", "3"], "error: `--orders 3`: expected a number from 4 to 1000"),
        ("payments", &["--kills", "many"], "error: `--kills many`: expected a number from 0 to 1000"),
        ("payments", &["--seed"], "error: `--seed` needs a value: a number"),
        ("payments", &["--policy", "park"], "error: unknown argument `--policy`"),
        ("stream_resume", &["--kills", "51"], "error: `--kills 51`: expected a number from 0 to 50"),
        ("stream_resume", &["--seed", "x"], "error: `--seed x`: expected a number"),
        ("stream_resume", &["now"], "error: unknown argument `now`"),
    ];
    for (name, arguments, message) in cases {
        let Ran { status, text, errors } = run(name, arguments);
        assert_eq!((status.code(), text.as_str()), (Some(2), ""), "{name} {arguments:?}");
        assert_eq!(errors.lines().next(), Some(message));
        assert!(errors.contains(&format!("usage: {name}")), "{errors}");
    }
    for name in ["agent_loop", "payments", "stream_resume"] {
        let Ran { status, text, .. } = run(name, &["--help"]);
        assert_eq!(status.code(), Some(0));
        assert!(text.contains(&format!("usage: {name}")), "{text}");
    }
}
