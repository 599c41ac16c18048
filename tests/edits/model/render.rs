//! Programs as Rust source.
use std::fmt::Write as _;

use super::program::{Branch, Expr, Function, Kind, Name, Node, Options, Over, Policy, Program, Type};

/// The functions of a program, in a module.
pub(super) fn module(name: &str, program: &Program) -> String {
    let mut out = format!("mod {name} {{\n    use super::*;\n");
    for (id, list) in &program.lists {
        _ = writeln!(out, "    const C{id}: [i64; {}] = {list:?};", list.len());
    }
    for (at, function) in program.functions().enumerate() {
        out += &self::function(&if at == 0 { "work".to_owned() } else { format!("helper_{at}") }, function, program);
    }
    out + "}\n"
}

/// What makes a `Version` of a module.
pub(super) fn entry(name: &str, program: &Program) -> String {
    let args: Vec<_> = program.work.args.iter().map(|arg| format!("argument({arg})")).collect();
    format!("Version::of::<{name}::work, {name}::helper_1, {name}::helper_2>(|| {name}::work({}))", args.join(", "))
}

fn function(ident: &str, function: &Function, program: &Program) -> String {
    let args: Vec<_> = function.args.iter().map(|arg| format!("{}: i64", program.vars[arg].name)).collect();
    let mut out = Out { text: format!("    #[fiber(name = {:?})]\n", function.name), program, depth: 2 };
    _ = writeln!(out.text, "    pub(crate) async fn {ident}(io: Res<Io>, {}) -> anyhow::Result<i64> {{", args.join(", "));
    out.block(&function.body);
    let result = out.expr(&function.result);
    out.line(&format!("io.note(\"end\", {result}).await;"));
    out.line(&format!("Ok({result})"));
    out.text + "    }\n"
}

struct Out<'a> {
    text: String,
    program: &'a Program,
    depth: usize,
}

impl Out<'_> {
    fn line(&mut self, line: &str) {
        _ = writeln!(self.text, "{}{line}", "    ".repeat(self.depth));
    }

    fn block(&mut self, nodes: &[Node]) {
        for node in nodes {
            self.node(node);
        }
    }

    fn inner(&mut self, nodes: &[Node]) {
        self.depth += 1;
        self.block(nodes);
        self.depth -= 1;
    }

    fn name(&self, var: u32) -> &str {
        &self.program.vars[&var].name
    }

    fn expr(&self, expr: &Expr) -> String {
        let reads: Vec<_> = expr.reads.iter().map(|var| format!("n(&{})", self.name(*var))).collect();
        format!("mix({}, &[{}])", expr.constant, reads.join(", "))
    }

    /// A `let`, with its `#[was]` before it.
    fn bind(&mut self, var: u32, mutable: bool, value: &str) {
        let declared = self.program.vars[&var].clone();
        if let Some(was) = &declared.was {
            self.line(&format!("#[was = {was:?}]"));
        }
        let of = match declared.of {
            Type::Int => ": i64",
            Type::Text => ": String",
            Type::List => ": Vec<i64>",
            Type::Handle => "",
        };
        self.line(&format!("let {}{}{of} = {value};", if mutable { "mut " } else { "" }, declared.name));
    }

    fn node(&mut self, node: &Node) {
        match &node.kind {
            Kind::Local { bind, to } => {
                let value = self.expr(to);
                let value = match self.program.vars[bind].of {
                    Type::Text => format!("text_of({value})"),
                    Type::List => format!("list_of({value})"),
                    Type::Int | Type::Handle => value,
                };
                self.bind(*bind, true, &value);
            }
            Kind::Set { var, to } => {
                let (name, value) = (self.name(*var).to_owned(), self.expr(to));
                self.line(&format!("{name} = {value};"));
            }
            Kind::Step { name, bind, label, input, effect, options: Options { retry, timeout } } => {
                let call = match bind.map_or(Type::Int, |bind| self.program.vars[&bind].of) {
                    Type::Text => "text",
                    Type::List => "list",
                    Type::Int | Type::Handle => "num",
                };
                let input = self.expr(input);
                let options = self::effect(*effect, call, label, &input);
                let retry = if *retry { "retry = Retry::times(2), " } else { "" };
                let timeout = if *timeout { "timeout = HOUR, " } else { "" };
                let step = format!("step!({}{options}{retry}{timeout}io.{call}({label:?}, {input}).await?)", written(name));
                match bind {
                    Some(bind) => self.bind(*bind, false, &step),
                    None => self.line(&format!("{step};")),
                }
            }
            Kind::If { on, then, otherwise } => {
                let on = self.expr(on);
                self.line(&format!("if {on} % 2 == 0 {{"));
                self.inner(then);
                self.line("} else {");
                self.inner(otherwise);
                self.line("}");
            }
            Kind::For { over, reversed, item, body } => {
                let over = self.over(over, *reversed);
                self.line(&format!("for {} in {over} {{", self.name(*item)));
                self.inner(body);
                self.line("}");
            }
            Kind::While { counter, rounds, body } => {
                let name = self.name(*counter).to_owned();
                self.bind(*counter, true, "0");
                self.line(&format!("while {name} < {rounds} {{"));
                self.depth += 1;
                self.line(&format!("{name} += 1;"));
                self.depth -= 1;
                self.inner(body);
                self.line("}");
            }
            Kind::Call { name, bind, input, helper } => {
                let input = self.expr(input);
                self.bind(*bind, false, &format!("call!({}helper_{}({input}))?", written(name), helper + 1));
            }
            Kind::Steps { name, branches } => {
                let binds: Vec<_> = branches.iter().map(|branch| self.name(branch.bind)).collect();
                let bodies: Vec<_> = branches.iter().map(|branch| self.branch(branch)).collect();
                self.line(&format!("let ({}) = steps!({}{});", binds.join(", "), written(name), bodies.join(", ")));
            }
            Kind::StepsFor { name, bind, list, label, effect } => {
                let options = self::effect(*effect, "num", label, "mix(0, &[x])");
                let value = format!("steps!({}for x in C{list}, {options}io.num({label:?}, mix(0, &[x])).await?)", written(name));
                self.bind(*bind, false, &value);
            }
            Kind::Recv { name, bind, topic } => {
                let value = format!("recv!({topic:?}{})", behind(name));
                self.bind(*bind, false, &value);
            }
            Kind::Sleep { name } => self.line(&format!("sleep!({}std::time::Duration::from_secs(3600));", written(name))),
            Kind::Spawn { name, bind, input } => {
                let value = format!("spawn!({}child({}))", written(name), self.expr(input));
                self.bind(*bind, false, &value);
            }
            Kind::Wait { name, bind, handle } => {
                let value = format!("wait!({}&{})?", written(name), self.name(*handle));
                self.bind(*bind, false, &value);
            }
            Kind::Note { label, input } => {
                let input = self.expr(input);
                self.line(&format!("io.note({label:?}, {input}).await;"));
            }
        }
    }

    fn branch(&self, branch: &Branch) -> String {
        let input = self.expr(&branch.input);
        let options = effect(branch.effect, "num", &branch.label, &input);
        let body = format!("io.num({:?}, {input}).await?", branch.label);
        let is_bare = branch.name == Name::default() && branch.effect.is_none();
        if is_bare { body } else { format!("step!({}{options}{body})", written(&branch.name)) }
    }

    fn over(&self, over: &Over, reversed: bool) -> String {
        match over {
            Over::Value { list, cloned } => {
                let list = format!("{}{}", self.name(*list), if *cloned { ".clone()" } else { "" });
                if reversed { format!("{list}.into_iter().rev()") } else { list }
            }
            Over::Borrow(list) if reversed => format!("{}.iter().rev()", self.name(*list)),
            Over::Borrow(list) => format!("&{}", self.name(*list)),
            Over::Constant(list) if reversed => format!("C{list}.iter().rev()"),
            Over::Constant(list) => format!("C{list}.iter()"),
            Over::Range(end) if reversed => format!("(0..{end}i64).rev()"),
            Over::Range(end) => format!("0..{end}i64"),
        }
    }
}

/// The options of an effect whose body is `io.call(label, input)`.
fn effect(policy: Option<Policy>, call: &str, label: &str, input: &str) -> String {
    match policy {
        None => String::new(),
        Some(Policy::Park) => "effect, ".to_owned(),
        Some(Policy::Check) => format!("effect, on_unknown = OnUnknown::check(async |_| io.found_{call}({label:?}, {input})), "),
    }
}

/// A name and its `was`, in front of the rest.
fn written(name: &Name) -> String {
    let literal = name.literal.as_ref().map_or_else(String::new, |literal| format!("{literal:?}, "));
    let was = name.was.as_ref().map_or_else(String::new, |was| format!("was = {was:?}, "));
    literal + &was
}

/// The same, as `recv!` takes it.
fn behind(name: &Name) -> String {
    let literal = name.literal.as_ref().map_or_else(String::new, |literal| format!(", name = {literal:?}"));
    let was = name.was.as_ref().map_or_else(String::new, |was| format!(", was = {was:?}"));
    literal + &was
}
