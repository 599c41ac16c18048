//! Agents that write and repair programs.
use crate::prelude::*;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Edit {
    Insert { line: usize, text: String },
    Delete { lines: std::ops::Range<usize> },
    Replace(usize, String),
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct TestRun {
    passed: Vec<String>,
    failed: Vec<(String, String)>,
}

async fn run_tests(io: &Io, code: &[String]) -> anyhow::Result<TestRun> {
    let mut run = TestRun::default();
    for line in code {
        match line.split_once("bug") {
            Some((_, what)) => run.failed.push((line.clone(), what.trim().to_owned())),
            None => run.passed.push(line.clone()),
        }
    }
    io.did(format!("test {} lines", code.len()), run).await
}

twin! {
    async fn fix_until_tests_pass(io, mut_code: Vec<String>, attempts: u32) -> anyhow::Result<(u32, Vec<String>)> {
        let mut code = mut_code;
        for attempt in 1..=attempts {
            let TestRun { failed, passed } = step!("test", run_tests(&io, &code).await?);
            if failed.is_empty() {
                return Ok((attempt, code));
            }
            let (line, why) = failed.into_iter().next().unwrap();
            let fixed = step!("fix", io.did(format!("fix {why} ({} pass)", passed.len()), line.replacen("bug", "fix", 1)).await?);
            if let Some(place) = code.iter().position(|l| *l == line) {
                code[place] = fixed;
            }
        }
        bail!("still red after {attempts} attempts")
    }
}

twin! {
    async fn apply_edits_from_the_end(io, file: String, mut_edits: Vec<Edit>) -> anyhow::Result<String> {
        let mut lines: Vec<String> = step!("read", io.did(format!("read {file}"), "one\ntwo\nthree\nfour".to_string()).await?).lines().map(String::from).collect();
        let mut edits = mut_edits;
        edits.sort_by_key(|edit| match edit {
            Edit::Insert { line, .. } | Edit::Replace(line, _) => *line,
            Edit::Delete { lines } => lines.start,
        });
        let mut journal = Vec::new();
        while let Some(edit) = edits.pop() {
            match edit {
                Edit::Insert { line, text } if line <= lines.len() => lines.insert(line, text),
                Edit::Delete { lines: range } => drop(lines.drain(range)),
                Edit::Replace(line, text) => {
                    let old = lines.get_mut(line).with_context(|| format!("no line {line}"))?;
                    journal.push(std::mem::replace(old, text));
                }
                Edit::Insert { line, .. } => bail!("{line} is behind the end"),
            }
            step!("save", io.did(format!("{} lines", lines.len()), ()).await?);
        }
        Ok(format!("{} {journal:?}", lines.join("/")))
    }
}

twin! {
    async fn bisect_a_regression(io, commits: Vec<u32>) -> anyhow::Result<Option<u32>> {
        let (mut good, mut bad) = (0usize, commits.len());
        if bad == 0 {
            return Ok(None);
        }
        while bad - good > 1 {
            let middle = good + (bad - good) / 2;
            let commit = commits[middle];
            step!("checkout", io.did(format!("checkout {commit}"), ()).await?);
            let broken: bool = step!("build", io.did("build", commit >= 42).await?);
            *(if broken { &mut bad } else { &mut good }) = middle;
        }
        let culprit = commits.get(bad).copied();
        step!("report", io.did(format!("{culprit:?}"), ()).await?);
        Ok(culprit)
    }
}

twin! {
    async fn dependency_order(io, graph: BTreeMap<String, Vec<String>>) -> anyhow::Result<Vec<String>> {
        let mut missing: BTreeMap<String, usize> = graph.iter().map(|(name, needs)| (name.clone(), needs.len())).collect();
        let mut ready: Vec<String> = missing.iter().filter(|(_, n)| **n == 0).map(|(name, _)| name.clone()).collect();
        let mut built = Vec::new();
        while let Some(name) = ready.pop() {
            step!("build", io.did(format!("build {name}"), ()).await?);
            for (other, needs) in &graph {
                if needs.contains(&name) {
                    let left = missing.get_mut(other).unwrap();
                    *left -= 1;
                    if *left == 0 {
                        ready.push(other.clone());
                    }
                }
            }
            missing.remove(&name);
            built.push(name);
        }
        ensure!(missing.is_empty(), "a cycle among {:?}", missing.keys().collect::<Vec<_>>());
        Ok(built)
    }
}

twin! {
    async fn review_a_diff(io, diff: String) -> anyhow::Result<Vec<String>> {
        let mut file = None;
        let mut findings = Vec::new();
        let mut added = 0;
        for (number, line) in diff.lines().enumerate() {
            if let Some(name) = line.strip_prefix("+++ ") {
                file = Some(name.to_owned());
                added = 0;
                continue;
            }
            let Some(text) = line.strip_prefix('+') else { continue };
            added += 1;
            if text.contains("unwrap") && let Some(file) = &file {
                let why = step!("explain", io.did(format!("explain {number}"), format!("{file}:{added} may panic")).await?);
                findings.push(why);
            }
        }
        step!("post", io.did(format!("post {}", findings.len()), ()).await?);
        Ok(findings)
    }
}

twin! {
    async fn generate_files_from_a_spec(io, spec: Value) -> anyhow::Result<BTreeMap<String, usize>> {
        let Value::Object(modules) = spec else { bail!("the spec is no object") };
        let mut sizes = BTreeMap::new();
        for (name, module) in modules {
            let functions = match &module["functions"] {
                Value::Array(list) => list.iter().filter_map(|f| f.as_str().map(str::to_owned)).collect(),
                Value::String(one) => vec![one.clone()],
                Value::Null => continue,
                other => return Err(anyhow!("functions of {name}: {other}")),
            };
            let mut source = format!("//! {}\n", module["doc"].as_str().unwrap_or("No documentation."));
            for function in functions {
                let body = step!("write", io.did(format!("write {name}::{function}"), format!("fn {function}() {{}}\n")).await?);
                source.push_str(&body);
            }
            step!("save", io.did(format!("save {name}.rs"), ()).await?);
            sizes.insert(name + ".rs", source.len());
        }
        Ok(sizes)
    }
}

struct Budget {
    left: u32,
}

impl Budget {
    fn take(&mut self, n: u32) -> Option<u32> {
        self.left.checked_sub(n).map(|left| {
            self.left = left;
            left
        })
    }
}

twin! {
    async fn search_and_replace_in_a_repository(io, files: Vec<String>, limit: u32) -> anyhow::Result<String> {
        let mut left = limit;
        let mut changed: Vec<(String, usize)> = Vec::new();
        'files: for file in files {
            let text = step!("open", io.did(format!("open {file}"), file.repeat(3)).await?);
            let mut from = 0;
            let mut count = 0;
            while let Some(at) = text[from..].find('a') {
                let mut budget = Budget { left };
                let Some(rest) = budget.take(1) else { break 'files };
                left = rest;
                from += at + 1;
                count += 1;
                step!("replace", io.did(format!("{file}@{from}"), ()).await?);
            }
            if count > 0 {
                changed.push((file, count));
            }
        }
        Ok(format!("{changed:?} {left}"))
    }
}

twin! {
    async fn compile_errors_as_feedback(io, task: String) -> anyhow::Result<String> {
        let mut errors: Vec<String> = Vec::new();
        let mut best: Option<(usize, String)> = None;
        for round in 0.. {
            let prompt = if errors.is_empty() { task.clone() } else { format!("{task}\nFix:\n- {}", errors.join("\n- ")) };
            let code = step!("generate", io.did(format!("generate from {}", prompt.lines().count()), "x".repeat(3 - round.min(3))).await?);
            errors = step!("compile", io.did(format!("compile {code}"), code.chars().enumerate().map(|(i, c)| format!("{c}{i}")).collect()).await?);
            match (&best, errors.len()) {
                (_, 0) => return Ok(format!("clean after {round}")),
                (Some((fewest, _)), n) if n >= *fewest => break,
                (_, n) => best = Some((n, code)),
            }
        }
        let (n, code) = best.context("nothing compiled")?;
        Ok(format!("{code} with {n} errors"))
    }
}

twin! {
    async fn pair_of_coder_and_tester(io, features: Vec<String>) -> anyhow::Result<Vec<(String, u8)>> {
        let mut done = Vec::new();
        for feature in features.iter().map(|f| f.trim().to_owned()).filter(|f| !f.is_empty()).collect::<Vec<_>>() {
            let mut grade = 0u8;
            let mut notes = String::new();
            while grade < 3 {
                let code = step!("code", io.did(format!("code {feature}{notes}"), feature.len() as u8).await?);
                grade = match step!("try", io.did("try", code.wrapping_add(grade)).await?) {
                    n if n % 2 == 0 => grade + 2,
                    n => {
                        notes = format!(" ({n})");
                        grade + 1
                    }
                };
            }
            done.push((feature, grade));
        }
        Ok(done)
    }
}

twin! {
    async fn release_checklist(io, version: (u32, u32, u32), dry_run: bool) -> anyhow::Result<String> {
        let (major, minor, patch) = version;
        let next = if step!("breaking", io.did("breaking?", patch > 5).await?) { (major + 1, 0, 0) } else { (major, minor + 1, 0) };
        let tag = format!("v{}.{}.{}", next.0, next.1, next.2);
        let changelog = {
            let entries = step!("log", io.did("git log", vec!["feat: a", "fix: b", "chore: c", "feat: d"].into_iter().map(String::from).collect::<Vec<_>>()).await?);
            let mut sections: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
            for entry in &entries {
                let (kind, text) = entry.split_once(": ").unwrap_or(("other", entry));
                sections.entry(kind).or_default().push(text);
            }
            sections.iter().map(|(kind, texts)| format!("{kind}={}", texts.join("+"))).collect::<Vec<_>>().join(";")
        };
        if dry_run {
            return Ok(format!("{tag} would have {changelog}"));
        }
        step!("tag", effect, key = &tag, on_unknown = OnUnknown::Retry, io.did(format!("tag {tag}"), ()).await?);
        step!("publish", io.did(format!("publish {changelog}"), ()).await?);
        Ok(tag)
    }
}

corpus! {
    fix_until_tests_pass => completes(|| fix_until_tests_pass(vec!["a".into(), "bug 1".into(), "bug 2".into()], 5)), fails("still red", || fix_until_tests_pass(vec!["bug".into(), "bug".into()], 1));
    apply_edits_from_the_end => completes(|| apply_edits_from_the_end("f".into(), vec![Edit::Delete { lines: 0..2 }, Edit::Insert { line: 4, text: "five".into() }, Edit::Replace(2, "3".into())])),
        fails("no line 9", || apply_edits_from_the_end("f".into(), vec![Edit::Replace(9, "9".into())]));
    bisect_a_regression => completes(|| bisect_a_regression((30..60).collect())), completes(|| bisect_a_regression(vec![1, 2, 3]));
    dependency_order => completes(|| dependency_order([("app", vec!["lib", "log"]), ("lib", vec!["log"]), ("log", vec![])].map(|(n, d)| (n.into(), d.into_iter().map(String::from).collect())).into())),
        fails("a cycle", || dependency_order([("a".to_owned(), vec!["b".to_owned()]), ("b".to_owned(), vec!["a".to_owned()])].into()));
    review_a_diff => completes(|| review_a_diff("+++ a.rs\n+x.unwrap()\n-y\n+z\n+++ b.rs\n+let x = y.unwrap();\n".into()));
    generate_files_from_a_spec => completes(|| generate_files_from_a_spec(json!({ "a": { "doc": "A.", "functions": ["x", "y", 3] }, "b": { "functions": "z" }, "c": {} }))),
        fails("no object", || generate_files_from_a_spec(json!([])));
    search_and_replace_in_a_repository => completes(|| search_and_replace_in_a_repository(vec!["ab".into(), "b".into(), "aa".into()], 7));
    compile_errors_as_feedback => completes(|| compile_errors_as_feedback("t".into()));
    pair_of_coder_and_tester => completes(|| pair_of_coder_and_tester(vec!["a".into(), " ".into(), "bb".into()]));
    release_checklist => completes(|| release_checklist((1, 2, 3), false)), completes(|| release_checklist((1, 2, 9), true));
}
