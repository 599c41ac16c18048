//! What a program does from a state that another program left: an interpreter that knows everything by ids and nothing by names.
use std::collections::{BTreeMap, BTreeSet};

use forever_edits::{Number as _, answer, mix};

use crate::io::{Hangs, sorted};
use crate::model::program::{Arm, Branch, Expr, Function, Id, Kind, Node, On, Over, PASSES, Policy, Program, Type, Wrap};
use crate::state::{Doubt, Frame, How, Loop, Outcome, Phase, State, Stop};
use crate::value::{self, Value};

/// Why a loop by position does not go on.
pub(crate) const OTHER_ITEMS: &str = "the items before it are others";

/// Why a wait has no end.
pub(crate) const WAITS: &str = "what it waits for never comes";

/// The argument of an id.
pub(crate) fn argument(id: Id) -> i64 {
    i64::from(id) * 7 + 5
}

/// Runs a program from a state.
pub(crate) fn run(program: &Program, from: &State) -> Outcome {
    let mut run = Run {
        program,
        from,
        frames: Vec::new(),
        state: from.clone(),
        seeking: !from.frames.is_empty(),
        log: Vec::new(),
        started: 0,
        received: Vec::new(),
        slept: sleeps(program, from),
        awaited: false,
        used: BTreeSet::new(),
        stops: Vec::new(),
    };
    let args = program.work.args.iter().map(|arg| (*arg, Value::Int(argument(*arg)))).collect::<BTreeMap<_, _>>();
    if from.frames.is_empty() && !from.args.is_empty() && args.keys().any(|arg| !from.args.contains_key(arg)) {
        return Outcome { end: Err("an argument was not given"), stops: Vec::new() };
    }
    if run.state.args.is_empty() {
        run.state.args.clone_from(&args);
    }
    let end = run.function(&program.work, args).map(|result| (result, sorted(std::mem::take(&mut run.log))));
    let end = if end.is_ok() && !run.state.in_doubt.is_empty() { Err("an effect is in doubt") } else { end };
    Outcome { end, stops: run.stops }
}

/// Whether it stands at a sleep or another wait for a time, which may not have passed.
fn sleeps(program: &Program, from: &State) -> bool {
    let Some(frame) = from.frames.last() else { return false };
    let for_time = |kind: &Kind| match kind {
        Kind::Sleep { .. } => true,
        Kind::Recv { hours, .. } => frame.phase == Phase::Pending && *hours == PASSES,
        Kind::Select { arms, .. } => frame.phase == Phase::Pending && arms.iter().any(|arm| arm.on == On::Hours(PASSES)),
        _ => false,
    };
    program.functions().flat_map(Function::nodes).any(|node| node.id == frame.at && for_time(&node.kind))
}

/// The body of a branch or an item of a `steps!`.
struct Call<'a> {
    id: i64,
    label: &'a str,
    input: i64,
    effect: Option<Policy>,
}

impl Call<'_> {
    fn answer(&self) -> i64 {
        answer(self.label, self.input)
    }

    fn line(&self) -> String {
        format!("{}({})", self.label, self.input)
    }
}

type Run1<T> = Result<T, &'static str>;

struct Run<'a> {
    program: &'a Program,
    from: &'a State,
    frames: Vec<Frame>,
    /// What is stored.
    state: State,
    /// Whether the way back is still being gone.
    seeking: bool,
    log: Vec<String>,
    started: usize,
    received: Vec<String>,
    slept: bool,
    awaited: bool,
    /// The stored transactions that were come to.
    used: BTreeSet<Id>,
    stops: Vec<Stop>,
}

impl Run<'_> {
    fn function(&mut self, function: &Function, args: BTreeMap<Id, Value>) -> Run1<i64> {
        let depth = self.frames.len();
        if self.seeking {
            let frame = &self.from.frames[depth];
            if frame.function != function.name {
                return Err("another function is called");
            }
            let Some(top) = function.body.iter().find(|node| node.has(frame.at)) else { return Err("the cut point is gone") };
            for (id, left) in &frame.loops {
                let mut around = false;
                top.walk(&mut |node| around |= node.id == *id && node.has(frame.at) && matches!(node.kind, Kind::For { .. }));
                if !around && left.at + 1 < left.items.len() {
                    return Err("a loop with items left is gone");
                }
            }
            let values = value::restored(&frame.values, self.program);
            self.frames.push(Frame { loops: BTreeMap::new(), values, ..frame.clone() });
        } else {
            let name = function.name.clone();
            let loops = BTreeMap::new();
            self.frames.push(Frame {
                function: name,
                at: 0,
                phase: Phase::Done,
                values: args,
                loops,
                topic: None,
                arms: Vec::new(),
                chosen: None,
            });
        }
        self.block(&function.body)?;
        let result = self.eval(&function.result)?;
        self.call("end", result, None)?;
        self.frames.pop();
        Ok(result)
    }

    fn frame(&mut self) -> &mut Frame {
        self.frames.last_mut().expect("a function is under way")
    }

    fn block(&mut self, nodes: &[Node]) -> Run1<()> {
        for node in nodes {
            if self.seeking {
                if node.has(self.from.frames[self.frames.len() - 1].at) {
                    self.enter(node)?;
                }
            } else {
                self.node(node)?;
            }
        }
        Ok(())
    }

    /// Goes on in or behind a node.
    fn enter(&mut self, node: &Node) -> Run1<()> {
        let depth = self.frames.len() - 1;
        let stored = self.from.frames[depth].clone();
        if node.id == stored.at {
            if let (Kind::Call { helper, bind, .. }, Phase::Inside) = (&node.kind, stored.phase) {
                let result = self.function(&self.program.helpers[*helper], BTreeMap::new())?;
                return self.bound(node.id, *bind, Value::Int(result));
            }
            self.seeking = false;
            return match (&node.kind, stored.phase) {
                (Kind::Select { bind, arms, .. }, Phase::Done) => self.arm(*bind, arms),
                (Kind::Select { arms, wins, .. }, Phase::Pending) => {
                    let topics = |on: &On| if let On::Topic(topic) = on { Some(topic.clone()) } else { None };
                    let now: Vec<_> = arms.iter().filter_map(|arm| topics(&arm.on)).collect();
                    if stored.arms.iter().filter_map(|(_, on)| topics(on)).any(|topic| !now.contains(&topic)) {
                        return Err("it waits on another topic");
                    }
                    let winner = arms.iter().find(|arm| arm.id == *wins).map(|arm| &arm.on);
                    if stored.arms.iter().find(|(id, _)| id == wins).map(|(_, on)| on) != winner {
                        return Err("the arm is another one");
                    }
                    self.choose(node)
                }
                (_, Phase::Done) => Ok(()),
                (Kind::Recv { bind, topic, hours, .. }, Phase::Pending) => {
                    if stored.topic.as_ref() != Some(topic) {
                        return Err("it waits on another topic");
                    }
                    self.receive(node.id, *bind, topic, *hours)
                }
                (Kind::Wait { bind, handle, .. }, Phase::Pending) => self.wait(node.id, *bind, *handle),
                (Kind::Steps { .. } | Kind::StepsFor { .. }, Phase::Pending) => {
                    let results = self.from.results.clone();
                    self.side(node, &results)
                }
                _ => Err("the cut point is another kind"),
            };
        }
        match &node.kind {
            Kind::If { then, otherwise, .. } => self.block(if then.iter().any(|node| node.has(stored.at)) { then } else { otherwise }),
            Kind::Select { bind, arms, .. } => {
                let Some(arm) = arms.iter().find(|arm| arm.body.iter().any(|node| node.has(stored.at))) else {
                    return Err("the arm is gone");
                };
                self.in_arm(*bind, arm)
            }
            Kind::While { counter, rounds, body } => {
                self.block(body)?;
                self.rounds(*counter, *rounds, body)
            }
            Kind::For { over, reversed, item, body } => {
                let Some(left) = stored.loops.get(&node.id) else { return Err("a loop is new") };
                let mut left = left.clone();
                if matches!(over, Over::Borrow(_) | Over::Constant(_)) {
                    let items = self.items(over, *reversed)?;
                    if items.get(..=left.at) != Some(&left.items[..=left.at]) {
                        return Err(OTHER_ITEMS);
                    }
                    left.items = items;
                    let value = left.items[left.at];
                    self.frame().values.insert(*item, Value::Int(value));
                }
                left.over = over.clone();
                let (items, at) = (left.items.clone(), left.at);
                self.frame().loops.insert(node.id, left);
                self.block(body)?;
                self.turns(node.id, *item, body, &items, at + 1)
            }
            _ => Err("the cut point is in no block"),
        }
    }

    fn rounds(&mut self, counter: Id, rounds: i64, body: &[Node]) -> Run1<()> {
        loop {
            let Value::Int(count) = self.read(counter)? else { return Err("the counter is no number") };
            if count >= rounds {
                return Ok(());
            }
            self.forget(body);
            self.frame().values.insert(counter, Value::Int(count + 1));
            self.block(body)?;
        }
    }

    fn turns(&mut self, id: Id, item: Id, body: &[Node], items: &[i64], from: usize) -> Run1<()> {
        for (at, value) in items.iter().enumerate().skip(from) {
            self.forget(body);
            let frame = self.frame();
            frame.values.insert(item, Value::Int(*value));
            frame.loops.get_mut(&id).expect("it is under way").at = at;
            self.block(body)?;
        }
        self.frame().loops.remove(&id);
        self.frame().values.remove(&item);
        Ok(())
    }

    /// What the round before has declared is not there in the next.
    fn forget(&mut self, body: &[Node]) {
        let mut declared = Vec::new();
        for node in body {
            node.walk(&mut |node| declared.extend(node.kind.binds()));
        }
        self.frame().values.retain(|var, _| !declared.contains(var));
    }

    fn items(&mut self, over: &Over, reversed: bool) -> Run1<Vec<i64>> {
        let mut items = match over {
            Over::Value { list, .. } | Over::Borrow(list) => match self.read(*list)? {
                Value::List(items) => items,
                _ => return Err("the list is none"),
            },
            Over::Constant(list) => self.program.lists[list].clone(),
            Over::Range(end) => (0..*end).collect(),
        };
        if reversed {
            items.reverse();
        }
        Ok(items)
    }

    /// A variable's value, which must be of the type that it has now.
    fn read(&mut self, var: Id) -> Run1<Value> {
        let Some(value) = self.frame().values.get(&var).cloned() else { return Err("a value is missing") };
        value::read_as(&value, &self.program.vars[&var])
    }

    fn eval(&mut self, expr: &Expr) -> Run1<i64> {
        let mut numbers = Vec::new();
        for var in &expr.reads {
            let value = self.read(*var)?;
            numbers.push(value::number(&value, self.program, self.program.vars[var].of)?);
        }
        Ok(mix(expr.constant, &numbers))
    }

    fn made(&self, var: Id, number: i64) -> Value {
        value::made(self.program, var, number)
    }

    fn checkpoint(&mut self, at: Id, phase: Phase, topic: Option<&str>) -> Run1<()> {
        if !self.state.in_doubt.is_empty() {
            return Err("a checkpoint comes before the effect that is in doubt");
        }
        let is_there =
            |id: &Id| self.program.functions().flat_map(Function::nodes).any(|node| matches!(&node.kind, Kind::Tx { tx, .. } if tx == id));
        if self.state.booked.keys().any(|id| !self.used.contains(id) && is_there(id)) {
            return Err("a checkpoint comes before the transaction that is committed");
        }
        self.state.booked.clear();
        self.used.clear();
        let frame = self.frame();
        (frame.at, frame.phase, frame.topic) = (at, phase, topic.map(str::to_owned));
        self.state.frames.clone_from(&self.frames);
        self.state.results.clear();
        Ok(())
    }

    /// Sets a variable and makes a checkpoint.
    fn bound(&mut self, at: Id, bind: Id, value: Value) -> Run1<()> {
        self.frame().values.insert(bind, value);
        self.checkpoint(at, Phase::Done, None)
    }

    fn stop(&mut self, how: How, state: State) {
        let (received, log) = (self.received.clone(), sorted(self.log.clone()));
        self.stops.push(Stop { how, received, slept: self.slept, log, state });
    }

    /// A call between steps, or in one, which may be an effect.
    fn call(&mut self, label: &str, input: i64, step: Option<(Id, Option<Policy>)>) -> Run1<i64> {
        if let (false, Some((node, policy))) = (self.state.in_doubt.is_empty(), step) {
            if !self.state.in_doubt.remove(&Doubt { node, branch: None }) {
                return Err("a body comes before the effect that is in doubt");
            }
            return self.decided(label, input, policy);
        }
        let mut state = self.state.clone();
        if let Some((node, Some(_))) = step {
            state.in_doubt.insert(Doubt { node, branch: None });
        }
        self.stop(How::Hangs(Hangs::From(self.started)), state);
        self.started += 1;
        self.log.push(format!("{label}({input})"));
        Ok(answer(label, input))
    }

    /// What is found of an effect in doubt.
    fn decided(&mut self, label: &str, input: i64, policy: Option<Policy>) -> Run1<i64> {
        match policy {
            Some(Policy::Check) => {
                self.log.push(format!("?{label}({input})"));
                Ok(answer(label, input))
            }
            Some(Policy::Park) => Err("an effect is in doubt and parks"),
            None => Err("an effect in doubt is none any more"),
        }
    }

    fn waiting(&mut self, how: How) {
        // Of several waits in a row the harness cannot tell which it sees.
        if !self.slept && !self.awaited {
            self.stop(how, self.state.clone());
        }
    }

    fn receive(&mut self, at: Id, bind: Id, topic: &str, hours: u32) -> Run1<()> {
        self.waiting(How::Waits);
        let var = &self.program.vars[&bind];
        let is_limited = var.wrap == Wrap::Limited;
        if hours == PASSES {
            self.slept = true;
            return if is_limited { self.bound(at, bind, Value::Limited(None)) } else { Err(WAITS) };
        }
        self.received.push(topic.to_owned());
        let message = message(topic);
        let value = if var.of == Type::Json { Value::Json(message.into()) } else { Value::Int(message) };
        self.bound(at, bind, if is_limited { Value::Limited(Some(Box::new(value))) } else { value })
    }

    /// Waits for the arm that comes about.
    fn choose(&mut self, node: &Node) -> Run1<()> {
        let Kind::Select { bind, arms, wins, .. } = &node.kind else { return Err("it is no select!") };
        self.waiting(How::Waits);
        let Some(arm) = arms.iter().find(|arm| arm.id == *wins) else { return Err("the arm is gone") };
        let message = match &arm.on {
            On::Topic(topic) => {
                self.received.push(topic.clone());
                Some(message(topic))
            }
            On::Hours(_) => {
                self.slept = true;
                None
            }
        };
        self.frame().chosen = Some((*wins, message));
        self.checkpoint(node.id, Phase::Done, None)?;
        self.arm(*bind, arms)
    }

    /// The arm that has come about.
    fn arm(&mut self, bind: Id, arms: &[Arm]) -> Run1<()> {
        let Some((id, message)) = self.frame().chosen else { return Err("no arm was chosen") };
        let Some(arm) = arms.iter().find(|arm| arm.id == id) else { return Err("the chosen arm is gone") };
        match (&arm.on, message) {
            (On::Topic(_), Some(message)) => _ = self.frame().values.insert(arm.bind, Value::Int(message)),
            (On::Hours(_), None) => {}
            _ => return Err("the chosen arm is another kind"),
        }
        self.in_arm(bind, arm)
    }

    fn in_arm(&mut self, bind: Id, arm: &Arm) -> Run1<()> {
        self.block(&arm.body)?;
        let value = self.eval(&arm.value)?;
        self.frame().values.insert(bind, Value::Int(value));
        Ok(())
    }

    fn wait(&mut self, at: Id, bind: Id, handle: Id) -> Run1<()> {
        let Value::Handle(argument) = self.read(handle)? else { return Err("the handle is none") };
        // A child of an earlier run may have ended there.
        if self.from.frames.is_empty() {
            self.waiting(How::WaitsForChild);
        }
        self.awaited = true;
        self.bound(at, bind, Value::Int(child_result(argument)))
    }

    /// `steps!` with the results that are stored.
    fn side(&mut self, node: &Node, stored: &BTreeMap<i64, i64>) -> Run1<()> {
        let calls: Vec<Call<'_>> = match &node.kind {
            Kind::Steps { branches, .. } => {
                let mut calls = Vec::new();
                for Branch { id, label, input, effect, .. } in branches {
                    calls.push(Call { id: i64::from(*id), label, input: self.eval(input)?, effect: *effect });
                }
                calls
            }
            Kind::StepsFor { list, label, effect, .. } => {
                let items = self.program.lists[list].iter();
                items.map(|item| Call { id: *item, label, input: mix(0, &[*item]), effect: *effect }).collect()
            }
            _ => return Err("it is no steps!"),
        };
        if stored.keys().any(|key| !calls.iter().any(|call| call.id == *key)) {
            return Err("a branch with a result is gone");
        }
        let doubt = |call: &Call<'_>| Doubt { node: node.id, branch: Some(call.id) };
        let mut stored = stored.clone();
        for in_doubt in std::mem::take(&mut self.state.in_doubt) {
            let Some(call) = calls.iter().find(|call| doubt(call) == in_doubt) else { return Err("the effect in doubt is gone") };
            stored.insert(call.id, self.decided(call.label, call.input, call.effect)?);
        }
        let open: Vec<_> = calls.iter().filter(|call| !stored.contains_key(&call.id)).collect();
        let in_doubt = |hanging: &[&Call<'_>]| hanging.iter().filter(|call| call.effect.is_some()).map(|call| doubt(call)).collect();
        self.state.results.clone_from(&stored);
        if !open.is_empty() {
            self.stop(How::Hangs(Hangs::From(self.started)), State { in_doubt: in_doubt(&open), ..self.state.clone() });
        }
        for hanging in open.iter().filter(|_| open.len() > 1) {
            let mut state = State { in_doubt: in_doubt(&[hanging]), ..self.state.clone() };
            state.results.extend(calls.iter().filter(|call| call.id != hanging.id).map(|call| (call.id, call.answer())));
            self.stop(How::Hangs(Hangs::One { from: self.started, answer: hanging.answer() }), state);
            let done = open.iter().filter(|call| call.id != hanging.id).map(|call| call.line());
            let stop = self.stops.last_mut().expect("it was just put there");
            stop.log = sorted(stop.log.iter().cloned().chain(done).collect());
        }
        self.started += open.len();
        self.log.extend(open.iter().map(|call| call.line()));
        let results: Vec<i64> = calls.iter().map(|call| stored.get(&call.id).copied().unwrap_or_else(|| call.answer())).collect();
        match &node.kind {
            Kind::Steps { branches, .. } => {
                for (branch, result) in branches.iter().zip(results) {
                    self.frame().values.insert(branch.bind, Value::Int(result));
                }
                self.checkpoint(node.id, Phase::Done, None)
            }
            Kind::StepsFor { bind, .. } => self.bound(node.id, *bind, Value::List(results)),
            _ => Err("it is no steps!"),
        }
    }

    #[allow(clippy::too_many_lines, reason = "an arm for each kind")]
    fn node(&mut self, node: &Node) -> Run1<()> {
        match &node.kind {
            Kind::Local { bind, to } => {
                let value = self.eval(to)?;
                let value = self.made(*bind, value);
                self.frame().values.insert(*bind, value);
            }
            Kind::Set { var, to } => {
                let value = self.eval(to)?;
                self.frame().values.insert(*var, Value::Int(value));
            }
            Kind::Step { bind, label, input, effect, .. } => {
                let input = self.eval(input)?;
                let value = self.call(label, input, Some((node.id, *effect)))?;
                if let Some(bind) = bind {
                    let value = self.made(*bind, value);
                    self.frame().values.insert(*bind, value);
                }
                self.checkpoint(node.id, Phase::Done, None)?;
            }
            Kind::If { on, then, otherwise } => {
                let on = self.eval(on)?;
                self.block(if on % 2 == 0 { then } else { otherwise })?;
            }
            Kind::For { over, reversed, item, body } => {
                let items = self.items(over, *reversed)?;
                let begun = Loop { over: over.clone(), items: items.clone(), at: 0 };
                self.frame().loops.insert(node.id, begun);
                self.turns(node.id, *item, body, &items, 0)?;
            }
            Kind::While { counter, rounds, body } => {
                self.frame().values.insert(*counter, Value::Int(0));
                self.rounds(*counter, *rounds, body)?;
            }
            Kind::Call { bind, input, helper, .. } => {
                let input = self.eval(input)?;
                let helper = &self.program.helpers[*helper];
                let args = helper.args.iter().map(|arg| (*arg, Value::Int(input))).collect();
                let frame = self.frame();
                (frame.at, frame.phase, frame.topic) = (node.id, Phase::Inside, None);
                let result = self.function(helper, args)?;
                self.bound(node.id, *bind, Value::Int(result))?;
            }
            Kind::Steps { .. } | Kind::StepsFor { .. } => {
                self.checkpoint(node.id, Phase::Pending, None)?;
                self.side(node, &BTreeMap::new())?;
            }
            Kind::Recv { bind, topic, hours, .. } => {
                self.checkpoint(node.id, Phase::Pending, Some(topic))?;
                self.receive(node.id, *bind, topic, *hours)?;
            }
            Kind::Select { arms, .. } => {
                self.frame().arms = arms.iter().map(|arm| (arm.id, arm.on.clone())).collect();
                self.checkpoint(node.id, Phase::Pending, None)?;
                self.choose(node)?;
            }
            Kind::Tx { bind, tx, booked, label, input, .. } => {
                let input = self.eval(input)?;
                if !self.state.in_doubt.is_empty() {
                    return Err("a body comes before the effect that is in doubt");
                }
                let number = if let Some(number) = self.state.booked.get(tx) {
                    *number
                } else {
                    self.started += 1;
                    self.log.push(format!("{booked}({input})"));
                    answer(booked, input)
                };
                self.used.insert(*tx);
                self.state.booked.insert(*tx, number);
                let value = self.call(label, number, Some((node.id, None)))?;
                let value = self.made(*bind, value);
                self.bound(node.id, *bind, value)?;
            }
            Kind::SetField { var, field, to } => {
                let number = self.eval(to)?;
                // It must be readable.
                self.eval(&Expr { constant: 0, reads: vec![*var] })?;
                let Type::Struct(of) = self.program.vars[var].of else { return Err("it is no struct") };
                let Some(field) = self.program.structs[&of].iter().find(|there| there.id == *field) else {
                    return Err("the field is gone");
                };
                let name = field.name.clone();
                let Some(Value::Struct(fields)) = self.frame().values.get_mut(var) else { return Err("a value is missing") };
                fields.stored.insert(field.id, (name, Some(number)));
            }
            Kind::Sleep { .. } => {
                self.checkpoint(node.id, Phase::Done, None)?;
                self.waiting(How::Waits);
                self.slept = true;
            }
            Kind::Spawn { bind, input, .. } => {
                let input = self.eval(input)?;
                self.bound(node.id, *bind, Value::Handle(input))?;
            }
            Kind::Wait { bind, handle, .. } => {
                self.checkpoint(node.id, Phase::Pending, None)?;
                self.wait(node.id, *bind, *handle)?;
            }
            Kind::Note { label, input } => {
                let input = self.eval(input)?;
                self.call(label, input, None)?;
            }
        }
        Ok(())
    }
}

/// What is sent on a topic.
pub(crate) fn message(topic: &str) -> i64 {
    topic.to_owned().number()
}

/// What a child gives.
pub(crate) fn child_result(argument: i64) -> i64 {
    mix(77, &[argument])
}
