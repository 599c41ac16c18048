//! Random programs.
use std::collections::{BTreeMap, BTreeSet};

use forever_testkit::prng::Prng;

use super::program::{Branch, Expr, Function, Id, Kind, Name, Node, Options, Over, Policy, Program, Type};
use super::repair::repair;

/// A small program. It has the shapes that are needed, and one that its number says, so that all are there in a few programs.
pub(super) fn program(prng: &mut Prng, number: usize, needs: &BTreeSet<&str>) -> Program {
    let function = |name: &str| Function { name: name.to_owned(), args: Vec::new(), body: Vec::new(), result: expr_of(0, &[]) };
    let program = Program {
        work: function("work"),
        helpers: vec![function("helper"), function("other helper")],
        vars: BTreeMap::new(),
        lists: BTreeMap::new(),
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
const REST: [&str; 17] = [
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
];

const IN_CALLEES: [&str; 10] = ["effect", "checked", "value", "constant", "steps", "steps for", "effects", "effect for", "recv", "sleep"];

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
                self.bound(Type::Int, |_, bind| Kind::Recv { name, bind, topic })
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
