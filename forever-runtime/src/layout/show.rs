//! A layout for people: as a table, and as a graph.
use std::fmt::{self, Write as _};

use crate::frame::machine::CutKind;
use crate::layout::spec::{Layout, Step};

/// A table with a line for each step and each local that it keeps. It changes only when the layout
/// does, so it can be compared as text.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.fiber, self.arguments.join(", "))?;
        if self.version != 0 {
            write!(f, ", version {}", self.version)?;
        }
        write!(f, ", begins at {}", self.numbers(&self.first))?;
        if !self.secrets.is_empty() {
            write!(f, ", secret: {}", self.secrets.join(", "))?;
        }
        writeln!(f)?;
        if self.steps.is_empty() {
            return Ok(());
        }
        let mut rows = vec![["#", "name", "kind", "next", "keeps", "because"].map(str::to_owned)];
        for (place, step) in self.steps.iter().enumerate() {
            let kind = if step.effect { format!("{}, effect", step.kind.word()) } else { step.kind.word().to_owned() };
            let mut head = [(place + 1).to_string(), title(step), kind, self.numbers(&step.next)];
            if step.keeps.is_empty() {
                let [number, name, kind, next] = head;
                rows.push([number, name, kind, next, "nothing".to_owned(), String::new()]);
                continue;
            }
            for kept in &step.keeps {
                let [number, name, kind, next] = std::mem::take(&mut head);
                let local = if kept.result { format!("{} (its value)", kept.name) } else { kept.name.clone() };
                rows.push([number, name, kind, next, local, kept.why.clone()]);
            }
        }
        let mut widths = [0; 6];
        for row in &rows {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        for row in rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(widths) {
                write!(line, "{cell:width$}  ")?;
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

fn title(step: &Step) -> String {
    match &step.was {
        Some(was) => format!("{} (was {was})", step.name),
        None => step.name.clone(),
    }
}

impl Layout {
    /// The steps as a [Mermaid](https://mermaid.js.org/syntax/flowchart.html) flowchart.
    ///
    /// Calls have a double frame, waits are rounded.
    pub fn mermaid(&self) -> String {
        let mut nodes = format!("flowchart TD\n    start([\"{}\"])\n", label(&self.fiber));
        let mut edges = self.edges("start", &self.first);
        for (place, step) in self.steps.iter().enumerate() {
            let name = label(&step.name);
            let number = place + 1;
            let node = match step.kind {
                CutKind::Step | CutKind::Steps | CutKind::Pending => format!("    s{number}[\"{name}\"]\n"),
                CutKind::Call | CutKind::Spawn => format!("    s{number}[[\"{name}\"]]\n"),
                CutKind::Sleep | CutKind::Recv | CutKind::Wait | CutKind::Select => format!("    s{number}(\"{name}\")\n"),
            };
            nodes += &node;
            edges += &self.edges(&format!("s{number}"), &step.next);
        }
        // `end` is a word of the language, so the node has another name.
        nodes += "    finish([\"end\"])\n";
        nodes + &edges
    }

    fn edges(&self, from: &str, to: &[Option<String>]) -> String {
        to.iter()
            .map(|name| match self.number(name.as_deref()) {
                Some(number) => format!("    {from} --> s{number}\n"),
                None => format!("    {from} --> finish\n"),
            })
            .collect()
    }

    /// The number that a step has in the table, from 1; `None` for the end.
    fn number(&self, name: Option<&str>) -> Option<usize> {
        self.steps.iter().position(|step| Some(step.name.as_str()) == name).map(|place| place + 1)
    }

    fn numbers(&self, names: &[Option<String>]) -> String {
        let numbers: Vec<_> =
            names.iter().map(|name| self.number(name.as_deref()).map_or_else(|| "end".to_owned(), |n| n.to_string())).collect();
        numbers.join(", ")
    }
}

/// Text inside a quoted label: everything that Mermaid, Markdown or HTML could take for its own is
/// written as an entity.
fn label(text: &str) -> String {
    let mut label = String::new();
    for c in text.chars() {
        match c {
            _ if c.is_control() => label.push(' '),
            ' ' | '_' | '-' | '.' | ',' => label.push(c),
            _ if c.is_ascii_punctuation() => {
                label.push('#');
                label.push_str(&u32::from(c).to_string());
                label.push(';');
            }
            _ => label.push(c),
        }
    }
    label
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::machine::{Cut, END, Local, LocalRole, Machine};

    const fn local(name: &'static str, result: bool, why: &'static str) -> Local {
        Local { name, of: 1, was: None, result, role: LocalRole::Value, why }
    }

    static MACHINE: Machine = Machine {
        name: "research",
        version: 2,
        max_recoveries: None,
        arguments: &["topic"],
        cuts: &[
            Cut {
                name: "plan",
                explicit: false,
                of: 1,
                body: "",
                was: None,
                kind: CutKind::Step,
                effect: false,
                decides: false,
                wraps: "",
                locals: &[local("topic", false, "used in `Report`"), local("plan", true, "looped over after it")],
                branches: &[],
                topics: &[],
                next: &[1, END],
                line: 3,
            },
            Cut {
                name: "say \"hi\" #2; <b>`x`",
                explicit: true,
                of: 1,
                body: "",
                was: Some("greet"),
                kind: CutKind::Call,
                effect: false,
                decides: false,
                wraps: "",
                locals: &[],
                branches: &[],
                topics: &[],
                next: &[1, END],
                line: 9,
            },
        ],
        first: &[0],
        topics: &[],
        migrate: None,
        secrets: &[],
        source: None,
    };

    #[test]
    fn the_table_shows_every_step_and_why_its_locals_are_kept() {
        let table = Layout::of(&MACHINE).to_string();
        let expected = "\
research(topic), version 2, begins at 1
#  name                             kind  next    keeps             because
1  plan                             step  2, end  topic             used in `Report`
                                                  plan (its value)  looped over after it
2  say \"hi\" #2; <b>`x` (was greet)  call  2, end  nothing
";
        assert_eq!(table, expected, "\n{table}");
    }

    #[test]
    fn the_table_of_a_function_without_steps_says_so() {
        let machine = Machine { cuts: &[], first: &[END], version: 0, arguments: &[], ..MACHINE };
        assert_eq!(Layout::of(&machine).to_string(), "research(), begins at end\n");
    }

    #[test]
    fn the_graph_is_mermaid_with_names_that_cannot_break_it() {
        let graph = Layout::of(&MACHINE).mermaid();
        let expected = "\
flowchart TD
    start([\"research\"])
    s1[\"plan\"]
    s2[[\"say #34;hi#34; #35;2#59; #60;b#62;#96;x#96;\"]]
    finish([\"end\"])
    start --> s1
    s1 --> s2
    s1 --> finish
    s2 --> s2
    s2 --> finish
";
        assert_eq!(graph, expected, "\n{graph}");
    }

    #[test]
    fn the_stored_form_is_stable() {
        let layout = Layout::of(&MACHINE);
        let json = serde_json::to_string(&layout).unwrap();
        assert!(
            json.starts_with(concat!(
                r#"{"format":1,"fiber":"research","version":2,"arguments":["topic"],"first":["plan"],"#,
                r#""steps":[{"name":"plan","explicit":false,"of":1,"kind":"step","keeps":["#,
                r#"{"name":"topic","of":1,"why":"used in `Report`"},{"name":"plan","of":1,"result":true,"#,
            )),
            "{json}"
        );
        assert!(json.contains(r#""was":"greet","kind":"call","keeps":[],"next":["#), "{json}");
        assert_eq!(serde_json::from_str::<Layout>(&json).unwrap(), layout);
        let newer = serde_json::from_str::<Layout>(&json.replace("\"format\":1", "\"format\":2")).unwrap_err();
        assert!(newer.to_string().starts_with("layout has format 2, but only 1 can be read"), "{newer}");
    }

    #[test]
    fn the_hash_is_of_what_matters_for_resuming() {
        let layout = Layout::of(&MACHINE);
        // Written down, because hashes are stored: with another way to make them, all fibers would
        // be compared again.
        assert_eq!(layout.hash(), "5748a336eaa4b314f92f0926038a4843");
        let changed = |change: &dyn Fn(&mut Layout)| {
            let mut layout = layout.clone();
            change(&mut layout);
            layout.hash() != Layout::of(&MACHINE).hash()
        };
        assert!(!changed(&|l| l.steps[0].keeps[0].why.clear()));
        assert!(changed(&|l| l.steps[0].next.clear()));
        assert!(changed(&|l| l.first.clear()));
        assert!(changed(&|l| l.steps[0].topics.push("x".to_owned())));
        assert!(changed(&|l| l.steps[0].keeps[0].role = LocalRole::Items));
        assert!(changed(&|l| l.fiber.push('x')));
        assert!(changed(&|l| l.version += 1));
        assert!(changed(&|l| l.arguments.clear()));
        assert!(changed(&|l| l.steps[0].name.push('x')));
        assert!(changed(&|l| l.steps[0].explicit = true));
        assert!(changed(&|l| l.steps[0].of += 1));
        assert!(changed(&|l| l.steps[1].was = None));
        assert!(changed(&|l| l.steps[0].kind = CutKind::Call));
        assert!(changed(&|l| l.steps[0].effect = true));
        assert!(changed(&|l| l.steps[0].wraps.push('x')));
        assert!(changed(&|l| l.steps[0].keeps[0].name.push('x')));
        assert!(changed(&|l| l.steps[0].keeps[0].of += 1));
        assert!(changed(&|l| l.steps[0].keeps[0].result = true));
    }
}
