//! The examples, run as a person runs them.
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use forever_testkit::process::{self, Ran};

/// How long an example may take before it is called hung; many times what it needs.
const LONGEST: Duration = Duration::from_secs(60);

fn example(name: &str) -> Command {
    let mut command = Command::new(process::example(name));
    for name in ["OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_MODEL", "NO_COLOR"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// Runs a program to its end; kills it if it hangs.
fn run(command: &mut Command) -> Ran {
    process::ran(command, LONGEST)
}

#[cfg(unix)]
mod kill_and_resume {
    use super::*;

    #[test]
    fn twenty_kills_repeat_no_finished_step() {
        let Ran { status, text, errors } = run(&mut example("kill_and_resume"));
        assert!(status.success(), "{text}{errors}");
        assert_eq!(text.lines().last(), Some("kills=20 steps=60 repeated_finished_steps=0 result=ok"));
        assert_eq!(text.lines().filter(|line| line.starts_with("✗ kill ")).count(), 20);
        assert!(!text.contains('\x1b'), "colour in a pipe");
    }

    #[test]
    fn fifty_kills_repeat_no_finished_step() {
        let Ran { status, text, errors } = run(example("kill_and_resume").args(["--kills", "50", "--steps", "120", "--seed", "7"]));
        assert!(status.success(), "{text}{errors}");
        assert_eq!(text.lines().last(), Some("kills=50 steps=120 repeated_finished_steps=0 result=ok"));
        for place in ["before any step", "inside `"] {
            assert!(text.contains(place), "no kill {place}: {text}");
        }
        // One between two steps is by chance: `crash examples::kill_and_resume` kills it at every write.
        assert_eq!(text.lines().filter(|line| line.starts_with("✗ kill ")).count(), 50, "{text}");
    }

    #[test]
    fn more_kills_than_steps_repeat_no_finished_step() {
        let Ran { status, text, errors } = run(example("kill_and_resume").args(["--kills", "15", "--steps", "2", "--seed", "3"]));
        assert!(status.success(), "{text}{errors}");
        assert_eq!(text.lines().last(), Some("kills=15 steps=2 repeated_finished_steps=0 result=ok"));
    }
}

#[cfg(unix)]
#[test]
fn a_fiber_waits_for_a_person_longer_than_its_process_lives() {
    let Ran { status, text, errors } = run(&mut example("approval"));
    assert!(status.success(), "{text}{errors}");
    assert_eq!(text.lines().last(), Some("kills=3 drafts=2 paid=1 expired=1 result=ok"));
    assert_eq!(text.lines().filter(|line| line.contains("waits: a row in the database")).count(), 5, "{text}");
}

#[cfg(unix)]
#[test]
fn children_are_made_once_and_put_together_in_order_over_kills() {
    for (arguments, kills) in [(&[] as &[&str], 6), (&["--kills", "0"], 0), (&["--kills", "4", "--seed", "9"], 4)] {
        let Ran { status, text, errors } = run(example("fan_out").args(arguments));
        assert!(status.success(), "{text}{errors}");
        let last = format!("kills={kills} children=8 pages=96 repeated_pages=0 order=kept result=ok");
        assert_eq!(text.lines().last(), Some(last.as_str()));
    }
}

#[test]
fn an_agent_that_is_kept_alive_goes_on_after_a_kill_without_a_request() {
    let Ran { status, text, errors } = run(&mut example("keep_alive"));
    assert!(status.success(), "{text}{errors}");
    assert_eq!(text.lines().last(), Some("pages=10 kills=1 woken_without_a_request=true heartbeats_left=0"));
}

#[test]
fn schedules_run_and_outlive_a_kill() {
    let Ran { status, text, errors } = run(&mut example("schedule"));
    assert!(status.success(), "{text}{errors}");
    assert_eq!(text.lines().last(), Some("tea=1 toast=2 cake=1 schedules_left=2 (the repeating ones)"));
    assert!(text.contains("worker 2: 3 schedules are there: clock, stir, cake"), "{text}");
}

#[test]
fn wrong_arguments_of_examples_are_explained() {
    let cases: [(&str, &[&str], &str); 11] = [
        ("kill_and_resume", &["--kills", "many"], "error: `--kills many`: expected a number from 0 to 1000"),
        ("kill_and_resume", &["--steps", "1"], "error: `--steps 1`: expected a number from 2 to 10000"),
        ("kill_and_resume", &["--seed"], "error: `--seed` needs a value: a number"),
        ("kill_and_resume", &["--fast"], "error: unknown argument `--fast`"),
        ("research", &["--crash-after", "0"], "error: `--crash-after 0`: expected a number from 1"),
        ("research", &["--db"], "error: `--db` needs a value: a path"),
        ("research", &["why"], "error: unknown argument `why`"),
        ("approval", &["now"], "error: unknown argument `now`"),
        ("fan_out", &["--kills", "7"], "error: `--kills 7`: expected a number from 0 to 6"),
        ("keep_alive", &["now"], "error: unknown argument `now`"),
        ("schedule", &["now"], "error: unknown argument `now`"),
    ];
    for (name, arguments, message) in cases {
        let Ran { status, text, errors } = run(example(name).args(arguments));
        assert_eq!(status.code(), Some(2), "{name} {arguments:?}");
        assert_eq!(text, "");
        assert_eq!(errors.lines().next(), Some(message));
        assert!(errors.contains(&format!("usage: {name}")), "{errors}");
    }
}

#[test]
fn examples_explain_themselves() {
    for name in ["approval", "fan_out", "kill_and_resume", "research", "keep_alive", "schedule"] {
        let Ran { status, text, .. } = run(example(name).arg("--help"));
        assert_eq!(status.code(), Some(0));
        assert!(text.contains(&format!("usage: {name}")), "{text}");
    }
}

mod research {
    use super::*;

    const ANSWER: &str = "answer: The Eiffel Tower is 191.5 m higher than the Great Pyramid of Giza: 330 m and 138.5 m.";
    /// Three turns of the model and three calls of tools.
    const STEPS: usize = 6;

    fn research(db: &Path) -> Command {
        let mut command = example("research");
        command.arg("--db").arg(db);
        command
    }

    /// The scripted model in a process of its own, which outlives those that ask it.
    struct Model {
        child: Child,
        lines: mpsc::Receiver<String>,
        url: String,
    }

    impl Model {
        fn start() -> Self {
            let mut child = example("research").arg("--serve").stdout(Stdio::piped()).spawn().unwrap();
            let output = BufReader::new(child.stdout.take().unwrap());
            let (tell, lines) = mpsc::channel();
            std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
            let url = lines.recv_timeout(LONGEST).unwrap();
            Model { child, lines, url }
        }

        /// Makes a command ask this model.
        fn asked_by<'a>(&self, command: &'a mut Command) -> &'a mut Command {
            command.envs([("OPENAI_BASE_URL", self.url.as_str()), ("OPENAI_API_KEY", "test"), ("OPENAI_MODEL", "script")])
        }

        /// Ends it; gives the requests that came.
        fn requests(mut self) -> Vec<String> {
            self.child.kill().unwrap();
            self.lines.iter().collect()
        }
    }

    impl Drop for Model {
        fn drop(&mut self) {
            let _ = self.child.kill().and_then(|()| self.child.wait());
        }
    }

    fn fresh() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let db = dir.path().join("research.db");
        (dir, db)
    }

    /// The steps that a run did, and those that it did not repeat.
    fn steps(text: &str) -> (Vec<&str>, Vec<&str>) {
        let all = |prefix| text.lines().filter_map(move |line| line.strip_prefix(prefix)).collect();
        (all("step done: "), all("  ✓ "))
    }

    #[test]
    fn an_answer_is_found_and_kept() {
        let (_dir, db) = fresh();
        let Ran { status, text, errors } = run(&mut research(&db));
        assert!(status.success(), "{text}{errors}");
        assert_eq!(text.lines().last(), Some(ANSWER));
        assert_eq!(steps(&text).0.len(), STEPS);
        let Ran { status, text: again, errors } = run(&mut research(&db));
        assert!(status.success(), "{again}{errors}");
        assert_eq!(again.lines().last(), Some(ANSWER));
        assert_eq!(steps(&again), (vec![], vec![]));
    }

    #[test]
    fn a_crash_after_any_step_changes_no_answer_and_repeats_no_turn() {
        let (_dir, db) = fresh();
        let Ran { text: whole, .. } = run(&mut research(&db));
        let (all, _) = steps(&whole);
        for crash in 1..=STEPS {
            let model = Model::start();
            let (_dir, db) = fresh();
            let Ran { status, text: before, .. } = run(model.asked_by(research(&db).args(["--crash-after", &crash.to_string()])));
            assert!(!status.success(), "{before}");
            assert_eq!(steps(&before), (all[..crash].to_vec(), vec![]));
            let Ran { status, text: after, errors } = run(model.asked_by(&mut research(&db)));
            assert!(status.success(), "{after}{errors}");
            assert_eq!(steps(&after), (all[crash..].to_vec(), all[..crash].to_vec()));
            assert_eq!(after.lines().last(), Some(ANSWER));
            let tools = [&before, &after].map(|text| text.lines().filter(|line| line.starts_with("  tool: ")).count());
            assert_eq!(tools[0] + tools[1], 3, "bodies of tools that ran: {before}{after}");
            let turns =
                ["turn 1 of a model, after 2 messages", "turn 2 of a model, after 5 messages", "turn 3 of a model, after 7 messages"];
            assert_eq!(model.requests(), turns, "crash after step {crash}");
        }
    }

    #[test]
    fn a_crash_after_every_step_repeats_nothing() {
        let (_dir, db) = fresh();
        let model = Model::start();
        let mut done = Vec::new();
        for step in 0..STEPS {
            let Ran { status, text, .. } = run(model.asked_by(research(&db).args(["--crash-after", "1"])));
            assert!(!status.success(), "{text}");
            let (now, kept) = steps(&text);
            assert_eq!((now.len(), kept.len()), (1, step), "{text}");
            assert_eq!(kept, done);
            done.push(now[0].to_owned());
        }
        let Ran { status, text, errors } = run(model.asked_by(&mut research(&db)));
        assert!(status.success(), "{text}{errors}");
        assert_eq!(text.lines().last(), Some(ANSWER));
        assert_eq!(model.requests().len(), 3);
    }

    #[test]
    fn half_an_endpoint_is_an_error() {
        let (_dir, db) = fresh();
        let Ran { status, text: _, errors } = run(research(&db).env("OPENAI_API_KEY", "secret"));
        assert_eq!(status.code(), Some(1));
        assert!(errors.starts_with("error: `OPENAI_BASE_URL` is not set"), "{errors}");
    }
}
