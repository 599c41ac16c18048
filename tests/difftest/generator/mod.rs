//! Writes random bodies, each as a plain `async fn` and as a fiber.
//!
//! A body is written from its first line to its last. What is in scope, moved or borrowed is kept up to date on the way
//! (`scope`), so that every body compiles; the code is a text with the cut points left open (`code`), printed twice. Every
//! body ends: loops are bounded, and the number of checkpoints that a run can make is counted while writing (`fuel`, `trips`).
// The writers of statements share one type, and some of them can always write.
#![allow(clippy::unnecessary_wraps)]

mod borrows;
mod branches;
mod code;
mod compounds;
mod coverage;
mod deferred;
mod drops;
mod expressions;
mod file;
mod for_loops;
mod loops;
mod ownership;
mod partly;
mod patterns;
mod rulings;
mod scope;
mod statements;
mod steps;
mod types;
mod waits;
mod walks;

use std::collections::BTreeSet;

use code::{Code, Flavour, code};
use coverage::Construct;
pub(crate) use file::{Options, generate};
use forever_testkit::prng::Prng;
use scope::{Join, Scope, Var};
use types::{Ty, VALUES};

/// How many checkpoints a run of a body makes at most.
const FUEL: usize = 55;

/// A statement or an expression, and whether what comes after it is never reached.
pub(crate) type Written = (Code, bool);

/// A body while it is being written.
pub(crate) struct Body {
    prng: Prng,
    scope: Scope,
    constructs: BTreeSet<Construct>,
    /// What `break` and `continue` can leave, outermost first.
    exits: Vec<Exit>,
    /// Names that nothing may shadow for now.
    reserved: Vec<String>,
    /// The first local of the innermost block.
    block: usize,
    nesting: usize,
    output: Ty,
    names: u32,
    calls: u32,
    steps: u32,
    statements: usize,
    /// How many checkpoints a run may still make.
    fuel: usize,
    /// How often the place being written is reached in one run, at most.
    trips: usize,
    steps_allowed: bool,
    moves_allowed: bool,
    /// In the body of an effect.
    in_effect: bool,
}

/// A loop or a labelled block around the place being written.
struct Exit {
    label: Option<String>,
    is_loop: bool,
    /// The type of the value that `break` must give.
    value: Option<Ty>,
    /// What is set where the exit leads.
    join: Join,
}

/// A body with its parameters, ready to print.
pub(crate) struct Function {
    /// Pattern and type of each.
    parameters: Vec<(String, Ty)>,
    output: Ty,
    lines: Code,
    pub(crate) constructs: BTreeSet<Construct>,
    pub(crate) calls: u32,
    pub(crate) steps: u32,
}

impl Function {
    /// A random function.
    pub(crate) fn random(mut prng: Prng, most_statements: usize) -> Self {
        let output = prng.one_of(&VALUES);
        let fewest = most_statements / 4;
        let statements = 1 + fewest + prng.below(most_statements.saturating_sub(fewest).max(1));
        let mut body = Body {
            prng,
            scope: Scope::default(),
            constructs: BTreeSet::new(),
            exits: Vec::new(),
            reserved: Vec::new(),
            block: 0,
            nesting: 0,
            output,
            names: 0,
            calls: 0,
            steps: 0,
            statements,
            fuel: FUEL,
            trips: 1,
            steps_allowed: true,
            moves_allowed: true,
            in_effect: false,
        };
        let parameters = (0..body.prng.below(4)).map(|_| body.parameter()).collect();
        let (mut lines, diverged) = body.lines(statements);
        if !diverged {
            lines.push(body.note());
            lines.push(code!["Ok(", body.at(Construct::StepReturn, output, 1), ")"]);
        }
        let Body { constructs, calls, steps, .. } = body;
        Function { parameters, output, lines: Code::Block(lines), constructs, calls, steps }
    }

    /// The function as source.
    pub(crate) fn print(&self, flavour: Flavour, name: &str) -> String {
        let (open, io) = if flavour == Flavour::Fiber { ("#[fiber]\n", "Res<Io>") } else { ("", "&Io") };
        let mut parameters = vec![format!("io: {io}")];
        parameters.extend(self.parameters.iter().map(|(pattern, ty)| format!("{pattern}: {}", ty.text())));
        let parameters = parameters.join(", ");
        let output = self.output.text();
        format!("{open}pub async fn {name}({parameters}) -> Result<{output}, String> {}\n", self.lines.print(flavour, 0))
    }

    /// Arguments to call it with.
    pub(crate) fn arguments(&self) -> Vec<&'static str> {
        self.parameters.iter().map(|(_, ty)| ty.argument()).collect()
    }
}

impl Body {
    fn parameter(&mut self) -> (String, Ty) {
        let ty = self.prng.one_of(&VALUES);
        if matches!(ty, Ty::Pair | Ty::Item) && self.prng.chance(60) {
            self.cover(Construct::ParameterPattern);
            let pattern = self.irrefutable(ty);
            self.bind(&pattern);
            return (pattern.text, ty);
        }
        let name = self.fresh_name(ty);
        let var = Var::owned(name.clone(), ty);
        if self.prng.chance(40) {
            self.scope.push(var.mutable());
            return (format!("mut {name}"), ty);
        }
        self.scope.push(var);
        (name, ty)
    }

    /// Statements in the present block, up to a number of them; stops where the end cannot be reached any more.
    fn lines(&mut self, most: usize) -> (Vec<Code>, bool) {
        let mut lines = Vec::new();
        let count = if self.nesting == 0 { most } else { 1 + self.prng.below(most) };
        for _ in 0..count {
            if self.statements == 0 {
                break;
            }
            self.statements -= 1;
            let (line, diverged) = self.statement();
            lines.push(line);
            if diverged {
                return (lines, true);
            }
        }
        (lines, false)
    }

    /// What `make` writes in a scope of its own.
    fn nested<T>(&mut self, make: impl FnOnce(&mut Body) -> T) -> T {
        let (len, block) = (self.scope.len(), self.block);
        self.block = len;
        self.nesting += 1;
        let written = make(self);
        self.nesting -= 1;
        self.block = block;
        self.scope.leave(len);
        written
    }

    /// A block of its own.
    fn block(&mut self, most: usize) -> Written {
        let (lines, diverged) = self.nested(|body| body.lines(most));
        (Code::Block(lines), diverged)
    }

    fn cover(&mut self, construct: Construct) {
        self.constructs.insert(construct);
    }

    /// A name that is not in use.
    fn fresh_name(&mut self, ty: Ty) -> String {
        self.names += 1;
        format!("{}{}", ty.prefix(), self.names)
    }

    /// A name for a new local, now and then that of another one.
    fn new_name(&mut self, ty: Ty) -> String {
        if !self.prng.chance(15) {
            return self.fresh_name(ty);
        }
        let reserved = &self.reserved;
        let shadowed = self.scope.find(|scope, id, var| scope.readable(id) && !reserved.contains(&var.name));
        if shadowed.is_empty() {
            return self.fresh_name(ty);
        }
        let id = self.prng.one_of(&shadowed);
        self.cover(if id < self.block { Construct::ShadowOuter } else { Construct::Shadow });
        if self.scope.is_borrowed(id) {
            self.cover(Construct::ShadowBorrowed);
        }
        self.scope.var(id).name.clone()
    }
}
