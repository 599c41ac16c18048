//! Command lines of programs: `--name value` and `--name`, with an error for each
//! wrong one.
use std::fmt::Display;
use std::process::{ExitCode, exit};
use std::str::FromStr;

/// Arguments that are not read yet.
#[derive(Debug)]
pub struct Args {
    usage: &'static str,
    left: Vec<String>,
}

impl Args {
    /// Reads the command line; prints `usage` and ends the program if it asks for help.
    pub fn of_program(usage: &'static str) -> Self {
        let mut args = Args { usage, left: std::env::args().skip(1).collect() };
        if args.flag("--help") || args.flag("-h") {
            println!("{usage}");
            exit(0);
        }
        args
    }

    /// Whether the flag `name` is given.
    pub fn flag(&mut self, name: &str) -> bool {
        let found = self.left.iter().position(|arg| arg == name);
        found.map(|at| self.left.remove(at)).is_some()
    }

    /// The value after `name`, if it is given; a value that `check` refuses ends the program.
    pub fn value<T: FromStr>(&mut self, name: &str, wanted: &str, check: impl Fn(&T) -> bool) -> Option<T> {
        let at = self.left.iter().position(|arg| arg == name)?;
        self.left.remove(at);
        if at == self.left.len() {
            self.wrong(&format!("`{name}` needs a value: {wanted}"));
        }
        let text = self.left.remove(at);
        match text.parse() {
            Ok(value) if check(&value) => Some(value),
            _ => self.wrong(&format!("`{name} {text}`: expected {wanted}")),
        }
    }

    /// Ends the program with an error if an argument is left.
    pub fn finish(self) {
        if let Some(arg) = self.left.first() {
            self.wrong(&format!("unknown argument `{arg}`"));
        }
    }

    fn wrong(&self, why: &str) -> ! {
        eprintln!("error: {why}\n\n{}", self.usage);
        exit(2);
    }
}

/// The exit code of a program that has done its work, well or not; an error is printed.
pub fn exit_code(done: Result<bool, impl Display>) -> ExitCode {
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
