//! The grammar of the command line.
use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgGroup, Command};
use clap_complete::Shell;

const CODES: &str = "Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 no such fiber or operation, 4 database or owner not \
reached, 5 something needs attention (doctor, check).\n\nCompletions: forever completions bash|zsh|fish|elvish|powershell";

pub(crate) fn command() -> Command {
    Command::new("forever")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Looks at durable fibers from outside of their process, and gives commands")
        .after_help(CODES)
        .arg(
            Arg::new("target")
                .value_name("FILE|URL")
                .required(true)
                .help("A database file, http://host:port of an inspector, or postgres://.."),
        )
        .arg(Arg::new("json").long("json").global(true).action(ArgAction::SetTrue).help("Prints JSON in place of tables"))
        .arg(
            Arg::new("upgrade")
                .long("upgrade")
                .global(true)
                .action(ArgAction::SetTrue)
                .help("Lets a command raise the schema of a file without an owner"),
        )
        .arg(Arg::new("header").long("header").global(true).action(ArgAction::Append).value_name("NAME: VALUE").help("Header for a URL"))
        .subcommand_required(true)
        .subcommands(views())
        .subcommands([
            many("resume", "Lets fibers that stopped go on from their last checkpoint"),
            many("restart", "Lets fibers that stopped begin again with their arguments"),
            many("cancel", "Cancels fibers and their children")
                .arg(Arg::new("reason").long("reason").default_value("cancelled by a person")),
            Command::new("resolve")
                .about("Ends a fiber that is parked or interrupted")
                .arg(id())
                .arg(Arg::new("complete").long("complete").value_name("JSON").help("With this result"))
                .arg(Arg::new("fail").long("fail").value_name("REASON").help("With this error"))
                .group(ArgGroup::new("how").args(["complete", "fail"]).required(true)),
            Command::new("resolve-op")
                .about("Settles an operation of unknown outcome")
                .arg(Arg::new("id").required(true).value_name("OPERATION").help("Its id"))
                .arg(Arg::new("completed").long("completed").value_name("JSON").help("It was carried out, with this result"))
                .arg(Arg::new("not-executed").long("not-executed").action(ArgAction::SetTrue).help("It was not: it runs again"))
                .arg(Arg::new("failed").long("failed").value_name("ERROR").help("It failed"))
                .group(ArgGroup::new("how").args(["completed", "not-executed", "failed"]).required(true)),
            Command::new("send")
                .about("Sends a message to a fiber")
                .arg(id())
                .arg(Arg::new("topic").required(true))
                .arg(Arg::new("value").required(true).value_name("JSON"))
                .arg(Arg::new("message-id").long("message-id").help("Makes it safe to repeat")),
            Command::new("discard")
                .about("Deletes a message that a fiber has not received")
                .arg(id())
                .arg(Arg::new("number").required(true).value_parser(clap::value_parser!(i64)).help("As `show` prints it")),
        ])
        .subcommands([
            Command::new("edit")
                .about("Changes locals of a fiber that is not running, or its arguments before its first checkpoint")
                .arg(id())
                .arg(set().required(true))
                .arg(Arg::new("by").long("by").value_name("WHO").help("Who changes them, for the record")),
            Command::new("fork")
                .about("Starts a second fiber where another one stands, or stood behind a checkpoint")
                .arg(id())
                .arg(Arg::new("at").long("at").value_parser(clap::value_parser!(u64)).value_name("CHECKPOINT").help("Of its timeline"))
                .arg(Arg::new("new-id").long("id").value_name("ID").help("Id of the fork; makes it safe to repeat"))
                .arg(set().long("set"))
                .arg(
                    Arg::new("repeat-effects")
                        .long("repeat-effects")
                        .action(ArgAction::SetTrue)
                        .help("Effects behind the checkpoint are carried out again"),
                ),
            Command::new("timeline").about("Lists the kept checkpoints of a fiber").arg(id()),
            Command::new("locals")
                .about("Shows the locals of a fiber behind a checkpoint, and what it has changed")
                .arg(id())
                .arg(Arg::new("number").required(true).value_parser(clap::value_parser!(u64)).value_name("CHECKPOINT")),
            filter(Command::new("export").about("Prints fibers as JSON, one a line, to be imported elsewhere").arg(id().required(false)))
                .arg(Arg::new("all").long("all").action(ArgAction::SetTrue).help("Every fiber that the filter lets through"))
                .group(ArgGroup::new("which").args(["id", "all"]).required(true)),
            Command::new("import")
                .about("Stores exported fibers")
                .arg(Arg::new("path").required(true).value_name("FILE").help("With one export a line; `-` for the standard input"))
                .arg(Arg::new("new-id").long("id").value_name("ID").help("Another id, for one fiber"))
                .arg(Arg::new("resume").long("resume").action(ArgAction::SetTrue).help("They go on here, and must nowhere else")),
            Command::new("check").about("Whether the stored fibers fitted the code when the owner was opened"),
            Command::new("doctor").about("Looks for what is wrong: integrity, stuck and stopped fibers, unknown outcomes, the log's size"),
            Command::new("backup").about("Copies the database").arg(Arg::new("path").required(true).value_name("FILE")),
        ])
}

/// Commands that only look.
fn views() -> [Command; 10] {
    [
        Command::new("status").about("What is wrong, since when and how often, and counts by function"),
        filter(Command::new("ls").about("Lists fibers, the newest first"))
            .arg(Arg::new("oldest-first").long("oldest-first").action(ArgAction::SetTrue))
            .arg(limit()),
        Command::new("show").about("Shows one fiber: its source with an arrow, its values, its operations").arg(id()),
        Command::new("watch").about("Prints what happens, until it is interrupted").arg(id().required(false)),
        Command::new("ops").about("Lists the operations of a fiber, or all of unknown outcome").arg(id().required(false)),
        Command::new("functions").about("Lists functions with their fibers"),
        Command::new("agents").about("Lists agents"),
        Command::new("schedules").about("Lists schedules"),
        Command::new("chats")
            .about("Lists the newest turns of all chats, and calls that wait for an answer")
            .arg(Arg::new("failed").long("failed").action(ArgAction::SetTrue).help("Failed turns alone"))
            .arg(limit()),
        Command::new("chat")
            .about("Shows what was said in a chat, and its turns")
            .arg(Arg::new("chat").required(true).value_name("CLASS/NAME"))
            .arg(limit().help("How many of the newest messages and turns")),
    ]
}

fn id() -> Arg {
    Arg::new("id").value_name("FIBER").required(true).help("The fiber's id or key; `id:ID` where an id is also the key of another")
}

/// The most rows.
fn limit() -> Arg {
    Arg::new("limit").long("limit").value_parser(clap::value_parser!(u32).range(1..)).default_value("50")
}

/// New values of locals.
fn set() -> Arg {
    Arg::new("set").value_name("NAME=JSON").action(ArgAction::Append).help("A local and its new value: limit=50, 'name=\"Ann\"'")
}

/// A command for one fiber, or for all of a filter.
fn many(name: &'static str, about: &'static str) -> Command {
    filter(Command::new(name).about(about).arg(id().required(false)))
        .arg(Arg::new("all").long("all").action(ArgAction::SetTrue).help("Every fiber that the filter lets through"))
        .group(ArgGroup::new("which").args(["id", "all"]).required(true))
}

/// The conditions of a list, by the name of each in the API.
pub(crate) const CONDITIONS: [&str; 7] = ["name", "agent", "parent", "key", "text", "in-doubt", "retrying"];

fn filter(command: Command) -> Command {
    command
        .arg(
            Arg::new("state")
                .long("state")
                .action(ArgAction::Append)
                .value_delimiter(',')
                .help("failed, parked, waiting, ..; several with commas"),
        )
        .arg(Arg::new("name").long("name").help("Stored name of the function"))
        .arg(Arg::new("agent").long("agent").value_name("CLASS/NAME"))
        .arg(Arg::new("parent").long("parent").value_name("FIBER").help("Id or key"))
        .arg(Arg::new("key").long("key"))
        .arg(Arg::new("text").long("text").help("Text in id, name, key, agent, reason or metadata"))
        .arg(Arg::new("metadata").long("metadata").action(ArgAction::Append).value_name("FIELD=JSON"))
        .arg(Arg::new("in-doubt").long("in-doubt").action(ArgAction::SetTrue).help("With an operation of unknown outcome"))
        .arg(Arg::new("retrying").long("retrying").action(ArgAction::SetTrue).help("With a step that has failed and is tried again"))
        .arg(Arg::new("within").long("within").value_name("TIME").help("Changed their state within 30min, 6h, 2d"))
}

/// Writes the completions of a shell.
pub(crate) fn completions(shell: Option<&OsString>) -> ExitCode {
    let Some(shell) = shell.and_then(|shell| shell.to_str()).and_then(|shell| shell.parse::<Shell>().ok()) else {
        eprintln!("forever: completions are for bash, zsh, fish, elvish or powershell");
        return ExitCode::from(2);
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "forever", &mut script);
    crate::table::print(script.trim_ascii_end());
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_grammar_has_no_contradiction() {
        super::command().debug_assert();
    }
}
