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
    Step { name: Option<String>, effect: Option<Effect>, body: Box<Code> },
    /// `call!` of a fiber of `children`.
    Call { callee: &'static str, argument: Box<Code> },
    /// `sleep!` for some milliseconds.
    Sleep { time: Box<Code> },
    /// `recv!` of a message that does not come, and what is taken instead.
    Recv { otherwise: Box<Code> },
    /// `steps!` of two values, and the place of the one that is taken.
    Steps { branches: Box<[Code; 2]>, taken: usize },
    /// `#[fresh]` before a `let`.
    Fresh,
}

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
            write!(out, "on_unknown = forever::OnUnknown::{policy}, ").expect("a string takes everything");
        }
        if self.retry {
            out.push_str("retry = forever::Retry::times(2).when(|why: &String| why.is_empty()), ");
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
            Code::Step { name, effect, body } => {
                out.push_str(if fiber { "step!(" } else { "(" });
                if let (true, Some(name)) = (fiber, name) {
                    write!(out, "{name:?}, ").expect("a string takes everything");
                }
                let effect = effect.as_ref().filter(|_| fiber);
                if let Some(effect) = effect {
                    effect.write(depth, out);
                }
                body.write(flavour, depth, out);
                out.push_str(if effect.is_some_and(|effect| effect.op) { " })" } else { ")" });
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
            Code::Recv { otherwise } => {
                let (open, close) = if fiber {
                    ("(recv!(\"message\", timeout = std::time::Duration::from_millis(1)).unwrap_or(", "))")
                } else {
                    ("(None::<u32>.unwrap_or(", "))")
                };
                out.push_str(open);
                otherwise.write(flavour, depth, out);
                out.push_str(close);
            }
            Code::Steps { branches, taken } => {
                out.push_str(if fiber { "steps!(" } else { "(" });
                branches[0].write(flavour, depth, out);
                out.push_str(", ");
                branches[1].write(flavour, depth, out);
                write!(out, ").{taken}").expect("a string takes everything");
            }
            Code::Fresh => out.push_str(if fiber { "#[fresh] " } else { "" }),
        }
    }
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
