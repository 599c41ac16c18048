//! Edits of a function, each as the layouts before and after it, with the verdict for the fibers
//! that run meanwhile.
//!
//! A function is written as its steps, one a line and one after the other: `name: kept locals`.
//! `call`, `recv` or `steps` before the name makes another cut point than a step, quotes make the
//! name a literal, `~body` after it is what tells a derived name's body from others, `<old` is
//! `was = "old"`. `=` after a local makes it the value of the step, `/2` says that two bindings
//! have its name, `*` that it is what is left of a loop, `@` that it is a loop's position. Behind
//! `|` stand the topics of a `recv`, or the branches of a `steps`, written as steps are. Behind `->`
//! stand the steps that may come next, if these are others than the next line. The first line may
//! begin with `fn`: stored name, arguments, version.
use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::frame::activation::Frame;
use crate::frame::machine::{BranchSpec, Cut, CutKind, END, Local, LocalRole, Machine};
use crate::frame::run::Run;
use crate::frame::snapshot::Snapshot;
use crate::layout::drift::Drift;
use crate::layout::problem::Problem;
use crate::layout::spec::{Layout, base};
use crate::ops::op::tests::Store;

fn leak(text: &str) -> &'static str {
    String::from(text).leak()
}

fn machine(text: &str) -> &'static Machine {
    let mut machine = Machine {
        name: "work",
        version: 0,
        max_recoveries: None,
        arguments: &[],
        cuts: &[],
        first: &[END],
        topics: &[],
        migrate: None,
        secrets: &[],
        source: None,
    };
    let mut lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if let Some(head) = lines.first().and_then(|line| line.strip_prefix("fn ")) {
        let mut words = head.split(' ');
        machine.name = leak(words.next().unwrap());
        machine.version = words.next().unwrap().parse().unwrap();
        machine.arguments = words.map(leak).collect::<Vec<_>>().leak();
        lines.remove(0);
    }
    let (lines, next): (Vec<&str>, Vec<Option<&str>>) =
        lines.into_iter().map(|line| line.split_once(" -> ").map_or((line, None), |(line, next)| (line, Some(next)))).unzip();
    let mut cuts: Vec<Cut> = lines.iter().map(|line| cut(line)).collect();
    for place in 0..cuts.len() {
        let number = |place: usize| if place >= cuts.len() { END } else { u32::try_from(place).unwrap() };
        let named = |name: &str| number(cuts.iter().position(|cut| cut.name == name).unwrap_or(usize::MAX));
        let next = next[place].map_or_else(|| vec![number(place + 1)], |next| next.split(' ').map(named).collect());
        cuts[place].next = next.leak();
        let shared = cuts.iter().filter(|cut| base(cut.name) == base(cuts[place].name)).count();
        cuts[place].of = shared.try_into().unwrap();
    }
    machine.first = if cuts.is_empty() { &[END] } else { &[0] };
    machine.cuts = cuts.leak();
    Box::leak(Box::new(machine))
}

fn cut(line: &str) -> Cut {
    let (line, behind) = line.split_once('|').unwrap_or((line, ""));
    let (head, locals) = line.split_once(':').unwrap();
    let kinds = [("call ", CutKind::Call), ("recv ", CutKind::Recv), ("steps ", CutKind::Steps)];
    let kind = kinds.iter().find_map(|(word, kind)| head.strip_prefix(word).map(|head| (*kind, head)));
    let (kind, head) = kind.unwrap_or((CutKind::Step, head));
    let Named { name: plain, explicit, body, was } = name(head);
    let kind = if plain.ends_with(" pending") { CutKind::Pending } else { kind };
    let locals: Vec<Local> = locals.split_whitespace().map(local).collect();
    let behind = || behind.split_whitespace();
    let branches: Vec<BranchSpec> =
        if kind == CutKind::Steps { behind().map(|word| branch(word, behind().map(name))).collect() } else { vec![] };
    let topics: Vec<&str> = if kind == CutKind::Recv { behind().map(leak).collect() } else { vec![] };
    Cut {
        name: plain,
        explicit,
        of: 1,
        body,
        was,
        kind,
        effect: false,
        decides: false,
        wraps: "",
        locals: locals.leak(),
        branches: branches.leak(),
        topics: topics.leak(),
        next: &[END],
        line: 1,
    }
}

struct Named {
    name: &'static str,
    explicit: bool,
    body: &'static str,
    was: Option<&'static str>,
}

fn name(head: &str) -> Named {
    let (name, was) = head.split_once('<').map_or((head, None), |(name, was)| (name, Some(leak(was))));
    let (name, body) = name.split_once('~').map_or((name, ""), |(name, body)| (name, leak(body)));
    let name = leak(name.trim());
    let plain = name.trim_matches('"');
    Named { name: plain, explicit: plain != name, body, was }
}

fn branch(word: &str, all: impl Iterator<Item = Named>) -> BranchSpec {
    let Named { name, explicit, body, was } = name(word);
    let of = all.filter(|other| !explicit && !other.explicit && base(other.name) == base(name)).count().max(1);
    BranchSpec {
        name,
        stored: leak(&format!("both[{name}]")),
        explicit,
        of: of.try_into().unwrap(),
        body,
        was,
        effect: false,
        decides: false,
        wraps: "",
    }
}

fn local(word: &str) -> Local {
    let (word, role) = match word.strip_suffix('*') {
        Some(word) => (word, LocalRole::Items),
        None => word.strip_suffix('@').map_or((word, LocalRole::Value), |word| (word, LocalRole::Position)),
    };
    let (word, of) = word.split_once('/').map_or((word, 1), |(word, of)| (word, of.parse().unwrap()));
    let (name, result) = word.strip_suffix('=').map_or((word, false), |name| (name, true));
    let (name, was) = name.split_once('<').map_or((name, None), |(name, was)| (name, Some(leak(was))));
    Local { name: leak(name), of, was, result, role, why: "it is used later" }
}

/// The snapshots that code can leave: one at each step, and one during each call.
fn snapshots(machine: &Machine) -> Vec<Snapshot> {
    let mut all = Vec::new();
    for cut in machine.cuts {
        let locals = |result| {
            let kept = cut.locals.iter().filter(|local| result || !local.result);
            kept.map(|local| (local.name.to_owned(), RawValue::from_string("1".into()).unwrap())).collect()
        };
        let callee = Snapshot { fiber: Some("child".into()), at: "x".into(), ..Snapshot::default() };
        all.push(Snapshot { at: cut.name.into(), locals: locals(true), ..Snapshot::default() });
        if cut.kind == CutKind::Call {
            all.push(Snapshot { at: cut.name.into(), locals: locals(false), call: Some(Box::new(callee)), ..Snapshot::default() });
        }
    }
    all
}

struct Edit {
    what: &'static str,
    before: &'static str,
    after: &'static str,
    problems: &'static [&'static str],
}

const fn resumes(what: &'static str, before: &'static str, after: &'static str) -> Edit {
    Edit { what, before, after, problems: &[] }
}

const fn parks(what: &'static str, before: &'static str, after: &'static str, problems: &'static [&'static str]) -> Edit {
    Edit { what, before, after, problems }
}

const EDITS: &[Edit] = &[
    resumes("nothing", "plan: topic\nsearch: hits=", "plan: topic\nsearch: hits="),
    resumes("a step added before", "plan: topic", "check: topic\nplan: topic"),
    resumes("a step added after", "plan: topic", "plan: topic\nreport: topic"),
    parks(
        "steps exchanged",
        "plan: a\nreport: a",
        "report: a\nplan: a",
        &[
            "`report` was after `plan` and comes before it now, where it would never run: leave it where it was until no fiber is there, or give it a new name, `step!(\"..\", ..)`, if it is not to run; otherwise raise `version` and `migrate` the snapshot",
            "`plan` was before `report` and may come after it now, where it would run again: leave it where it was until no fiber is there, or give it a new name, `step!(\"..\", ..)`, if it is to run again; otherwise raise `version` and `migrate` the snapshot",
        ],
    ),
    parks(
        "a step removed",
        "plan: a\nsearch: a",
        "plan: a",
        &["step `search` is gone: if it was renamed, write `was = \"search\"` at the step that it is now"],
    ),
    parks(
        "a derived step renamed",
        "search: a",
        "find: a",
        &["step `search` is gone: if it is `find` now, write `was = \"search\"` there"],
    ),
    resumes("a derived step renamed with `was`", "search: a", "find<search: a"),
    resumes("a literal renamed with `was`", "\"search\": a", "\"find\"<search: a"),
    resumes("a `was` that is done and stays", "\"find\"<search: a", "\"find\"<search: a\nplan: a"),
    resumes("an old name used anew after its `was`", "\"find\"<search: a", "\"find\"<search: a\nsearch: a"),
    parks(
        "a rename whose old name is used anew at once",
        "search: a",
        "\"find\"<search: a\nsearch: a",
        &["step `search` is claimed by `find` and `search`: which one was meant cannot be told; leave `was` at one of them"],
    ),
    parks(
        "two steps that claim to have been one",
        "search: a",
        "find<search: a\nseek<search: a",
        &["step `search` is claimed by `find` and `seek`: which one was meant cannot be told; leave `was` at one of them"],
    ),
    parks(
        "a derived step of the same name added",
        "search: a",
        "search: a\nsearch#2: a",
        &["`search` stands for 2 steps now and for 1 before: which one was meant cannot be told; give the steps names of their own"],
    ),
    parks(
        "one of two derived steps removed",
        "search: a\nsearch#2: a",
        "search: a",
        &[
            "`search` stands for 1 step now and for 2 before: which one was meant cannot be told; give the steps names of their own",
            "step `search#2` is gone: if it was renamed, write `was = \"search#2\"` at the step that it is now",
        ],
    ),
    resumes("two derived steps of one name kept", "search: a\nsearch#2: b", "plan: a\nsearch: a\nsearch#2: b"),
    resumes("one of two derived steps named with `was`", "search: a\nsearch#2: b", "search: a\n\"deep\"<search#2: b"),
    resumes("both derived steps named with `was`", "search: a\nsearch#2: b", "\"wide\"<search: a\n\"deep\"<search#2: b"),
    parks(
        "one of two derived steps named with `was`, the other removed",
        "search: a\nsearch#2: b",
        "\"deep\"<search#2: b",
        &[
            "step `search` is gone: if it was renamed, write `was = \"search\"` at the step that it is now",
            "`search` stands for 1 step now and for 2 before: which one was meant cannot be told; give the steps names of their own",
        ],
    ),
    resumes("a step of the same name added to a literal", "\"search\": a", "search#2: a\n\"search\": a"),
    parks(
        "what is left of a loop under the name of a variable",
        "plan: list row@",
        "plan: row@ left<list*",
        &[
            "step `plan` is in a `for` loop now whose place (`left`) was not kept: the loop is new or goes over something else; give the step in it another name, or put the place into the snapshot with `migrate`",
        ],
    ),
    resumes("a loop around a step behind", "plan: list row@", "plan: list row@\nsend: row@ left*"),
    parks(
        "loops inside one another exchanged",
        "plan: row@ column@",
        "plan: column@ row@",
        &[
            "the `for` loops around step `plan` are nested in another order than before (`row` has moved): which rounds were done cannot be told; keep the order, or give the step in them another name",
        ],
    ),
    resumes("a derived name written out", "search: a", "\"search\": a"),
    resumes("a literal left to be derived", "\"search\": a", "search: a"),
    parks(
        "the second of two derived steps made the literal",
        "search: a\nsearch#2: a",
        "search#2: a\n\"search\": a",
        &["`search` stands for 2 steps, not all of them named as before: which one was meant cannot be told; give them names of their own"],
    ),
    parks(
        "a literal removed where a derived step takes the name",
        "\"search\": a\nsearch#2: a",
        "search: a",
        &[
            "`search` stands for 1 step now and for 2 before: which one was meant cannot be told; give the steps names of their own",
            "step `search#2` is gone: if it was renamed, write `was = \"search#2\"` at the step that it is now",
        ],
    ),
    resumes("a literal with a number sign is one name", "\"issue #2\": a", "\"issue #2\": a\nissue: a"),
    parks(
        "a local needed that was not kept",
        "search: a",
        "search: a hits=",
        &["local `hits` is needed after step `search` but was not kept: put it into the snapshot with `migrate`"],
    ),
    resumes("a local no longer needed", "search: a hits=", "search: hits="),
    parks(
        "a local renamed",
        "plan: a\nsearch: hits",
        "plan: a\nsearch: found",
        &[
            "local `found` is needed after step `search` but was not kept: if it was `hits`, write `#[was = \"hits\"] let found`; otherwise put it into the snapshot with `migrate`",
        ],
    ),
    resumes("a local renamed with `was`", "plan: a\nsearch: hits", "plan: a\nsearch: found<hits"),
    resumes("a local's `was` that is done and stays", "search: found<hits", "search: found<hits"),
    resumes("a local's `was` taken away when it is done", "search: found<hits", "search: found"),
    resumes("a local's old name used anew after its `was`", "search: found<hits", "search: found<hits\nplan: hits"),
    parks(
        "a local renamed whose old name is used anew at once",
        "search: hits",
        "search: found<hits hits",
        &[
            "local `hits` kept at step `search` is claimed by `found` and `hits`: which one was meant cannot be told; leave `#[was]` at one of them",
            "`hits` stands for 2 variables now and for 1 before: which one was kept cannot be told; give them names of their own",
        ],
    ),
    parks(
        "two locals that claim to have been one",
        "search: hits",
        "search: found<hits seen<hits",
        &[
            "local `hits` kept at step `search` is claimed by `found` and `seen`: which one was meant cannot be told; leave `#[was]` at one of them",
        ],
    ),
    parks(
        "the names of two locals exchanged",
        "search: a b",
        "search: a<b b<a",
        &[
            "local `a` is said to have been `b`, but both were kept at step `search`: which one was meant cannot be told; give it a name that is new",
            "local `b` is said to have been `a`, but both were kept at step `search`: which one was meant cannot be told; give it a name that is new",
        ],
    ),
    parks(
        "a local given the name of another",
        "search: a b",
        "search: a<b",
        &[
            "local `a` is said to have been `b`, but both were kept at step `search`: which one was meant cannot be told; give it a name that is new",
        ],
    ),
    resumes("one of two shadowed locals renamed with `was`", "search: x/2 x#2/2", "search: x second<x#2"),
    resumes("both shadowed locals renamed with `was`", "search: x/2 x#2/2", "search: first<x second<x#2"),
    parks(
        "one of two shadowed locals renamed with `was`, the other gone",
        "search: x/2 x#2/2",
        "search: second<x#2",
        &["`x` stands for 1 variable now and for 2 before: which one was kept cannot be told; give them names of their own"],
    ),
    resumes("the value of a call renamed with `was`", "call child: sum=", "call child: total<sum="),
    resumes("a local needed at another step only", "plan: a\nsearch: b", "plan: a\nreport: c\nsearch: b"),
    parks(
        "a local shadowed once more",
        "plan: x\nsearch: x",
        "plan: x/2\nsearch: x/2 x#2/2",
        &[
            "`x` stands for 2 variables now and for 1 before: which one was kept cannot be told; give them names of their own",
            "local `x#2` is needed after step `search` but was not kept: put it into the snapshot with `migrate`",
        ],
    ),
    parks(
        "a shadowing removed",
        "plan: x#2/2",
        "plan: x",
        &[
            "local `x` is needed after step `plan` but was not kept: if it was `x#2`, write `#[was = \"x#2\"] let x`; otherwise put it into the snapshot with `migrate`",
        ],
    ),
    resumes("a shadowed local dropped where it is not needed", "plan: x/2 a", "plan: a"),
    parks(
        "a step made a call",
        "child: a",
        "call child: a",
        &["`child` is a call now and was a step before: give the new one another name, or mend the snapshot with `migrate`"],
    ),
    parks(
        "a call made a step",
        "call child: a b=",
        "child: a b=",
        &["`child` is a step now and was a call before: give the new one another name, or mend the snapshot with `migrate`"],
    ),
    resumes("a call whose value is used now as before", "call child: a b=", "call child: b="),
    parks(
        "a call whose value is used anew",
        "call child: a",
        "call child: a b=",
        &["local `b` is needed after step `child` but was not kept: put it into the snapshot with `migrate`"],
    ),
    parks(
        "a value of a call needed during it",
        "call child: a b=",
        "call child: a b",
        &["local `b` is needed during call `child` but was only kept after it: put it into the snapshot with `migrate`"],
    ),
    parks(
        "a call renamed with `was` to a step",
        "call child: a",
        "own<child: a",
        &["`child` is a step now and was a call before: give the new one another name, or mend the snapshot with `migrate`"],
    ),
    parks(
        "a loop around a step that needs its iterator",
        "search: a",
        "search: a rest",
        &["local `rest` is needed after step `search` but was not kept: put it into the snapshot with `migrate`"],
    ),
    parks(
        "a loop put around a step",
        "search: a",
        "search: a rest*",
        &[
            "step `search` is in a `for` loop now whose place (`rest`) was not kept: the loop is new or goes over something else; give the step \
             in it another name, or put the place into the snapshot with `migrate`",
        ],
    ),
    resumes("a local no longer needed, of any name", "search: a rest", "search: a"),
    parks(
        "a loop by value unwrapped",
        "search: a rest*",
        "search: a",
        &[
            "the `for` loop around step `search` may have items left (`rest`), and is not in the code any more: keep the loop, or take its items \
             out of the snapshot with `migrate`",
        ],
    ),
    parks(
        "a loop by borrow unwrapped",
        "search: a at@",
        "search: a",
        &[
            "the `for` loop around step `search` may have items left (`at`), and is not in the code any more: keep the loop, or take its items out \
             of the snapshot with `migrate`",
        ],
    ),
    resumes("the body of a derived step changed where it stands", "plan: a\nsearch~1: a\nend: a", "plan: a\nsearch~2: a\nend: a"),
    resumes("the body changed, and a step added before", "plan: a\nsearch~1: a\nend: a", "plan: a\ncheck: a\nsearch~2: a\nend: a"),
    resumes("the body changed, and a step added behind", "plan: a\nsearch~1: a\nend: a", "plan: a\nsearch~2: a\ncheck: a\nend: a"),
    resumes(
        "the body changed, behind a step that was renamed",
        "plan: a\nsearch~1: a\nend: a",
        "topic<plan: a\nsearch~2: a\ncheck: a\nend: a",
    ),
    parks(
        "a derived step dropped, and another of its name elsewhere",
        "plan: a\nsearch~1: a\nend: a",
        "search~2: a\nplan: a\nend: a",
        &[
            "`search` was after `plan` and comes before it now, where it would never run: leave it where it was until no fiber is there, or give it a new name, `step!(\"..\", ..)`, if it is not to run; otherwise raise `version` and `migrate` the snapshot",
            "`search` has another body than before and stands elsewhere: whether it is the same step cannot be told; if it is, write its name \
             out, `step!(\"search\", ..)`, and if not, name it otherwise",
        ],
    ),
    parks(
        "two derived steps of one name that call the same exchanged",
        "search~1-2: a\nsearch#2~1-3: a",
        "search~1-3: a\nsearch#2~1-2: a",
        &["`search` stands for 2 steps, not all of them named as before: which one was meant cannot be told; give them names of their own"],
    ),
    parks(
        "two derived steps of one name with both bodies changed",
        "search~1: a\nsearch#2~2: a",
        "search~3: a\nsearch#2~4: a",
        &[
            "`search` has another body than before and stands elsewhere: whether it is the same step cannot be told; if it is, write its name \
             out, `step!(\"search\", ..)`, and if not, name it otherwise",
            "`search#2` has another body than before and stands elsewhere: whether it is the same step cannot be told; if it is, write its name \
             out, `step!(\"search#2\", ..)`, and if not, name it otherwise",
        ],
    ),
    resumes("two derived steps of one name with one body changed", "search~1: a\nsearch#2~2: a", "search~1: a\nsearch#2~4: a"),
    parks(
        "two steps that exchange their names with `was`",
        "\"a\": x\n\"b\": x",
        "\"a\"<b: x\n\"b\"<a: x",
        &[
            "step `a` is said to have been `b`, but the old code has steps of both names: which one was meant cannot be told; give it a name \
             that is new",
            "step `b` is said to have been `a`, but the old code has steps of both names: which one was meant cannot be told; give it a name \
             that is new",
        ],
    ),
    resumes("`retry` added", "ask: b", "ask pending: a\nask: b"),
    parks(
        "`retry` taken away",
        "ask pending: a\nask: b",
        "ask: b",
        &["`ask` waits for its next attempt, and has no `retry` now: give it back until no fiber waits there"],
    ),
    resumes("a topic added", "answer pending:\nrecv answer: a | yes", "answer pending:\nrecv answer: a | yes no"),
    parks(
        "a topic changed",
        "answer pending:\nrecv answer: a | yes no",
        "answer pending:\nrecv answer: a | yes maybe",
        &[
            "`answer` waits for a message on `yes` and `no`, and receives on `yes` and `maybe` now: what was sent before would be lost; receive \
             on all of them, `recv!([..])`",
        ],
    ),
    parks(
        "a wait made another one",
        "answer pending:\nrecv answer: a | yes",
        "answer pending:\nsteps answer: a | one two",
        &["`answer` is a steps now and was a recv before: give the new one another name, or mend the snapshot with `migrate`"],
    ),
    resumes("branches exchanged", "both pending:\nsteps both: a | one two", "both pending:\nsteps both: a | two one"),
    resumes("a branch added", "both pending:\nsteps both: a | one two", "both pending:\nsteps both: a | one three two"),
    resumes("a branch renamed with `was`", "both pending:\nsteps both: a | one two", "both pending:\nsteps both: a | one \"three\"<two"),
    parks(
        "a branch removed",
        "both pending:\nsteps both: a | one two three",
        "both pending:\nsteps both: a | one two",
        &[
            "branch `three` of `both` may have its result stored, and is gone: if it was renamed, write `step!(was = \"three\", ..)` at the branch \
             that it is now",
        ],
    ),
    parks(
        "two branches of one derived name exchanged",
        "both pending:\nsteps both: a | one~1 one#2~2",
        "both pending:\nsteps both: a | one~2 one#2~1",
        &[
            "`one` stands for other branches of `both` than before: which one was meant cannot be told; give them names, `step!(\"..\", ..)`",
        ],
    ),
    parks(
        "another branch of the same derived name",
        "both pending:\nsteps both: a | one~1 two",
        "both pending:\nsteps both: a | one~2 one#2~1 two",
        &[
            "`one` stands for other branches of `both` than before: which one was meant cannot be told; give them names, `step!(\"..\", ..)`",
        ],
    ),
    parks(
        "another branch of the same derived name behind it",
        "both pending:\nsteps both: a | one~1 two",
        "both pending:\nsteps both: a | one~1 one#2~2 two",
        &[
            "`one` stands for other branches of `both` than before: which one was meant cannot be told; give them names, `step!(\"..\", ..)`",
        ],
    ),
    resumes(
        "one of two branches of one derived name with another body",
        "both pending:\nsteps both: a | one~1 one#2~2",
        "both pending:\nsteps both: a | one~1 one#2~3",
    ),
    parks(
        "two branches of one derived name with other bodies",
        "both pending:\nsteps both: a | one~1 one#2~2",
        "both pending:\nsteps both: a | one~3 one#2~4",
        &[
            "`one` stands for other branches of `both` than before: which one was meant cannot be told; give them names, `step!(\"..\", ..)`",
        ],
    ),
    parks(
        "branches made a list",
        "both pending:\nsteps both: a | one two",
        "both pending:\nsteps both: a",
        &[
            "the branches of `both` are another kind now, a list of branches or a `for`: give the `steps!` another name, and keep the old one until \
             its fibers have passed it",
        ],
    ),
    resumes("an argument no longer taken", "fn work 0 a b\nplan: a", "fn work 0 a\nplan: a"),
    parks(
        "an argument added",
        "fn work 0 a\nplan: a",
        "fn work 0 a b\nplan: a",
        &[
            "argument `b` was not saved when the fiber was spawned: put it into a struct argument with `#[serde(default)]`, or spawn the new function under another name",
        ],
    ),
    parks(
        "the version raised",
        "fn work 1\nplan: a",
        "fn work 2\nplan: a",
        &["it has version 2 now and had 1 before: old snapshots need a `migrate` function"],
    ),
    parks(
        "the function renamed",
        "fn work 0\nplan: a",
        "fn labour 0\nplan: a",
        &["it was called `work` and is called `labour` now: give it `name = \"work\"`"],
    ),
    resumes("the first step added", "", "plan: a"),
    parks(
        "everything at once",
        "plan: a\nsearch: b",
        "fn work 1\ncall plan: a\nfind: b",
        &[
            "it has version 1 now and had 0 before: old snapshots need a `migrate` function",
            "`plan` is a call now and was a step before: give the new one another name, or mend the snapshot with `migrate`",
            "step `search` is gone: if it is `find` now, write `was = \"search\"` there",
        ],
    ),
];

/// The sentences that are expected, of all snapshots together.
fn found(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(Problem::to_string).collect()
}

#[test]
fn every_edit_resumes_or_parks_with_its_reasons() {
    let mut others = Vec::new();
    for Edit { what, before, after, problems } in EDITS {
        let (old, new) = (Layout::of(machine(before)), Layout::of(machine(after)));
        let drift = new.can_resume(&old).err();
        if let Some(drift) = &drift {
            assert_eq!((drift.now(), drift.before()), (&new, Some(&old)));
        }
        let found = drift.map(|drift| found(drift.problems())).unwrap_or_default();
        if found != *problems {
            others.push((what, found));
        }
        assert_eq!(old.can_resume(&old), Ok(()), "{what}: the code before resumes itself");
        assert_eq!(new.can_resume(&new), Ok(()), "{what}: the code after resumes itself");
    }
    assert!(others.is_empty(), "edits with other reasons: {others:#?}");
}

#[test]
fn what_is_said_of_a_layout_is_what_is_said_of_its_snapshots() {
    for Edit { what, before, after, .. } in EDITS {
        let (old, new) = (Layout::of(machine(before)), Layout::of(machine(after)));
        let mut of_layout = new.can_resume(&old).map_or_else(|drift| found(drift.problems()), |()| Vec::new());
        of_layout.retain(|problem| !problem.starts_with("argument"));
        let mut of_snapshots = Vec::new();
        // Of a `steps!` everything is stored.
        let branches: Vec<&str> = machine(before).cuts.iter().flat_map(|cut| cut.branches).map(|branch| branch.stored).collect();
        let of_branch = |problem: &&Problem| {
            matches!(problem, Problem::BranchAmbiguous { .. } | Problem::BranchGone { .. } | Problem::BranchesChanged { .. })
        };
        for snapshot in snapshots(machine(before)) {
            let drift = new.check_with(Some(&old), &snapshot, &branches).err();
            let said: Vec<Problem> = drift.iter().flat_map(Drift::problems).filter(of_branch).cloned().collect();
            for problem in said {
                // The same of a result that was stored behind a snapshot of other code.
                let drifts = branches.iter().filter_map(|branch| new.check_branch(&old, branch).err());
                assert!(drifts.flat_map(|drift| drift.problems().to_vec()).any(|found| found == problem), "{what}: {problem}");
            }
            of_snapshots.extend(drift.iter().flat_map(|drift| found(drift.problems())));
        }
        of_layout.sort();
        of_snapshots.sort();
        of_snapshots.dedup();
        assert_eq!(of_snapshots, of_layout, "{what}");
    }
}

/// Edits that move steps, and the moves that are found: `a>b` is a step `a` that may come after the
/// place `b` now, `a<b` one that comes only before it.
const MOVES: &[(&str, &str, &str, &[&str])] = &[
    ("a derived step moved as it is", "plan: a\nsearch~1: a\nend: a", "plan: a\nend: a\nsearch~1: a", &["end<search", "search>end"]),
    ("a literal moved", "\"a\":\n\"b\":\nc:", "\"b\":\nc:\n\"a\":", &["b<a", "c<a", "a>b", "a>c"]),
    ("a step moved and renamed with `was`", "a:\nb:\nc:", "b:\nc:\n\"d\"<a:", &["b<d", "c<d", "d>b", "d>c"]),
    ("a derived step moved, its name written out", "a~1:\nb:\nc:", "b:\nc:\n\"a\":", &["b<a", "c<a", "a>b", "a>c"]),
    (
        "a derived step moved, its name written out and its body changed",
        "plan:\nsearch~1:\nend:",
        "\"search\":\nplan:\nend:",
        &["search<plan", "plan>search"],
    ),
    ("a derived step moved under another name", "x:\na~1:\nb:\nc:", "x:\nb:\nc:\nd~1:", &["d>b", "d>c"]),
    ("a step moved into a later `steps!`", "charge:\nb:\nc:", "b:\nboth pending:\nsteps both: | charge other\nc:", &["charge>b"]),
    (
        "a branch made a step behind",
        "both pending:\nsteps both: | charge other\nb:\nc:",
        "both pending:\nsteps both: | other\nb:\ncharge:\nc:",
        &["charge>both", "charge>b"],
    ),
    ("a step moved into a loop around the place", "a:\nb:", "a:\nb: -> a end", &["a>b"]),
    ("a step moved into a later loop", "a:\nb:\nc:", "b:\na: -> a c\nc:", &["b<a", "a>b"]),
    ("a step moved out of a loop, behind it", "x:\na:\nb: -> a c\nc:", "x:\na: -> a b\nb:\nc:", &["b>a"]),
    ("a step moved out of a loop, in front of it", "x:\na:\nb: -> a c\nc:", "x:\na:\nb: -> b c\nc:", &["a<b"]),
    ("steps of a loop exchanged", "x:\na:\nb: -> a c\nc:", "x:\nb:\na: -> b c\nc:", &["b<a", "a>b"]),
    ("a step moved into an `if` behind", "a:\nb:\nc:", "b: -> a c\na:\nc:", &["b<a", "a>b"]),
    ("steps of two arms exchanged", "x: -> a b\na: -> c\nb:\nc:", "x: -> b a\nb: -> c\na:\nc:", &[]),
    ("steps of two arms in a loop exchanged", "x: -> a b\na: -> x\nb: -> x end", "x: -> b a\nb: -> x end\na: -> x", &[]),
    ("a loop with all its steps unwrapped", "x:\na:\nb: -> a c\nc:", "x:\na:\nb:\nc:", &[]),
    ("an `if` around a step", "a:\nb:\nc:", "a: -> b c\nb:\nc:", &[]),
];

#[test]
fn a_step_that_has_moved_across_the_place_of_a_fiber_parks_it() {
    let mut others = Vec::new();
    for (what, before, after, expected) in MOVES {
        let (old, new) = (Layout::of(machine(before)), Layout::of(machine(after)));
        let moves = |found: &[Problem]| -> Vec<String> {
            let text = |problem: &Problem| match problem {
                Problem::StepMovedBehind { step, place } => Some(format!("{step}>{place}")),
                Problem::StepMovedBefore { step, place } => Some(format!("{step}<{place}")),
                _ => None,
            };
            found.iter().filter_map(text).collect()
        };
        let found = new.can_resume(&old).map_or_else(|drift| moves(drift.problems()), |()| Vec::new());
        let of_snapshots: Vec<String> = snapshots(machine(before))
            .iter()
            .flat_map(|snapshot| new.check(Some(&old), snapshot).map_or_else(|drift| moves(drift.problems()), |()| Vec::new()))
            .collect();
        assert_eq!(found, of_snapshots, "{what}");
        if found != *expected {
            others.push((what, found));
        }
        assert_eq!((old.can_resume(&old), new.can_resume(&new)), (Ok(()), Ok(())), "{what}: each resumes itself");
    }
    assert!(others.is_empty(), "edits with other moves: {others:#?}");
}

#[test]
fn a_fiber_that_waits_is_entered_if_the_code_waits_on_other_topics() {
    let layout = |topics: &str| Layout::of(machine(&format!("answer pending:\nrecv answer: a | {topics}")));
    let snapshot = Snapshot { at: "answer pending".into(), ..Snapshot::default() };
    assert!(!layout("yes no").waits_otherwise(&layout("yes no"), &snapshot));
    assert!(layout("yes no maybe").waits_otherwise(&layout("yes no"), &snapshot), "a topic added");
    assert!(layout("no").waits_otherwise(&layout("yes no"), &snapshot), "a topic taken away");
    let behind = Snapshot { at: "answer".into(), ..Snapshot::default() };
    assert!(!layout("no").waits_otherwise(&layout("yes no"), &behind), "it does not wait any more");
}

#[test]
fn a_snapshot_that_passes_the_check_can_be_resumed() {
    for Edit { what, before, after, .. } in EDITS {
        let (old, code) = (Layout::of(machine(before)), machine(after));
        for snapshot in snapshots(machine(before)) {
            for known in [Some(&old), None] {
                if Layout::of(code).check(known, &snapshot).is_ok() {
                    let run = Run::first("fiber-1", Arc::new(Store::default()), false);
                    Frame::resume(code, run, snapshot.clone()).unwrap_or_else(|why| panic!("{what}: {why}"));
                }
            }
        }
    }
}

#[test]
fn a_snapshot_without_an_old_layout_is_in_the_names_of_the_code() {
    let code = Layout::of(machine("\"find\"<search: a\nsearch: b\nlook<seek: a"));
    let at = |at: &str, local: &str| {
        let locals = BTreeMap::from([(local.to_owned(), RawValue::from_string("1".into()).unwrap())]);
        let drift = code.check(None, &Snapshot { at: at.into(), locals, ..Snapshot::default() }).err();
        drift.map(|drift| drift.to_string())
    };
    assert_eq!(at("search", "b"), None);
    assert_eq!(at("find", "a"), None);
    assert_eq!(at("seek", "a"), None);
    assert_eq!(
        at("gone", "a"),
        Some(format!(
            "`work` cannot resume: step `gone` is gone: if it was renamed, write `was = \"gone\"` at the step that it is now (layout {} now)",
            code.hash()
        ))
    );
    let missing = format!(
        "`work` cannot resume: local `a` is needed after step `find` but was not kept: put it into the snapshot with `migrate` (layout {} now)",
        code.hash()
    );
    assert_eq!(at("find", "b"), Some(missing));
}

#[test]
fn a_drift_names_both_layouts_and_every_reason() {
    let (old, new) = (Layout::of(machine("plan: a\nsearch: b")), Layout::of(machine("plan: a b")));
    let drift = new.can_resume(&old).unwrap_err();
    let expected = format!(
        "`work` cannot resume: local `b` is needed after step `plan` but was not kept: put it into the snapshot with `migrate`; step `search` is gone: if it was renamed, write `was = \"search\"` at the step that it is now (layout {} before, {} now)",
        old.hash(),
        new.hash()
    );
    assert_eq!(drift.to_string(), expected);
}
