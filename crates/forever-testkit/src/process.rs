//! This program started again as another process, which is killed in the middle of its work.
//!
//! A process ends with the value that stands for it, and with the process that started it: it
//! either reads its standard input to its end, or has called [`end_with_parent`].
use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Interval at which a process is checked.
const POLL: Duration = Duration::from_millis(5);

/// Stands before a line that is for the process that started this one.
const MARK: &str = "process says: ";

/// A command that starts this program again.
///
/// # Errors
///
/// If the path of this program is unknown.
pub fn this_program() -> io::Result<Command> {
    std::env::current_exe().map(Command::new)
}

/// A command that starts this test program again, for one test that is marked `#[ignore]`.
///
/// # Errors
///
/// If the path of this program is unknown.
pub fn this_test(name: &str) -> io::Result<Command> {
    let mut command = this_program()?;
    command.args(arguments_of(name));
    Ok(command)
}

/// The arguments by which a test program runs one test that is marked `#[ignore]`.
#[must_use]
pub fn arguments_of(test: &str) -> [&str; 5] {
    ["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]
}

/// In a process that was started: a line for the one that started it. It stands at the beginning of
/// a line, whatever was printed before.
pub fn say(what: impl Display) {
    println!("\n{MARK}{what}");
}

/// In a process that was started: ends it when the one that started it is gone.
pub fn end_with_parent() {
    std::thread::spawn(|| {
        // Nothing is written to this pipe. It ends with the process that started this one.
        let _ = io::stdin().read(&mut [0]);
        std::process::exit(1);
    });
}

/// What became of a program that was run to its end.
#[derive(Debug)]
pub struct Ran {
    /// How it ended.
    pub status: ExitStatus,
    /// What it printed.
    pub text: String,
    /// Its errors.
    pub errors: String,
}

/// Runs a program to its end.
///
/// # Panics
///
/// If it cannot be started, or takes longer; then it is killed.
pub fn ran(command: &mut Command, longest: Duration) -> Ran {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a program is there");
    let (id, (sender, receiver)) = (child.id(), mpsc::channel());
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    let output = receiver.recv_timeout(longest).unwrap_or_else(|_| {
        let _ = Command::new("kill").args(["-KILL", &id.to_string()]).status();
        panic!("it hangs: {command:?}")
    });
    let output = output.expect("the system says how a program ended");
    let [text, errors] = texts(&output);
    Ran { status: output.status, text, errors }
}

fn texts(output: &Output) -> [String; 2] {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// Runs one test of this program that is marked `#[ignore]`, in a process where nothing else takes
/// memory or time, and prints what it printed.
///
/// # Panics
///
/// If it fails, or is not there.
pub fn passes_alone(name: &str) {
    let output = this_test(name).and_then(|mut command| command.output()).expect("this program is there");
    let [text, errors] = texts(&output);
    print!("{text}");
    assert!(output.status.success() && text.contains("1 passed"), "{text}{errors}");
}

/// The path of an example, which cargo builds beside this test.
///
/// # Panics
///
/// If it is not there.
#[must_use]
pub fn example(name: &str) -> PathBuf {
    let this = std::env::current_exe().expect("the path of this program is known");
    let target = this.parent().and_then(Path::parent).expect("tests are built in `deps`, beside `examples`");
    let path = target.join("examples").join(name);
    assert!(path.exists(), "{} is not there: `cargo test --workspace` builds it", path.display());
    path
}

/// A running process. When it is dropped, it is killed.
#[derive(Debug)]
pub struct Process {
    child: Child,
    output: Option<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts a process whose output is read here.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let output = child.stdout.take().map(BufReader::new);
        Ok(Process { child, output })
    }

    /// Starts a process whose output is not read.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn start_silent(command: &mut Command) -> io::Result<Self> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn()?;
        Ok(Process { child, output: None })
    }

    /// Starts this program again, with arguments; its output is not read.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn start_again(args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> io::Result<Self> {
        Self::start_silent(this_program()?.args(args))
    }

    /// The number by which the system knows it.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it prints; `None` at the end.
    ///
    /// # Errors
    ///
    /// If its output cannot be read.
    pub fn line(&mut self) -> io::Result<Option<String>> {
        let Some(output) = &mut self.output else { return Ok(None) };
        let mut line = String::new();
        if output.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        line.truncate(line.trim_end_matches(['\r', '\n']).len());
        Ok(Some(line))
    }

    /// What it says next with [`say`]; `None` at the end.
    ///
    /// # Errors
    ///
    /// If its output cannot be read.
    pub fn said(&mut self) -> io::Result<Option<String>> {
        while let Some(line) = self.line()? {
            if let Some((_, said)) = line.split_once(MARK) {
                return Ok(Some(said.to_owned()));
            }
        }
        Ok(None)
    }

    /// Waits until it says `what` with [`say`].
    ///
    /// # Errors
    ///
    /// If it ends before.
    pub fn until_said(&mut self, what: &str) -> io::Result<()> {
        while let Some(said) = self.said()? {
            if said == what {
                return Ok(());
            }
        }
        Err(io::Error::other(format!("process {} ended without saying `{what}`", self.id())))
    }

    /// Its exit status, if it has ended.
    ///
    /// # Errors
    ///
    /// If the system does not say.
    pub fn status(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Closes its input, and waits until it ends.
    ///
    /// # Errors
    ///
    /// If the system does not say.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.child.stdin.take());
        self.read_to_end()?;
        self.child.wait()
    }

    /// A process whose output is not read waits for that.
    fn read_to_end(&mut self) -> io::Result<()> {
        if let Some(output) = &mut self.output {
            io::copy(output, &mut io::sink())?;
        }
        Ok(())
    }

    /// Waits until it ends by itself, with its input open.
    ///
    /// # Errors
    ///
    /// If the system does not say.
    pub fn wait_with_input(&mut self) -> io::Result<ExitStatus> {
        self.read_to_end()?;
        loop {
            if let Some(status) = self.status()? {
                return Ok(status);
            }
            std::thread::sleep(POLL);
        }
    }

    /// As [`wait_with_input`](Self::wait_with_input), for a task.
    ///
    /// # Errors
    ///
    /// If the system does not say.
    #[cfg(feature = "tokio")]
    pub async fn ended(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.status()? {
                return Ok(status);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Sends SIGKILL, and waits until it is gone.
    ///
    /// # Errors
    ///
    /// If it had ended otherwise before.
    pub fn kill(&mut self) -> io::Result<()> {
        let status = self.end()?;
        if was_killed(status) {
            return Ok(());
        }
        Err(io::Error::other(format!("process {} was to die of SIGKILL, but ended with {status}", self.id())))
    }

    /// As [`kill`](Self::kill), for a process that may have ended by itself; returns its exit
    /// status.
    ///
    /// # Errors
    ///
    /// If the system does not let it be killed.
    pub fn end(&mut self) -> io::Result<ExitStatus> {
        self.child.kill()?;
        self.child.wait()
    }

    /// Stops it with SIGSTOP, and waits until it is stopped.
    ///
    /// # Errors
    ///
    /// If it is gone.
    pub fn stop(&self) -> io::Result<()> {
        self.signal("STOP")?;
        loop {
            let state = Command::new("ps").args(["-o", "stat=", "-p", &self.id().to_string()]).output()?;
            // Stopped, or dead before it could be.
            if matches!(state.stdout.first(), Some(b'T' | b'Z') | None) {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets a stopped process continue.
    ///
    /// # Errors
    ///
    /// If it is gone.
    pub fn go_on(&self) -> io::Result<()> {
        self.signal("CONT")
    }

    /// Asks it to end, with SIGTERM.
    ///
    /// # Errors
    ///
    /// If it is gone.
    pub fn terminate(&self) -> io::Result<()> {
        self.signal("TERM")
    }

    fn signal(&self, name: &str) -> io::Result<()> {
        let status = Command::new("kill").args([&format!("-{name}"), &self.id().to_string()]).status()?;
        if status.success() {
            return Ok(());
        }
        Err(io::Error::other(format!("process {} cannot be sent SIG{name}", self.id())))
    }
}

/// Whether an exit status is death by SIGKILL.
#[cfg(unix)]
#[must_use]
pub fn was_killed(status: ExitStatus) -> bool {
    const SIGKILL: i32 = 9;
    std::os::unix::process::ExitStatusExt::signal(&status) == Some(SIGKILL)
}

/// Whether an exit status is that of a process that was killed.
#[cfg(not(unix))]
#[must_use]
pub fn was_killed(status: ExitStatus) -> bool {
    !status.success()
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails if it is gone, as it should be.
        let _ = self.child.kill().and_then(|()| self.child.wait());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Not a test: what the process does.
    #[test]
    #[ignore = "started by other tests"]
    fn role() {
        end_with_parent();
        print!("a line that is not ended");
        say("one");
        say("two");
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    fn started() -> Process {
        Process::start(&mut this_test("process::tests::role").unwrap()).unwrap()
    }

    #[test]
    fn a_process_is_heard_and_killed() {
        let mut process = started();
        process.until_said("two").unwrap();
        assert_eq!(process.status().unwrap(), None);
        process.kill().unwrap();
        assert_eq!(process.said().unwrap(), None);
        let error = process.until_said("three").unwrap_err().to_string();
        assert!(error.ends_with("ended without saying `three`"), "{error}");
    }

    #[test]
    fn a_process_ends_when_its_input_does() {
        let mut process = started();
        process.until_said("one").unwrap();
        assert_eq!(process.wait().unwrap().code(), Some(1));
        let error = process.kill().unwrap_err().to_string();
        assert!(error.contains("was to die of SIGKILL, but ended with"), "{error}");
    }
}
