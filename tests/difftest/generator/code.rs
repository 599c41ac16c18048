//! Source text with holes: cut points are kept apart from the text around them and print in two ways.
use std::fmt::Write;

/// How the cut points print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flavour {
    /// As ordinary code of an `async fn`.
    Plain,
    /// As the macros of a fiber.
    Fiber,
}

/// A piece of a body.
#[derive(Debug, Clone)]
pub(crate) enum Code {
    /// The same in both flavours.
    Text(String),
    /// One after the other.
    Seq(Vec<Code>),
    /// In braces, each on a line of its own.
    Block(Vec<Code>),
    /// Several statements where one is expected.
    Lines(Vec<Code>),
    /// `step!`.
    Step { name: Option<String>, catch: bool, retry: bool, effect: Option<Effect>, body: Box<Code> },
    /// `call!` of a fiber of `children`.
    Call { callee: &'static str, argument: Box<Code> },
    /// `sleep!` for some milliseconds.
    Sleep { time: Box<Code> },
    /// `recv!` of a message that may not come, and what is taken instead.
    Recv { topic: Option<&'static str>, otherwise: Box<Code> },
    /// `select!`: topic, variable and code for each message, the time, and the code for when it is over.
    Select { arms: Vec<(&'static str, String, Code)>, last: Box<Last> },
    /// `spawn!` of a fiber of `children`; a plain child runs at once.
    Spawn { callee: &'static str, argument: Box<Code> },
    /// `wait!` of a child whose handle has this name.
    Wait(String),
    /// `steps!` over items: name, pattern, items, options, and what is done with each.
    Each { name: Option<String>, item: String, items: String, options: String, body: Box<Code> },
    /// `steps!` of two values, the place of the one that is taken, and whether its error is a value.
    Steps { branches: Box<[Code; 2]>, taken: usize, caught: bool },
    /// `#[fresh]` before a `let`.
    Fresh,
}

/// It never holds, as the plain rendering makes one attempt.
const RETRY: &str = "retry = forever::fiber::Retry::times(2).when(|why: &String| why.is_empty()), ";

/// The options of a step that is an effect.
#[derive(Debug, Clone)]
pub(crate) struct Effect {
    pub(crate) key: Option<Box<Code>>,
    pub(crate) on_unknown: Option<&'static str>,
    /// It never holds, as the plain rendering makes one attempt.
    pub(crate) retry: bool,
    pub(crate) op: bool,
}

impl Effect {
    fn write(&self, depth: usize, out: &mut String) {
        out.push_str("effect, ");
        if let Some(key) = &self.key {
            out.push_str("key = ");
            key.write(Flavour::Fiber, depth, out);
            out.push_str(", ");
        }
        if let Some(policy) = self.on_unknown {
            write!(out, "on_unknown = forever::ops::OnUnknown::{policy}, ").expect("a string takes everything");
        }
        if self.retry {
            out.push_str(RETRY);
        }
        if self.op {
            out.push_str("|op| { assert_eq!((op.id().len(), op.attempt()), (32, 1)); ");
        }
    }
}

impl Code {
    /// The text in one flavour, at a depth of indentation.
    pub(crate) fn print(&self, flavour: Flavour, depth: usize) -> String {
        let mut out = String::new();
        self.write(flavour, depth, &mut out);
        out
    }

    fn write(&self, flavour: Flavour, depth: usize, out: &mut String) {
        let fiber = flavour == Flavour::Fiber;
        match self {
            Code::Text(text) => out.push_str(text),
            Code::Seq(parts) => parts.iter().for_each(|part| part.write(flavour, depth, out)),
            Code::Lines(lines) => write_lines(lines, flavour, depth, out),
            Code::Block(lines) if lines.is_empty() => out.push_str("{}"),
            Code::Block(lines) => {
                out.push('{');
                new_line(depth + 1, out);
                write_lines(lines, flavour, depth + 1, out);
                new_line(depth, out);
                out.push('}');
            }
            Code::Step { name, catch, retry, effect, body } => {
                out.push_str(match (fiber, catch) {
                    (true, _) => "step!(",
                    (false, true) => "(async { Ok::<_, String>(",
                    (false, false) => "(",
                });
                if let (true, Some(name)) = (fiber, name) {
                    write!(out, "{name:?}, ").expect("a string takes everything");
                }
                if fiber && *catch {
                    out.push_str("catch, ");
                }
                if fiber && *retry {
                    out.push_str(RETRY);
                }
                let effect = effect.as_ref().filter(|_| fiber);
                if let Some(effect) = effect {
                    effect.write(depth, out);
                }
                body.write(flavour, depth, out);
                out.push_str(if effect.is_some_and(|effect| effect.op) { " })" } else { ")" });
                out.push_str(if !fiber && *catch { " }.await)" } else { "" });
            }
            Code::Call { callee, argument } => {
                let (open, close) = if fiber { ("call!(children::", "))") } else { ("children::plain_", ").await") };
                write!(out, "{open}{callee}({}", if fiber { "" } else { "io, " }).expect("a string takes everything");
                argument.write(flavour, depth, out);
                out.push_str(close);
            }
            Code::Sleep { time } => {
                out.push_str(if fiber { "sleep!(std::time::Duration::from_millis(u64::from(" } else { "drop((" });
                time.write(flavour, depth, out);
                out.push_str(if fiber { ")))" } else { "))" });
            }
            Code::Recv { topic, otherwise } => {
                match (fiber, topic.unwrap_or("message")) {
                    (true, topic) => write!(out, "(recv!({topic:?}, timeout = std::time::Duration::from_millis(1))"),
                    (false, topic) => write!(out, "(io.letter({topic:?})"),
                }
                .expect("a string takes everything");
                out.push_str(".unwrap_or(");
                otherwise.write(flavour, depth, out);
                out.push_str("))");
            }
            Code::Select { arms, last } => write_select(arms, last, flavour, depth, out),
            Code::Spawn { callee, argument } => {
                out.push_str(if fiber { "spawn!(children::" } else { "children::plain_" });
                out.push_str(callee);
                out.push_str(if fiber { "(" } else { "(io, " });
                argument.write(flavour, depth, out);
                out.push_str(if fiber { "))" } else { ").await" });
            }
            Code::Wait(handle) => {
                let (open, close) = if fiber { ("wait!(&", ").map_err(|why| why.reason().to_owned())") } else { ("", ".clone()") };
                write!(out, "{open}{handle}{close}").expect("a string takes everything");
            }
            Code::Each { name, item, items, options, body } => {
                let (open, close) = if fiber {
                    let name = name.as_ref().map_or(String::new(), |name| format!("{name:?}, "));
                    (format!("steps!({name}for {item} in {items}, {options}"), ")")
                } else {
                    (format!("{{ let mut all = Vec::new(); for {item} in {items} {{ all.push("), "); } all }")
                };
                out.push_str(&open);
                body.write(flavour, depth, out);
                out.push_str(close);
            }
            Code::Steps { branches, taken, caught } => {
                out.push_str(if fiber { "steps!(" } else { "(" });
                branches[0].write(flavour, depth, out);
                out.push_str(", ");
                branches[1].write(flavour, depth, out);
                let otherwise = if *caught { ".unwrap_or_else(|why| why.to_string().len() as u32)" } else { "" };
                write!(out, ").{taken}{otherwise}").expect("a string takes everything");
            }
            Code::Fresh => out.push_str(if fiber { "#[fresh] " } else { "" }),
        }
    }
}

/// The last arm of a `select!`: it is always ready.
#[derive(Debug, Clone)]
pub(crate) enum Last {
    /// The time, and the code for when it is over.
    Time { time: Code, late: Code },
    /// The handle of a child, the variable for its number, and the code that has it.
    Child { handle: String, name: String, ended: Code },
}

/// `select!`; in the plain flavour messages are there or never come.
fn write_select(arms: &[(&'static str, String, Code)], last: &Last, flavour: Flavour, depth: usize, out: &mut String) {
    let fiber = flavour == Flavour::Fiber;
    out.push_str(if fiber { "select! { " } else { "{ " });
    if let (Last::Time { time, .. }, false) = (last, fiber) {
        out.push_str("let time = ");
        time.write(flavour, depth, out);
        out.push_str("; ");
    }
    for (topic, name, body) in arms {
        if fiber {
            write!(out, "{name}: u32 = recv!({topic:?}) => ").expect("a string takes everything");
        } else {
            write!(out, "if let Some({name}) = io.letter({topic:?}) ").expect("a string takes everything");
        }
        body.write(flavour, depth, out);
        out.push_str(if fiber { ", " } else { " else " });
    }
    match last {
        Last::Time { time, late } if fiber => {
            out.push_str("_ = sleep!(std::time::Duration::from_millis(u64::from(");
            time.write(flavour, depth, out);
            out.push_str("))) => ");
            late.write(flavour, depth, out);
        }
        Last::Time { late, .. } => {
            out.push_str("{ let _: u32 = time; ");
            late.write(flavour, depth, out);
            out.push_str(" }");
        }
        Last::Child { handle, name, ended } => {
            let open = if fiber {
                format!("ended = wait!(&{handle}) => {{ let {name} = ended.map_err(|why| why.reason().to_owned())")
            } else {
                format!("{{ let {name} = {handle}.clone()")
            };
            write!(out, "{open}.unwrap_or_else(|why| why.len() as u32); ").expect("a string takes everything");
            ended.write(flavour, depth, out);
            out.push_str(" }");
        }
    }
    out.push_str(" }");
}

fn write_lines(lines: &[Code], flavour: Flavour, depth: usize, out: &mut String) {
    for (index, line) in lines.iter().enumerate() {
        if index > 0 {
            new_line(depth, out);
        }
        line.write(flavour, depth, out);
    }
}

fn new_line(depth: usize, out: &mut String) {
    out.push('\n');
    out.extend(std::iter::repeat_n("    ", depth));
}

impl From<&str> for Code {
    fn from(text: &str) -> Self {
        Code::Text(text.to_owned())
    }
}

impl From<String> for Code {
    fn from(text: String) -> Self {
        Code::Text(text)
    }
}

impl From<&String> for Code {
    fn from(text: &String) -> Self {
        Code::Text(text.clone())
    }
}

/// Pieces of text and code, one after the other.
macro_rules! code {
    ($($part:expr),* $(,)?) => { $crate::generator::code::Code::Seq(vec![$($crate::generator::code::Code::from($part)),*]) };
}
pub(crate) use code;
