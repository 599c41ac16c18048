//! Fibers as data. Every node, variable, branch and list has an id that an edit leaves as it is.
use std::collections::BTreeMap;

pub(crate) type Id = u32;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Int,
    Text,
    List,
    Handle,
    /// An `i64` that an `f64` may not have.
    Wide,
    Float,
    /// An `Option` that is written.
    Maybe,
    /// A tuple of two numbers.
    Pair,
    /// `serde_json::Value`.
    Json,
    /// An untagged enum of a number and a text.
    Either,
    Struct(Id),
}

impl Type {
    /// Those of values that a step or a local may have.
    pub(crate) const VALUES: [Type; 9] =
        [Type::Int, Type::Text, Type::List, Type::Wide, Type::Float, Type::Maybe, Type::Pair, Type::Json, Type::Either];
}

/// What a macro puts around a value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Wrap {
    #[default]
    None,
    /// The `Result` of `catch`.
    Caught,
    /// The `Option` of a `timeout` of `recv!`.
    Limited,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Var {
    pub(crate) name: String,
    pub(crate) was: Option<String>,
    pub(crate) of: Type,
    pub(crate) wrap: Wrap,
}

/// A field of a struct, which has a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) id: Id,
    pub(crate) name: String,
    /// `#[serde(alias = "..")]`
    pub(crate) alias: Option<String>,
    /// `#[serde(default)]`
    pub(crate) default: bool,
    /// Whether it is an `Option`.
    pub(crate) maybe: bool,
}

/// A number made of a constant and variables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expr {
    pub(crate) constant: i64,
    pub(crate) reads: Vec<Id>,
}

#[derive(Debug, Clone)]
pub(crate) struct Program {
    pub(crate) work: Function,
    pub(crate) helpers: Vec<Function>,
    pub(crate) vars: BTreeMap<Id, Var>,
    /// Lists that are constants of the program.
    pub(crate) lists: BTreeMap<Id, Vec<i64>>,
    pub(crate) structs: BTreeMap<Id, Vec<Field>>,
    pub(crate) next: Id,
}

#[derive(Debug, Clone)]
pub(crate) struct Function {
    /// The stored name.
    pub(crate) name: String,
    pub(crate) args: Vec<Id>,
    pub(crate) body: Vec<Node>,
    pub(crate) result: Expr,
}

#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) id: Id,
    pub(crate) kind: Kind,
}

/// The name that is written at a cut point; without one it is derived from its `let` or its call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Name {
    pub(crate) literal: Option<String>,
    pub(crate) was: Option<String>,
}

/// What an effect does when its outcome is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    Park,
    Check,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Over {
    /// By value over a variable; a clone of it where it may not be moved.
    Value {
        list: Id,
        cloned: bool,
    },
    Borrow(Id),
    /// By borrow over a constant list.
    Constant(Id),
    Range(i64),
}

#[derive(Debug, Clone)]
pub(crate) struct Branch {
    pub(crate) id: Id,
    pub(crate) name: Name,
    pub(crate) bind: Id,
    pub(crate) label: String,
    pub(crate) input: Expr,
    pub(crate) effect: Option<Policy>,
}

/// Options of a step that say how often and how long, and nothing of what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) retry: bool,
    pub(crate) timeout: bool,
}

/// What an arm of a `select!` waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum On {
    Topic(String),
    Hours(u32),
}

/// An arm of a `select!`.
#[derive(Debug, Clone)]
pub(crate) struct Arm {
    pub(crate) id: Id,
    pub(crate) on: On,
    /// The message.
    pub(crate) bind: Id,
    pub(crate) body: Vec<Node>,
    pub(crate) value: Expr,
}

#[derive(Debug, Clone)]
pub(crate) enum Kind {
    Local {
        bind: Id,
        to: Expr,
    },
    Set {
        var: Id,
        to: Expr,
    },
    Step {
        name: Name,
        bind: Option<Id>,
        label: String,
        input: Expr,
        effect: Option<Policy>,
        options: Options,
    },
    If {
        on: Expr,
        then: Vec<Node>,
        otherwise: Vec<Node>,
    },
    For {
        over: Over,
        reversed: bool,
        item: Id,
        body: Vec<Node>,
    },
    While {
        counter: Id,
        rounds: i64,
        body: Vec<Node>,
    },
    Call {
        name: Name,
        bind: Id,
        input: Expr,
        helper: usize,
    },
    Steps {
        name: Name,
        branches: Vec<Branch>,
    },
    /// `steps!` over a constant list.
    StepsFor {
        name: Name,
        bind: Id,
        list: Id,
        label: String,
        effect: Option<Policy>,
    },
    Recv {
        name: Name,
        bind: Id,
        topic: String,
        /// Hours that a limited one waits.
        hours: u32,
    },
    /// One arm of which comes about: what the others wait for never happens.
    Select {
        name: Name,
        bind: Id,
        arms: Vec<Arm>,
        wins: Id,
    },
    /// A step with a transaction and then a call.
    Tx {
        name: Name,
        bind: Id,
        /// The transaction, which another one may replace in its step.
        tx: Id,
        key: Option<Id>,
        booked: String,
        label: String,
        input: Expr,
    },
    /// An assignment to a field.
    SetField {
        var: Id,
        field: Id,
        to: Expr,
    },
    Sleep {
        name: Name,
    },
    Spawn {
        name: Name,
        bind: Id,
        input: Expr,
    },
    Wait {
        name: Name,
        bind: Id,
        handle: Id,
    },
    /// A call between two steps.
    Note {
        label: String,
        input: Expr,
    },
}

/// Hours of a limit that passes, and of one that does not.
pub(crate) const PASSES: u32 = 1;
pub(crate) const NEVER: u32 = 1_000_000;

impl Kind {
    /// The kinds, and what they are called.
    pub(crate) const ALL: [&str; 26] = [
        "local",
        "set",
        "step",
        "effect",
        "if",
        "for by value",
        "for by borrow",
        "for over a constant",
        "for over a range",
        "while",
        "call",
        "steps",
        "steps with an effect",
        "steps for",
        "steps for, each an effect",
        "recv",
        "recv with a limit that passes",
        "select with a message",
        "select with a time",
        "transaction",
        "transaction with a key",
        "field set",
        "sleep",
        "spawn",
        "wait",
        "note",
    ];

    pub(crate) fn text(&self) -> &'static str {
        match self {
            Kind::Local { .. } => "local",
            Kind::Set { .. } => "set",
            Kind::Step { effect: Some(_), .. } => "effect",
            Kind::Step { .. } => "step",
            Kind::If { .. } => "if",
            Kind::For { over: Over::Value { .. }, .. } => "for by value",
            Kind::For { over: Over::Borrow(_), .. } => "for by borrow",
            Kind::For { over: Over::Constant(_), .. } => "for over a constant",
            Kind::For { over: Over::Range(_), .. } => "for over a range",
            Kind::While { .. } => "while",
            Kind::Call { .. } => "call",
            Kind::Steps { branches, .. } if branches.iter().any(|branch| branch.effect.is_some()) => "steps with an effect",
            Kind::Steps { .. } => "steps",
            Kind::StepsFor { effect: Some(_), .. } => "steps for, each an effect",
            Kind::StepsFor { .. } => "steps for",
            Kind::Recv { hours, .. } if *hours == PASSES => "recv with a limit that passes",
            Kind::Recv { .. } => "recv",
            Kind::Select { arms, wins, .. } if arms.iter().any(|arm| arm.id == *wins && matches!(arm.on, On::Topic(_))) => {
                "select with a message"
            }
            Kind::Select { .. } => "select with a time",
            Kind::Tx { key: Some(_), .. } => "transaction with a key",
            Kind::Tx { .. } => "transaction",
            Kind::SetField { .. } => "field set",
            Kind::Sleep { .. } => "sleep",
            Kind::Spawn { .. } => "spawn",
            Kind::Wait { .. } => "wait",
            Kind::Note { .. } => "note",
        }
    }

    /// The blocks in it.
    pub(crate) fn blocks(&self) -> Vec<&Vec<Node>> {
        match self {
            Kind::If { then, otherwise, .. } => vec![then, otherwise],
            Kind::For { body, .. } | Kind::While { body, .. } => vec![body],
            Kind::Select { arms, .. } => arms.iter().map(|arm| &arm.body).collect(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn blocks_mut(&mut self) -> Vec<&mut Vec<Node>> {
        match self {
            Kind::If { then, otherwise, .. } => vec![then, otherwise],
            Kind::For { body, .. } | Kind::While { body, .. } => vec![body],
            Kind::Select { arms, .. } => arms.iter_mut().map(|arm| &mut arm.body).collect(),
            _ => Vec::new(),
        }
    }

    /// The variables that it declares, itself.
    pub(crate) fn binds(&self) -> Vec<Id> {
        match self {
            Kind::Local { bind, .. }
            | Kind::Call { bind, .. }
            | Kind::StepsFor { bind, .. }
            | Kind::Recv { bind, .. }
            | Kind::Select { bind, .. }
            | Kind::Tx { bind, .. }
            | Kind::Spawn { bind, .. }
            | Kind::Wait { bind, .. }
            | Kind::Step { bind: Some(bind), .. } => vec![*bind],
            Kind::Steps { branches, .. } => branches.iter().map(|branch| branch.bind).collect(),
            Kind::For { item, .. } => vec![*item],
            Kind::While { counter, .. } => vec![*counter],
            Kind::Set { .. } | Kind::SetField { .. } | Kind::Step { .. } | Kind::If { .. } | Kind::Sleep { .. } | Kind::Note { .. } => {
                Vec::new()
            }
        }
    }
}

impl Node {
    /// Whether it is the node of this id or has it inside.
    pub(crate) fn has(&self, id: Id) -> bool {
        self.id == id || self.kind.blocks().into_iter().flatten().any(|node| node.has(id))
    }

    /// All nodes, outer ones first.
    pub(crate) fn walk<'a>(&'a self, visit: &mut dyn FnMut(&'a Node)) {
        visit(self);
        for node in self.kind.blocks().into_iter().flatten() {
            node.walk(visit);
        }
    }
}

impl Function {
    pub(crate) fn nodes(&self) -> Vec<&Node> {
        let mut all = Vec::new();
        self.body.iter().for_each(|node| node.walk(&mut |node| all.push(node)));
        all
    }
}

impl Program {
    pub(crate) fn functions(&self) -> impl Iterator<Item = &Function> {
        std::iter::once(&self.work).chain(&self.helpers)
    }

    pub(crate) fn new_id(&mut self) -> Id {
        self.next += 1;
        self.next
    }

    pub(crate) fn new_var(&mut self, of: Type) -> Id {
        let id = self.new_id();
        self.vars.insert(id, Var { name: format!("v{id}"), was: None, of, wrap: Wrap::None });
        id
    }
}
