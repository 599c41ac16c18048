//! Programs as Rust source.
use std::fmt::Write as _;

use super::program::{Arm, Branch, Expr, Field, Function, Kind, NEVER, Name, Node, On, Options, Over, Policy, Program, Type, Wrap};

/// The functions of a program, in a module.
pub(super) fn module(name: &str, program: &Program) -> String {
    let mut out = format!("mod {name} {{\n    use super::*;\n");
    for (id, list) in &program.lists {
        _ = writeln!(out, "    const C{id}: [i64; {}] = {list:?};", list.len());
    }
    for (id, fields) in &program.structs {
        out += &structure(*id, fields);
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

fn structure(id: u32, fields: &[Field]) -> String {
    let (mut declared, mut made, mut read) = (String::new(), String::new(), String::new());
    for Field { id, name, alias, default, maybe } in fields {
        if let Some(alias) = alias {
            _ = write!(declared, "#[serde(alias = {alias:?})] ");
        }
        declared += if *default { "#[serde(default)] " } else { "" };
        _ = write!(declared, "{name}: {}, ", if *maybe { "Option<i64>" } else { "i64" });
        let value = format!("mix({id}, &[number])");
        _ = write!(made, "{name}: {}, ", if *maybe { format!("maybe_of({value})") } else { value });
        _ = write!(read, "n(&self.{name}), ");
    }
    format!(
        "    #[derive(Debug, Clone, serde::Serialize, serde::Deserialize)]\n    struct S{id} {{ {declared}}}\n    impl S{id} {{\n        \
         fn of(number: i64) -> Self {{ S{id} {{ {made}}} }}\n    }}\n    impl Number for S{id} {{\n        \
         fn number(&self) -> i64 {{ mix(17, &[{read}]) }}\n    }}\n"
    )
}

fn function(ident: &str, function: &Function, program: &Program) -> String {
    let args: Vec<_> = function.args.iter().map(|arg| format!("{}: i64", program.vars[arg].name)).collect();
    let mut out = Out { text: format!("    #[fiber(name = {:?})]\n", function.name), program, depth: 2 };
    let context = if function.nodes().into_iter().any(|node| matches!(node.kind, Kind::Tx { .. })) { "ctx: &FiberContext, " } else { "" };
    _ = writeln!(out.text, "    pub(crate) async fn {ident}({context}io: Res<Io>, {}) -> anyhow::Result<i64> {{", args.join(", "));
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
        let of = match type_of(declared.of) {
            None => String::new(),
            Some(of) => match declared.wrap {
                Wrap::None => format!(": {of}"),
                Wrap::Caught => format!(": Result<{of}, StepError>"),
                Wrap::Limited => format!(": Option<{of}>"),
            },
        };
        let mutable = mutable || matches!(declared.of, Type::Struct(_));
        self.line(&format!("let {}{}{of} = {value};", if mutable { "mut " } else { "" }, declared.name));
    }

    fn arm(&mut self, arm: &Arm) {
        match &arm.on {
            On::Topic(topic) => self.line(&format!("{}: i64 = recv!({topic:?}) => {{", self.name(arm.bind).to_owned())),
            On::Hours(hours) => self.line(&format!("_ = sleep!({}) => {{", time(*hours))),
        }
        self.inner(&arm.body);
        let value = self.expr(&arm.value);
        self.line(&format!("    {value}"));
        self.line("},");
    }

    /// A `let` whose value takes lines.
    fn select(&mut self, name: &Name, bind: u32, arms: &[Arm]) {
        self.bind(bind, false, "select! {");
        let opened = self.text.trim_end().trim_end_matches(';').to_owned();
        self.text = format!("{opened}\n");
        self.depth += 1;
        let names = written(name);
        if !names.is_empty() {
            self.line(&names);
        }
        for arm in arms {
            self.arm(arm);
        }
        self.depth -= 1;
        self.line("};");
    }

    #[allow(clippy::too_many_lines, reason = "an arm for each kind")]
    fn node(&mut self, node: &Node) {
        match &node.kind {
            Kind::Local { bind, to } => {
                let value = self.expr(to);
                let value = made(self.program.vars[bind].of, &value);
                self.bind(*bind, true, &value);
            }
            Kind::Set { var, to } => {
                let (name, value) = (self.name(*var).to_owned(), self.expr(to));
                self.line(&format!("{name} = {value};"));
            }
            Kind::Step { name, bind, label, input, effect, options: Options { retry, timeout } } => {
                let of = bind.map_or(Type::Int, |bind| self.program.vars[&bind].of);
                let input = self.expr(input);
                let options = self::effect(*effect, of, label, &input);
                let catch = if bind.is_some_and(|bind| self.program.vars[&bind].wrap == Wrap::Caught) { "catch, " } else { "" };
                let retry = if *retry { "retry = Retry::times(2), " } else { "" };
                let timeout = if *timeout { "timeout = HOUR, " } else { "" };
                let body = made(of, &format!("io.num({label:?}, {input}).await?"));
                let step = format!("step!({}{options}{retry}{timeout}{catch}{body})", written(name));
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
                let options = self::effect(*effect, Type::Int, label, "mix(0, &[x])");
                let value = format!("steps!({}for x in C{list}, {options}io.num({label:?}, mix(0, &[x])).await?)", written(name));
                self.bind(*bind, false, &value);
            }
            Kind::Recv { name, bind, topic, hours } => {
                let is_limited = self.program.vars[bind].wrap == Wrap::Limited;
                let limit = if is_limited { format!(", timeout = {}", time(*hours)) } else { String::new() };
                let value = format!("recv!({topic:?}{}{limit})", behind(name));
                self.bind(*bind, false, &value);
            }
            Kind::Select { name, bind, arms, .. } => self.select(name, *bind, arms),
            Kind::Tx { name, bind, tx, key, booked, label, input } => {
                let input = self.expr(input);
                let key = key.map_or_else(String::new, |key| format!(".key({key})"));
                let booked = format!("there.booked({booked:?}, input)");
                let value = format!(
                    "step!({}{{ let (there, input) = (io.clone(), {input}); let number = if is_in_postgres() {{ \
                     ctx.postgres_transaction(\"t{tx}\", async |_| {booked}){key}.await? }} else {{ ctx.transaction(\"t{tx}\", move |_| {booked}){key}.await? }}; \
                     io.num({label:?}, number).await? }})",
                    written(name)
                );
                self.bind(*bind, false, &value);
            }
            Kind::SetField { var, field, to } => {
                let (name, value) = (self.name(*var).to_owned(), self.expr(to));
                let Type::Struct(of) = self.program.vars[var].of else { return };
                let Some(field) = self.program.structs[&of].iter().find(|there| there.id == *field) else { return };
                let value = if field.maybe { format!("Some({value})") } else { value };
                self.line(&format!("{name}.{} = {value};", field.name));
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
        let options = effect(branch.effect, Type::Int, &branch.label, &input);
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

fn type_of(of: Type) -> Option<String> {
    Some(match of {
        Type::Int | Type::Wide => "i64".to_owned(),
        Type::Text => "String".to_owned(),
        Type::List => "Vec<i64>".to_owned(),
        Type::Float => "f64".to_owned(),
        Type::Maybe => "Option<i64>".to_owned(),
        Type::Pair => "(i64, i64)".to_owned(),
        Type::Json => "serde_json::Value".to_owned(),
        Type::Either => "Either".to_owned(),
        Type::Struct(id) => format!("S{id}"),
        Type::Handle => return None,
    })
}

/// The function that makes a value of a number.
fn maker(of: Type) -> Option<String> {
    Some(match of {
        Type::Text => "text_of".to_owned(),
        Type::List => "list_of".to_owned(),
        Type::Wide => "wide_of".to_owned(),
        Type::Float => "float_of".to_owned(),
        Type::Maybe => "maybe_of".to_owned(),
        Type::Pair => "pair_of".to_owned(),
        Type::Json => "json_of".to_owned(),
        Type::Either => "either_of".to_owned(),
        Type::Struct(id) => format!("S{id}::of"),
        Type::Int | Type::Handle => return None,
    })
}

fn made(of: Type, number: &str) -> String {
    maker(of).map_or_else(|| number.to_owned(), |maker| format!("{maker}({number})"))
}

fn time(hours: u32) -> String {
    format!("std::time::Duration::from_secs(3600{})", if hours == NEVER { " * 1_000_000" } else { "" })
}

/// The options of an effect whose body is `io.num(label, input)`, made a value of a type.
fn effect(policy: Option<Policy>, of: Type, label: &str, input: &str) -> String {
    let made = maker(of).map_or_else(String::new, |maker| format!(".map(|found| found.map({maker}))"));
    match policy {
        None => String::new(),
        Some(Policy::Park) => "effect, ".to_owned(),
        Some(Policy::Check) => format!("effect, on_unknown = OnUnknown::check(async |_| io.found_num({label:?}, {input}){made}), "),
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
