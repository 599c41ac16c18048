//! Random programs.
use std::collections::{BTreeMap, BTreeSet};

use forever_testkit::prng::Prng;

use super::program::{
    Arm, Branch, Expr, Field, Function, Id, Kind, NEVER, Name, Node, On, Options, Over, PASSES, Policy, Program, Type, Wrap,
};
use super::repair::repair;

/// A small program. It has the shapes that are needed, and one that its number says, so that all are there in a few programs.
pub(super) fn program(prng: &mut Prng, number: usize, needs: &BTreeSet<&str>) -> Program {
    let function = |name: &str| Function { name: name.to_owned(), args: Vec::new(), body: Vec::new(), result: expr_of(0, &[]) };
    let program = Program {
        work: function("work"),
        helpers: vec![function("helper"), function("other helper")],
        vars: BTreeMap::new(),
        lists: BTreeMap::new(),
        structs: BTreeMap::new(),
        next: 0,
    };
    let mut make = Make { program, prng, known: Vec::new(), depth: 0 };
    make.function(Some((number, needs)), 0);
    let work = std::mem::replace(&mut make.program.work, function("work"));
    for at in 0..2 {
        make.function(None, 2);
        make.program.helpers[at].body = std::mem::take(&mut make.program.work.body);
        make.program.helpers[at].args = std::mem::take(&mut make.program.work.args);
        make.program.helpers[at].result = make.program.work.result.clone();
    }
    make.program.work = work;
    repair(&mut make.program);
    make.program
}

/// An arm for a `select!` that is edited, which never comes about, and a field for a struct.
pub(super) fn arm(program: &mut Program, prng: &mut Prng) -> Arm {
    make(program, prng, |make| make.arm(false, false))
}

#[allow(clippy::redundant_closure_for_method_calls, reason = "the method is not general enough")]
pub(super) fn field(program: &mut Program, prng: &mut Prng) -> Field {
    make(program, prng, |make| make.field())
}

fn make<T>(program: &mut Program, prng: &mut Prng, with: impl FnOnce(&mut Make<'_>) -> T) -> T {
    let mut make = Make { program: program.clone(), prng, known: program.work.args.clone(), depth: 2 };
    let part = with(&mut make);
    *program = make.program;
    part
}

/// A node for a program that is edited: its reads are of these variables.
pub(super) fn node(program: &mut Program, prng: &mut Prng, known: Vec<Id>, shape: &str) -> Vec<Node> {
    let mut make = Make { program: program.clone(), prng, known, depth: 2 };
    let nodes = make.shape(shape);
    *program = make.program;
    nodes
}

pub(super) fn expr_of(constant: i64, reads: &[Id]) -> Expr {
    Expr { constant, reads: reads.to_vec() }
}

struct Make<'a> {
    program: Program,
    prng: &'a mut Prng,
    /// The variables that may be read.
    known: Vec<Id>,
    depth: usize,
}

/// What a function called inline is made of; the others have these and the rest.
const PLAIN: [&str; 9] = ["step", "derived", "unnamed", "text", "list", "local", "if", "range", "while"];
const REST: [&str; 25] = [
    "effect",
    "value",
    "borrow",
    "constant",
    "call",
    "steps",
    "steps for",
    "recv",
    "sleep",
    "spawn",
    "derived steps",
    "checked",
    "note",
    "effects",
    "derived effects",
    "effect for",
    "set",
    "select",
    "select time",
    "transaction",
    "struct",
    "form",
    "caught",
    "limited",
    "transaction with a key",
];

const IN_CALLEES: [&str; 13] = [
    "effect",
    "checked",
    "value",
    "constant",
    "steps",
    "steps for",
    "effects",
    "effect for",
    "recv",
    "sleep",
    "select",
    "transaction",
    "struct",
];

impl Make<'_> {
    /// A body, in `work`.
    fn function(&mut self, shapes: Option<(usize, &BTreeSet<&str>)>, least: usize) {
        self.known.clear();
        let argument = self.program.new_var(Type::Int);
        self.known.push(argument);
        let sum = self.program.new_var(Type::Int);
        let start = self.expr();
        let mut body = vec![self.at(Kind::Local { bind: sum, to: start })];
        self.known.push(sum);
        if let Some((number, needs)) = shapes {
            // A few programs of any seed have all shapes.
            let turn = [PLAIN[number % PLAIN.len()], REST[2 * number % REST.len()], REST[(2 * number + 1) % REST.len()]];
            for shape in needs.iter().chain(&turn) {
                body.extend(self.shape(shape));
            }
        }
        for _ in 0..least + self.prng.below(3) {
            let shape = self.any(shapes.is_some());
            let at = 1 + self.prng.below(body.len());
            if self.prng.chance(70) || shapes.is_none() {
                body.extend(self.shape(shape));
            } else {
                let nodes = self.shape(shape);
                body.splice(at..at, nodes);
            }
        }
        let mut result = self.expr();
        result.reads.insert(0, sum);
        self.program.work.body = body;
        self.program.work.args = vec![argument];
        self.program.work.result = result;
    }

    fn any(&mut self, rest: bool) -> &'static str {
        match self.prng.below(100) {
            0..50 if rest => self.prng.one_of(&REST),
            0..25 => self.prng.one_of(&IN_CALLEES),
            _ => self.prng.one_of(&PLAIN),
        }
    }

    fn at(&mut self, kind: Kind) -> Node {
        Node { id: self.program.new_id(), kind }
    }

    fn expr(&mut self) -> Expr {
        let reads: Vec<Id> =
            if self.known.is_empty() { Vec::new() } else { (0..=self.prng.below(2)).map(|_| self.prng.one_of(&self.known)).collect() };
        expr_of(i64::from(self.prng.below(100_u32)), &reads)
    }

    fn inner(&mut self) -> Vec<Node> {
        self.depth += 1;
        let known = self.known.clone();
        let mut nodes = Vec::new();
        for _ in 0..=self.prng.below(2) {
            let shape = if self.depth > 1 { self.prng.one_of(&["step", "derived", "local", "effect"]) } else { self.prng.one_of(&PLAIN) };
            nodes.extend(self.shape(shape));
        }
        self.known = known;
        self.depth -= 1;
        nodes
    }

    /// A step, and often a change of the sum behind it.
    fn step(&mut self, of: Type, literal: bool, binds: bool, effect: Option<Policy>) -> Vec<Node> {
        let input = self.expr();
        let bind = binds.then(|| self.program.new_var(of));
        let id = self.program.new_id();
        let name = if literal { Name { literal: Some(format!("s{id}")), was: None } } else { Name::default() };
        // Bodies of one text are found in steps that are copied.
        let label = if self.prng.chance(20) { "same".to_owned() } else { format!("l{id}") };
        let mut nodes = vec![Node { id, kind: Kind::Step { name, bind, label, input, effect, options: Options::default() } }];
        self.known.extend(bind);
        if self.prng.chance(40) {
            nodes.extend(self.set());
        }
        nodes
    }

    fn set(&mut self) -> Option<Node> {
        let sum = *self.known.get(1)?;
        let mut to = self.expr();
        to.reads.push(sum);
        Some(self.at(Kind::Set { var: sum, to }))
    }

    /// Reads a variable into the sum.
    fn sums(&mut self, var: Id) -> Option<Node> {
        let sum = *self.known.get(1)?;
        Some(self.at(Kind::Set { var: sum, to: expr_of(7, &[sum, var]) }))
    }

    fn wrap(&mut self, nodes: &[Node], wrap: Wrap) {
        let bind = nodes[0].kind.binds()[0];
        self.program.vars.get_mut(&bind).expect("it is new").wrap = wrap;
    }

    fn field(&mut self) -> Field {
        let id = self.program.new_id();
        Field { id, name: format!("f{id}"), alias: None, default: self.prng.chance(20), maybe: self.prng.chance(25) }
    }

    fn select(&mut self, by_message: bool) -> Vec<Node> {
        let name = self.named("p");
        let bind = self.program.new_var(Type::Int);
        let count = 2 + self.prng.below(2);
        let winner = self.prng.below(count);
        let arms: Vec<Arm> = (0..count).map(|at| self.arm(at == winner, by_message)).collect();
        let wins = arms[winner].id;
        self.known.push(bind);
        vec![self.at(Kind::Select { name, bind, arms, wins })]
    }

    fn arm(&mut self, wins: bool, by_message: bool) -> Arm {
        let (id, bind) = (self.program.new_id(), self.program.new_var(Type::Int));
        let by_topic = if wins { by_message } else { self.prng.chance(40) };
        let on = if by_topic { On::Topic(format!("q{id}")) } else { On::Hours(if wins { PASSES } else { NEVER }) };
        self.depth += 1;
        let known = self.known.clone();
        if by_topic {
            self.known.push(bind);
        }
        let body = if self.prng.chance(40) { self.step(Type::Int, true, true, None) } else { Vec::new() };
        let mut value = self.expr();
        value.reads.extend(by_topic.then_some(bind));
        self.known = known;
        self.depth -= 1;
        Arm { id, on, bind, body, value }
    }

    fn list(&mut self) -> Id {
        let id = self.program.new_id();
        let first = i64::from(self.prng.below(50_u32));
        self.program.lists.insert(id, vec![first, first + 100, first + 200]);
        id
    }

    fn bound(&mut self, of: Type, kind: impl FnOnce(&mut Self, Id) -> Kind) -> Vec<Node> {
        let bind = self.program.new_var(of);
        let kind = kind(self, bind);
        let node = self.at(kind);
        self.known.push(bind);
        vec![node]
    }

    fn looped(&mut self, before: Vec<Node>, over: Over) -> Vec<Node> {
        let item = self.program.new_var(Type::Int);
        self.known.push(item);
        let body = self.inner();
        self.known.retain(|var| *var != item);
        let reversed = self.prng.chance(15);
        let node = self.at(Kind::For { over, reversed, item, body });
        before.into_iter().chain([node]).collect()
    }

    /// A step or a local that gives a list.
    fn made_list(&mut self) -> (Vec<Node>, Id) {
        let nodes = if self.prng.chance(50) {
            self.step(Type::List, true, true, None)
        } else {
            self.bound(Type::List, |make, bind| Kind::Local { bind, to: make.expr() })
        };
        let list = nodes[0].kind.binds()[0];
        (nodes, list)
    }

    fn named(&mut self, prefix: &str) -> Name {
        let literal = self.prng.chance(60).then(|| format!("{prefix}{}", self.program.new_id()));
        Name { literal, was: None }
    }

    fn policy(&mut self) -> Policy {
        self.prng.one_of(&[Policy::Park, Policy::Check])
    }

    /// Branches, of which some are effects if there is a policy.
    fn branches(&mut self, literal: bool, policy: Option<Policy>) -> Vec<Branch> {
        let mut branches = Vec::new();
        for at in 0..2 + self.prng.below(2) {
            let effect = policy.filter(|_| at == 0 || self.prng.chance(60));
            let (id, bind) = (self.program.new_id(), self.program.new_var(Type::Int));
            let name = Name { literal: literal.then(|| format!("b{id}")), was: None };
            branches.push(Branch { id, name, bind, label: format!("~b{id}"), input: self.expr(), effect });
        }
        self.known.extend(branches.iter().map(|branch| branch.bind));
        branches
    }

    #[allow(clippy::too_many_lines, reason = "an arm for each shape")]
    fn shape(&mut self, shape: &str) -> Vec<Node> {
        match shape {
            "step" => {
                let binds = self.prng.chance(70);
                self.step(Type::Int, true, binds, None)
            }
            "derived" => self.step(Type::Int, false, true, None),
            "unnamed" => self.step(Type::Int, false, false, None),
            "text" => self.step(Type::Text, true, true, None),
            "list" => self.step(Type::List, true, true, None),
            "effect" | "checked" => {
                let policy = if shape == "effect" { Policy::Park } else { Policy::Check };
                let literal = self.prng.chance(70);
                self.step(Type::Int, literal, true, Some(policy))
            }
            "local" => self.bound(Type::Int, |make, bind| Kind::Local { bind, to: make.expr() }),
            "if" => {
                let on = self.expr();
                let then = self.inner();
                let otherwise = if self.prng.chance(60) { self.inner() } else { Vec::new() };
                vec![self.at(Kind::If { on, then, otherwise })]
            }
            "range" => self.looped(Vec::new(), Over::Range(3)),
            "value" => {
                let (before, list) = self.made_list();
                self.looped(before, Over::Value { list, cloned: false })
            }
            "borrow" => {
                let (before, list) = self.made_list();
                self.looped(before, Over::Borrow(list))
            }
            "constant" => {
                let list = self.list();
                self.looped(Vec::new(), Over::Constant(list))
            }
            "while" => {
                let counter = self.program.new_var(Type::Int);
                self.known.push(counter);
                let body = self.inner();
                vec![self.at(Kind::While { counter, rounds: 2, body })]
            }
            "call" => {
                let (name, helper) = (self.named("c"), self.prng.below(2));
                self.bound(Type::Int, |make, bind| Kind::Call { name, bind, input: make.expr(), helper })
            }
            "steps" | "derived steps" => {
                let (name, branches) = (self.named("all"), self.branches(shape == "steps", None));
                vec![self.at(Kind::Steps { name, branches })]
            }
            "effects" | "derived effects" => {
                let policy = self.policy();
                let (name, branches) = (self.named("all"), self.branches(shape == "effects", Some(policy)));
                vec![self.at(Kind::Steps { name, branches })]
            }
            "steps for" | "effect for" => {
                let (name, list) = (self.named("each"), self.list());
                let label = format!("~i{list}");
                let effect = (shape == "effect for").then(|| self.policy());
                self.bound(Type::List, |_, bind| Kind::StepsFor { name, bind, list, label, effect })
            }
            "set" => {
                let step = self.step(Type::Int, true, true, None);
                let set = self.set();
                step.into_iter().chain(set).collect()
            }
            "recv" => {
                let (name, topic) = (self.named("r"), format!("t{}", self.prng.below(3)));
                self.bound(Type::Int, |_, bind| Kind::Recv { name, bind, topic, hours: NEVER })
            }
            "limited" | "limit passes" => {
                let name = self.named("r");
                let passes = shape == "limit passes" || self.prng.chance(50);
                let topic = if passes { format!("never{}", self.program.new_id()) } else { format!("t{}", self.prng.below(3)) };
                let (hours, of) = (if passes { PASSES } else { NEVER }, self.prng.one_of(&[Type::Json, Type::Int]));
                let nodes = self.bound(of, |_, bind| Kind::Recv { name, bind, topic, hours });
                self.wrap(&nodes, Wrap::Limited);
                nodes
            }
            "select" | "select time" => self.select(shape == "select"),
            "transaction" | "transaction with a key" => {
                let id = self.program.new_id();
                let name = Name { literal: self.prng.chance(80).then(|| format!("s{id}")), was: None };
                let key = (shape == "transaction with a key").then_some(id);
                let (booked, label) = (format!("b{id}"), format!("l{id}"));
                self.bound(Type::Int, |make, bind| Kind::Tx { name, bind, tx: id, key, booked, label, input: make.expr() })
            }
            "struct" => {
                let of = self.program.new_id();
                let fields = (0..2 + self.prng.below(2)).map(|_| self.field()).collect::<Vec<_>>();
                let field = fields[0].id;
                self.program.structs.insert(of, fields);
                let mut nodes = if self.prng.chance(50) {
                    self.step(Type::Struct(of), true, true, None)
                } else {
                    self.bound(Type::Struct(of), |make, bind| Kind::Local { bind, to: make.expr() })
                };
                let var = nodes[0].kind.binds()[0];
                nodes.extend(self.step(Type::Int, true, false, None));
                let to = self.expr();
                nodes.push(self.at(Kind::SetField { var, field, to }));
                nodes.extend(self.step(Type::Int, true, false, None));
                nodes.extend(self.sums(var));
                nodes
            }
            "form" | "caught" => {
                let of = if shape == "caught" {
                    self.prng.one_of(&[Type::Json, Type::Int])
                } else if self.prng.chance(40) {
                    Type::Wide
                } else {
                    self.prng.one_of(&Type::VALUES)
                };
                let mut nodes = if shape == "caught" || self.prng.chance(60) {
                    self.step(of, true, true, None)
                } else {
                    self.bound(of, |make, bind| Kind::Local { bind, to: make.expr() })
                };
                if shape == "caught" {
                    self.wrap(&nodes, Wrap::Caught);
                }
                let var = nodes[0].kind.binds()[0];
                nodes.extend(self.step(Type::Int, true, false, None));
                nodes.extend(self.sums(var));
                nodes
            }
            "sleep" => {
                let name = self.named("z");
                vec![self.at(Kind::Sleep { name })]
            }
            "spawn" => {
                let (first, second) = (self.named("f"), self.named("w"));
                let mut nodes = self.bound(Type::Handle, |make, bind| Kind::Spawn { name: first, bind, input: make.expr() });
                let handle = nodes[0].kind.binds()[0];
                nodes.extend(self.bound(Type::Int, |_, bind| Kind::Wait { name: second, bind, handle }));
                nodes
            }
            "note" => {
                let input = self.expr();
                let label = format!("n{}", self.program.new_id());
                vec![self.at(Kind::Note { label, input })]
            }
            other => unreachable!("{other} is no shape"),
        }
    }
}
