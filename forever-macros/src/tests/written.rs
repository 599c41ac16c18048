//! Generated functions: all of the language's statements, expressions and patterns, with cut points
//! everywhere, mostly in valid places and sometimes in invalid ones.
use super::dice::Dice;

/// Generates functions.
pub(crate) struct Author<'d, 'b> {
    dice: &'d mut Dice<'b>,
    /// Remaining depth for nested expressions and blocks.
    depth: usize,
    names: usize,
}

const NAMES: &[&str] = &["x", "y", "plan", "v", "text", "n", "opt", "way", "io", "r#type", "self", "x_2", "at", "start"];
const TYPES: &[&str] =
    &["u32", "Vec<u32>", "Option<String>", "(u8, Plan)", "[u8; 4]", "_", "&'a str", "Box<dyn Fn(u32) -> u32 + Send>", "T", "impl Sized"];
const LITERALS: &[&str] = &["1", "0.5", "\"a\"", "'c'", "b\"x\"", "true", "()", "-1", "r#\"{x}\"#", "1_000u64", "c\"x\""];
const BINARY: &[&str] = &["+", "-", "*", "==", "<", "&&", "||", "&", "<<", "..", "..="];
const ASSIGN: &[&str] = &["=", "+=", "|=", ">>="];

impl<'d, 'b> Author<'d, 'b> {
    pub(crate) fn new(dice: &'d mut Dice<'b>) -> Self {
        Author { dice, depth: 6, names: 0 }
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.dice.below(one_in) == one_in - 1
    }

    /// Generates something that may nest, or something short at the largest depth.
    fn deeper(&mut self, short: &str, f: impl FnOnce(&mut Self) -> String) -> String {
        if self.depth == 0 {
            return short.to_owned();
        }
        self.depth -= 1;
        let text = f(self);
        self.depth += 1;
        text
    }

    fn list(&mut self, most: usize, between: &str, mut f: impl FnMut(&mut Self) -> String) -> String {
        let count = self.dice.below(most + 1);
        (0..count).map(|_| f(self)).collect::<Vec<_>>().join(between)
    }

    fn name(&mut self) -> String {
        if self.chance(3) && self.names > 0 {
            return format!("x{}", self.dice.below(self.names));
        }
        self.dice.one_of(NAMES).to_owned()
    }

    /// A name for a new variable, which may be one that exists.
    fn fresh(&mut self) -> String {
        if self.chance(2) {
            self.names += 1;
            return format!("x{}", self.names - 1);
        }
        self.dice.one_of(&NAMES[..8]).to_owned()
    }

    /// The attribute's arguments.
    pub(crate) fn options(&mut self) -> String {
        if !self.chance(8) {
            return String::new();
        }
        let options =
            ["name = \"a.b\"", "version = 2", "max_recoveries = 5", "migrate = a::b", "crate = c", "nam = 1", "version = \"x\"", "name"];
        self.list(4, ", ", |a| a.dice.one_of(&options).to_owned())
    }

    /// A function, without its attribute.
    pub(crate) fn function(&mut self) -> String {
        let attributes = self.list(1, " ", |a| a.dice.one_of(&["#[doc = \"x\"]", "#[allow(unused)]", "#[cfg(a)]", "#[inline]"]).to_owned());
        let head = if self.chance(30) { "fn" } else { "async fn" };
        let before = self.dice.one_of(&["", "pub", "pub(crate)", "", "", "unsafe"]);
        let generics = self.dice.one_of(&["", "", "", "<T: Task>", "<'a, T>", "<T, const N: usize>", "<T = u32>"]);
        let bounds = if generics.contains('T') && self.chance(2) { "where T: Task + Send," } else { "" };
        let parameters = [
            "x: u32",
            "mut v: Vec<u32>",
            "plan: Plan",
            "(y, Some(n)): (u32, Option<u32>)",
            "Way { text, at: [n, .., last] }: Way",
            "_: T",
            "opt: Option<String>",
            "#[cfg(a)] y: u8",
            "text: &str",
            "x: impl Fn()",
            "&self",
        ];
        let given = if self.chance(3) { "ctx: &FiberContext, " } else { "" };
        let io = if self.chance(2) { "io: Res<Io>, " } else { "" };
        let some = if self.chance(12) { parameters.len() } else { 7 };
        let arguments = self.list(4, ", ", |a| a.dice.one_of(&parameters[..some]).to_owned());
        let output = self.dice.one_of(&["Result<u32, E>", "anyhow::Result<()>", "Result<T, Box<dyn Error>>", "anyhow::Result<impl Sized>"]);
        let arrow = if self.chance(40) { String::new() } else { format!("-> {output}") };
        let body = self.block();
        format!("{attributes} {before} {head} f{generics}({given}{io}{arguments}) {arrow} {bounds} {body}")
    }

    fn block(&mut self) -> String {
        self.deeper("{}", |a| {
            let statements = a.list(5, " ", Self::statement);
            let last = if a.chance(2) { a.expression() } else { String::new() };
            format!("{{ {statements} {last} }}")
        })
    }

    fn statement(&mut self) -> String {
        match self.dice.below(30) {
            0..=6 => format!("let {} = {};", self.binding(), self.expression()),
            7 => format!("let {}: {} = {};", self.fresh(), self.dice.one_of(TYPES), self.expression()),
            8 => format!("let {} = {} else {{ {} }};", self.pattern(), self.scrutinee(), self.leaves()),
            9 => format!("let {};", self.fresh()),
            10 => format!("#[fresh] let {} = {};", self.fresh(), self.expression()),
            11 => format!("#[{}] {}", self.dice.one_of(&["cfg(a)", "allow(unused)", "fresh"]), self.statement_deeper()),
            12 => format!("{} {} {};", self.place(), self.dice.one_of(ASSIGN), self.expression()),
            13 => format!("{};", self.leaves()),
            14 => self.item(),
            15..=20 => format!("{};", self.cut()),
            21..=26 => self.control(),
            27 => format!("{}!{{ {} }}", self.dice.one_of(&["println", "my_macro", "tokio::select"]), self.arguments()),
            _ => format!("{};", self.expression()),
        }
    }

    fn statement_deeper(&mut self) -> String {
        self.deeper(";", Self::statement)
    }

    fn item(&mut self) -> String {
        match self.dice.below(7) {
            0 => "use a::b as c;".to_owned(),
            1 => "struct Inner<'a>(&'a str);".to_owned(),
            2 => "const N: usize = 3;".to_owned(),
            3 => format!("fn inner(x: u32) -> u32 {}", self.block()),
            4 => format!("macro_rules! local {{ ($e:expr) => {{ {} }} }}", self.expression()),
            5 => format!("impl Inner<'_> {{ async fn go(&self) {} }}", self.block()),
            _ => format!("static X: u32 = {};", self.expression()),
        }
    }

    fn control(&mut self) -> String {
        let label = self.dice.one_of(&["", "", "", "'a:", "'b:"]);
        match self.dice.below(8) {
            0 => format!("if {} {}", self.condition(), self.block()),
            1 => format!("if {} {} else {}", self.condition(), self.block(), self.block()),
            2 => format!("if {} {} else if {} {} else {}", self.condition(), self.block(), self.condition(), self.block(), self.block()),
            3 => self.matching(),
            4 => format!("{label} loop {}", self.block()),
            5 => format!("{label} while {} {}", self.condition(), self.block()),
            6 => format!("{label} for {} in {} {}", self.pattern(), self.scrutinee(), self.block()),
            _ => format!("{label} {}", self.block()),
        }
    }

    fn matching(&mut self) -> String {
        let scrutinee = self.scrutinee();
        let arms = self.list(4, " ", |a| {
            let guard = if a.chance(4) { format!("if {}", a.condition()) } else { String::new() };
            let body = if a.chance(2) { a.block() } else { format!("{},", a.expression()) };
            format!("{} {guard} => {body}", a.pattern())
        });
        format!("match {scrutinee} {{ {arms} }}")
    }

    /// A condition, which may be a chain.
    fn condition(&mut self) -> String {
        match self.dice.below(5) {
            0 => format!("let {} = {}", self.pattern(), self.scrutinee()),
            1 => format!("let {} = {} && {}", self.pattern(), self.scrutinee(), self.scrutinee()),
            2 => format!("{} && let {} = {}", self.scrutinee(), self.pattern(), self.scrutinee()),
            _ => self.scrutinee(),
        }
    }

    /// An expression that is not taken for the beginning of a block.
    fn scrutinee(&mut self) -> String {
        match self.dice.below(4) {
            0 => self.place(),
            1 => format!("&{}", self.place()),
            2 => self.cut(),
            _ => format!("({})", self.expression()),
        }
    }

    fn leaves(&mut self) -> String {
        match self.dice.below(9) {
            0 => "return Ok(1)".to_owned(),
            1 => format!("return {}", self.expression()),
            2 => "break".to_owned(),
            3 => "continue".to_owned(),
            4 => "break 'a".to_owned(),
            5 => format!("break 'a {}", self.expression()),
            6 => "continue 'b".to_owned(),
            7 => "panic!(\"{x}\")".to_owned(),
            _ => "anyhow::bail!(\"no {}\", n)".to_owned(),
        }
    }

    fn place(&mut self) -> String {
        let name = self.name();
        match self.dice.below(6) {
            0 => format!("{name}.title"),
            1 => format!("{name}[{}]", self.deeper("0", Self::expression)),
            2 => format!("{name}.0.rest"),
            3 => format!("(*{name})"),
            _ => name,
        }
    }

    fn arguments(&mut self) -> String {
        self.list(3, ", ", Self::expression)
    }

    fn expression(&mut self) -> String {
        self.deeper("x", |a| match a.dice.below(38) {
            0..=3 => a.name(),
            4 | 5 => a.dice.one_of(LITERALS).to_owned(),
            6..=12 => a.cut(),
            13 => format!("{}({})", a.dice.one_of(&["f", "Some", "io::go", "Vec::<u32>::from"]), a.arguments()),
            14 => format!("{}.{}({})", a.place(), a.dice.one_of(&["push", "len", "iter().rev().map", "go::<T>"]), a.arguments()),
            15 => a.place(),
            16 => format!("({} {} {})", a.expression(), a.dice.one_of(BINARY), a.expression()),
            17 => format!("{}({})", a.dice.one_of(&["!", "-", "*", "&", "&mut "]), a.expression()),
            18 => format!("&{}{}", a.dice.one_of(&["", "mut ", "raw const "]), a.place()),
            19 => format!("({}) as u64", a.expression()),
            20 => format!("({}, {})", a.expression(), a.expression()),
            21 => format!("[{}]", a.arguments()),
            22 => format!("[{}; 3]", a.expression()),
            23 => format!("Plan {{ title: {}, text, ..{} }}", a.expression(), a.expression()),
            24..=26 => a.control(),
            27 => format!("{}|{}| {}", a.dice.one_of(&["", "move ", "async ", "async move "]), a.pattern(), a.expression()),
            28 => format!("{} {}", a.dice.one_of(&["async", "async move", "unsafe", "const"]), a.block()),
            29 => format!("{}.await", a.expression()),
            30 => format!("({})?", a.expression()),
            31 => format!("{}.await?", a.place()),
            32 => format!("{}!({})", a.dice.one_of(&["vec", "format", "matches", "json"]), a.arguments()),
            33 => format!(
                "format!({}, {})",
                a.dice.one_of(&["\"{x} {y:>n$} {}\"", "\"{plan:?}\"", "\"{{\"", "\"{v.title}\"", "\"{\""]),
                a.arguments()
            ),
            34 => a.leaves(),
            35 => format!("{} = {}", a.place(), a.expression()),
            36 => format!("{}..", a.place()),
            _ => format!("{{ let {} = {}; {} }}", a.binding(), a.expression(), a.name()),
        })
    }

    fn cut(&mut self) -> String {
        match self.dice.below(22) {
            0..=9 => self.step(),
            10 => format!("call!({})", self.invocation()),
            11 => format!("spawn!({})", self.invocation()),
            12 => format!("sleep!({})", self.arguments()),
            13 => format!("sleep_until!({})", self.expression()),
            14 => format!("recv!({}{})", self.dice.one_of(&["\"topic\"", "topic", ""]), self.timeout()),
            20 => format!("try_recv!({})", self.dice.one_of(&["\"topic\"", "topic", "[\"a\", \"b\"]", ""])),
            21 => format!("close!({})", self.dice.one_of(&["\"topic\"", "topic", "[\"a\", \"b\"]", ""])),
            15 => format!("wait!({})", self.arguments()),
            16 => format!("wait_all!({})", self.expression()),
            17 => format!("steps!({})", self.arguments()),
            18 => {
                let limit =
                    self.dice.one_of(&["", "limit = 8,", "limit = n,", "limit,", "catch,", "effect, limit = 2,", "retry = r, key = n,"]);
                format!("steps!(for {} in {}, {limit} {})", self.pattern(), self.scrutinee(), self.expression())
            }
            _ => format!("forever::step!({})", self.expression()),
        }
    }

    fn invocation(&mut self) -> String {
        if self.chance(8) {
            self.expression()
        } else {
            format!("{}({})", self.dice.one_of(&["child", "a::child", "child::<T>"]), self.arguments())
        }
    }

    fn timeout(&mut self) -> String {
        if self.chance(3) { format!(", timeout = {}", self.expression()) } else { String::new() }
    }

    fn step(&mut self) -> String {
        let mut parts = Vec::new();
        if self.chance(3) {
            let name = self.dice.one_of(&["\"search\"", "\"store\"", "\"\"", "\"a\\nb\"", "\"search #2\""]);
            parts.push(name.to_owned());
        }
        if self.chance(4) {
            parts.push("effect".to_owned());
        }
        if self.chance(6) {
            parts.push("catch".to_owned());
        }
        if self.chance(3) {
            let count = self.dice.below(3);
            for _ in 0..count {
                let option = match self.dice.below(7) {
                    0 => format!("retry = {}", self.expression()),
                    1 => format!("timeout = {}", self.expression()),
                    2 => format!("key = {}", self.expression()),
                    3 => format!("on_unknown = OnUnknown::check(async |op| {})", self.expression()),
                    4 => "on_unknown = OnUnknown::Park".to_owned(),
                    5 => format!("was = {}", self.dice.one_of(&["\"old\"", "old", "\"search\""])),
                    _ => self.dice.one_of(&["store = x", "retry", "effect = 1", "was", "key"]).to_owned(),
                };
                parts.push(option);
            }
        }
        let op = self.dice.one_of(&["", "", "", "", "|op| ", "|_| ", "|(a, b)| ", "move |op| "]);
        parts.push(format!("{op}{}", if self.chance(2) { self.expression() } else { self.block() }));
        format!("step!({})", parts.join(", "))
    }

    /// A pattern that always matches, mostly.
    fn binding(&mut self) -> String {
        match self.dice.below(8) {
            0 => format!("mut {}", self.fresh()),
            1 => format!("({}, {})", self.fresh(), self.fresh()),
            2 => self.pattern(),
            3 => "_".to_owned(),
            4 => format!("ref {}", self.fresh()),
            _ => self.fresh(),
        }
    }

    fn pattern(&mut self) -> String {
        self.deeper("_", |a| match a.dice.below(16) {
            0..=4 => a.fresh(),
            5 => "_".to_owned(),
            6 => format!("mut {}", a.fresh()),
            7 => format!("{}{}", a.dice.one_of(&["ref ", "ref mut ", "&", "&mut "]), a.fresh()),
            8 => format!("Some({})", a.pattern()),
            9 => format!("({}, ..)", a.pattern()),
            10 => format!("Plan {{ title: {}, ref text, .. }}", a.pattern()),
            11 => format!("[{}, rest @ .., {}]", a.pattern(), a.pattern()),
            12 => {
                let name = a.fresh();
                format!("(A({name}) | B({name}))")
            }
            13 => format!("{} @ {}", a.fresh(), a.dice.one_of(&["1..=9", "Some(_)", "0", "'a'..='z'"])),
            14 => a.dice.one_of(&["None", "way::N", "1", "\"x\"", "const { 3 }", "..5"]).to_owned(),
            _ => format!("{}!({})", a.dice.one_of(&["pat", "step"]), a.fresh()),
        })
    }
}
