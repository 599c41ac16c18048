//! Output of `kill_and_resume`: its progress and its table. In colour if the output is a terminal
//! and `NO_COLOR` is not set.
use std::io::IsTerminal;

use super::journal::Line;
use super::tally::{Place, Tally};

const RED: &str = "31;1";
const YELLOW: &str = "33";
const GREEN: &str = "32";
const GREY: &str = "90";

pub(crate) struct Show {
    colour: bool,
}

impl Show {
    pub(crate) fn new() -> Self {
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Show { colour: std::io::stdout().is_terminal() && !no_colour }
    }

    fn paint(&self, colour: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{colour}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Prints that a worker was started.
    pub(crate) fn started(&self, process: u32, tally: &Tally) {
        let from = match tally.finished() {
            0 => "begins".to_owned(),
            n => format!("goes on after `{}`", tally.steps[n - 1].name),
        };
        println!("{}", self.paint(GREY, &format!("process {process} {from}")));
    }

    /// Prints a line of the journal.
    pub(crate) fn line(&self, line: &Line, number: usize, tally: &Tally) {
        let (step, of) = (&tally.steps[number], tally.steps.len());
        match line {
            Line::Finished(name) => println!("{} {name}", self.paint(GREEN, &format!("{:>5}/{of}", number + 1))),
            Line::Started(name) if step.repeated > 0 => println!("{}", self.paint(RED, &format!("  FINISHED, BUT RUNS AGAIN: {name}"))),
            Line::Started(name) if step.ran > 1 => println!("{}", self.paint(YELLOW, &format!("  again: {name}"))),
            Line::Started(_) => {}
        }
    }

    /// Prints that a worker was killed.
    pub(crate) fn killed(&self, kill: u32, kills: u32, process: u32, tally: &Tally) {
        let name = |number: usize| &tally.steps[number].name;
        let place = match tally.place {
            Place::BeforeSteps => "before any step".to_owned(),
            Place::Inside(number) => format!("inside `{}`", name(number)),
            Place::After(number) if tally.steps[number].stored => format!("between steps, after `{}`", name(number)),
            Place::After(number) => format!("between the body and the checkpoint of `{}`", name(number)),
        };
        let kill = self.paint(RED, &format!("✗ kill {kill}/{kills}"));
        println!("{kill} of process {process}, {place}; stored: {} of {}", tally.finished(), tally.steps.len());
    }

    /// Prints the table of how often each step ran.
    pub(crate) fn table(&self, tally: &Tally) {
        let width = tally.steps.iter().map(|step| step.name.len()).max().unwrap_or(0);
        println!("\n{:<width$}  body ran  finished", "step");
        for step in &tally.steps {
            let finished = u32::from(step.stored) + step.repeated;
            let row = format!("{:<width$}  {:>8}  {finished:>8}", step.name, step.ran);
            let colour = match (step.repeated, step.ran) {
                (0, 1) => None,
                (0, _) => Some(YELLOW),
                _ => Some(RED),
            };
            println!("{}", colour.map_or(row.clone(), |colour| self.paint(colour, &row)));
        }
        println!();
    }
}
