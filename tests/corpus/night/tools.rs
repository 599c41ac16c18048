//! Loops of a model and its tools.
use crate::prelude::*;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "tool", rename_all = "snake_case")]
enum ToolCall {
    Search { query: String },
    Calculate { left: i64, op: char, right: i64 },
    ReadFile(String2),
    Finish { answer: String },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct String2 {
    path: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum Message {
    System(String),
    User { text: String },
    Assistant { text: Option<String>, calls: Vec<(u32, ToolCall)> },
    Tool { id: u32, result: Result<String, String> },
}

/// The model of these agents: what it says depends on how long the transcript is.
async fn complete(io: &Io, transcript: &[Message]) -> anyhow::Result<Message> {
    let n = transcript.len() as u32;
    let message = match n {
        0..=2 => Message::Assistant { text: Some("thinking".into()), calls: vec![(n, ToolCall::Search { query: "fibers".into() })] },
        3..=5 => Message::Assistant {
            text: None,
            calls: vec![
                (n, ToolCall::Calculate { left: 6, op: '*', right: 7 }),
                (n + 1, ToolCall::Calculate { left: 1, op: '/', right: 0 }),
                (n + 2, ToolCall::ReadFile(String2 { path: "/notes".into() })),
            ],
        },
        _ => Message::Assistant { text: None, calls: vec![(n, ToolCall::Finish { answer: format!("done after {n}") })] },
    };
    io.did(format!("complete {n}"), message).await
}

fn calculate(left: i64, op: char, right: i64) -> Result<i64, String> {
    match op {
        '+' => Ok(left + right),
        '*' => Ok(left * right),
        '/' if right == 0 => Err("division by zero".into()),
        '/' => Ok(left / right),
        other => Err(format!("unknown operator {other}")),
    }
}

twin! {
    async fn tool_loop_over_an_enum(io, task: String, max_turns: usize) -> anyhow::Result<String> {
        let mut messages = vec![Message::System("You are terse.".into()), Message::User { text: task }];
        for turn in 0..max_turns {
            let reply = step!("complete", complete(&io, &messages).await?);
            messages.push(reply.clone());
            let Message::Assistant { calls, .. } = reply else { bail!("turn {turn}: not an answer") };
            for (id, call) in calls {
                let result = match call {
                    ToolCall::Finish { answer } => return Ok(answer),
                    ToolCall::Search { query } => Ok(step!("search", io.did(format!("search {query}"), query.len().to_string()).await?)),
                    ToolCall::Calculate { left, op, right } => calculate(left, op, right).map(|n| n.to_string()),
                    ToolCall::ReadFile(String2 { path }) if path.starts_with('/') => {
                        step!("read", io.did(format!("read {path}"), Ok::<_, String>(path.repeat(2))).await?)
                    }
                    ToolCall::ReadFile(_) => Err("absolute paths only".to_string()),
                };
                messages.push(Message::Tool { id, result });
            }
        }
        bail!("no answer after {max_turns} turns and {} messages", messages.len())
    }
}

twin! {
    async fn json_tool_calls(io, request: Value) -> anyhow::Result<Value> {
        let calls = request["tool_calls"].as_array().cloned().unwrap_or_default();
        let mut results = serde_json::Map::new();
        for call in &calls {
            let name = call["function"]["name"].as_str().ok_or_else(|| anyhow!("call without a name: {call}"))?;
            let arguments = &call["function"]["arguments"];
            let id = call.get("id").and_then(Value::as_str).unwrap_or("none").to_owned();
            let result = match (name, arguments) {
                ("weather", args) if args["city"].is_string() => {
                    let city = args["city"].as_str().unwrap_or_default().to_owned();
                    let degrees = step!("weather", io.did(format!("weather {city}"), city.len() as i64 - 3).await?);
                    json!({ "city": city, "degrees": degrees })
                }
                ("time", _) => {
                    let time = step!("time", io.did("time", "12:00".to_string()).await?);
                    json!(time)
                }
                (other, _) => json!({ "error": format!("unknown tool {other}") }),
            };
            results.insert(id, result);
        }
        step!("log", io.did(format!("{} results", results.len()), ()).await?);
        Ok(json!({ "role": "tool", "content": results, "count": calls.len() }))
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Usage {
    input: u64,
    output: u64,
    by_model: BTreeMap<String, u64>,
}

impl Usage {
    fn add(&mut self, model: &str, input: u64, output: u64) {
        self.input += input;
        self.output += output;
        *self.by_model.entry(model.to_owned()).or_insert(0) += input + output;
    }

    fn cost(&self) -> f64 {
        self.input as f64 * 0.5 + self.output as f64 * 1.5
    }
}

twin! {
    async fn budget_of_tokens(io, prompts: Vec<String>, budget: f64) -> anyhow::Result<(usize, Usage)> {
        let mut usage = Usage::default();
        let mut answered = 0;
        for prompt in &prompts {
            let model = if usage.cost() > budget / 2.0 { "small" } else { "large" };
            let (input, output) = step!("ask", io.did(format!("{model} {prompt}"), (prompt.len() as u64, prompt.len() as u64 / 2)).await?);
            usage.add(model, input, output);
            if usage.cost() > budget {
                step!("warn", io.did(format!("over budget: {:.2}", usage.cost()), ()).await?);
                break;
            }
            answered += 1;
        }
        Ok((answered, usage))
    }
}

twin! {
    async fn react_text_protocol(io, question: String) -> anyhow::Result<String> {
        let mut scratchpad = String::from("Question: ") + &question;
        let mut steps_left = 5u8;
        while steps_left > 0 {
            steps_left -= 1;
            let reply = step!("think", {
                let text = match scratchpad.matches("Observation").count() {
                    0 => "Thought: I need facts\nAction: lookup[rust]",
                    1 => "Thought: compute\nAction: add[2, 40]",
                    _ => "Thought: done\nFinal Answer: 42",
                };
                io.did("think", text.to_owned()).await?
            });
            scratchpad = format!("{scratchpad}\n{reply}");
            if let Some(answer) = reply.lines().find_map(|line| line.strip_prefix("Final Answer:")) {
                return Ok(format!("{} ({} left)", answer.trim(), steps_left));
            }
            let Some(action) = reply.lines().find_map(|l| l.strip_prefix("Action: ")) else { continue };
            let (tool, input) = action.trim_end_matches(']').split_once('[').context("a malformed action")?;
            let observation = match tool {
                "lookup" => step!("lookup", io.did(format!("lookup {input}"), format!("{input} is a language")).await?),
                "add" => {
                    let sum: i32 = input.split(',').map(|n| n.trim().parse::<i32>()).sum::<Result<_, _>>()?;
                    sum.to_string()
                }
                _ => format!("no tool {tool}"),
            };
            scratchpad.push_str("\nObservation: ");
            scratchpad.push_str(&observation);
        }
        Err(anyhow!("out of steps"))
    }
}

trait Tool {
    fn name(&self) -> &str;
    fn run(&self, input: &str) -> String;
}

struct Upper;
struct Count(char);

impl Tool for Upper {
    fn name(&self) -> &str {
        "upper"
    }
    fn run(&self, input: &str) -> String {
        input.to_uppercase()
    }
}

impl Tool for Count {
    fn name(&self) -> &str {
        "count"
    }
    fn run(&self, input: &str) -> String {
        input.chars().filter(|c| *c == self.0).count().to_string()
    }
}

fn toolbox() -> Vec<Box<dyn Tool + Send + Sync>> {
    vec![Box::new(Upper), Box::new(Count('a'))]
}

twin! {
    async fn boxed_tools_before_a_step(io, text: String) -> anyhow::Result<Vec<String>> {
        let outputs: Vec<String> = {
            let tools: Vec<Box<dyn Tool + Send + Sync>> = toolbox();
            tools.iter().map(|tool| format!("{}: {}", tool.name(), tool.run(&text))).collect()
        };
        step!("record", io.did(format!("{outputs:?}"), ()).await?);
        let mut judged = Vec::new();
        for output in outputs {
            let ok = step!("judge", io.did(format!("judge {output}"), output.ends_with('A') || output.len() < 9).await?);
            if ok { judged.push(output) }
        }
        Ok(judged)
    }
}

twin! {
    async fn boxed_tools_in_each_round(io, script: Vec<(String, String)>) -> anyhow::Result<String> {
        let mut log = Vec::new();
        for (name, input) in script {
            let tools = toolbox();
            let Some(tool) = tools.iter().find(|t| t.name() == name) else {
                log.push(format!("no {name}"));
                continue;
            };
            let out = tool.run(&input);
            drop(tools);
            step!("used", io.did(format!("{name} {out}"), ()).await?);
            log.push(out);
        }
        Ok(log.join("/"))
    }
}

twin! {
    async fn parallel_tool_calls(io, calls: Vec<ToolCall>) -> anyhow::Result<Vec<String>> {
        let results = steps!(for call in &calls, limit = 4, {
            let text = match call {
                ToolCall::Search { query } => format!("found {query}"),
                ToolCall::Calculate { left, op, right } => calculate(*left, *op, *right).map_or_else(|e| e, |n| n.to_string()),
                ToolCall::ReadFile(file) => file.path.clone(),
                ToolCall::Finish { answer } => answer.clone(),
            };
            now(&io, format!("run {text}"), text).await?
        });
        let (short, long): (Vec<String>, Vec<String>) = results.into_iter().partition(|r| r.len() < 6);
        step!("short", io.did(format!("{short:?}"), ()).await?);
        Ok([long, short].concat())
    }
}

twin! {
    async fn a_tool_that_needs_consent(io, path: String) -> anyhow::Result<String> {
        let dangerous = matches!(path.as_str(), p if p.starts_with("/etc") || p.contains(".."));
        let consent = if dangerous {
            step!("ask", io.did(format!("may I write {path}?"), ()).await?);
            recv!("consent")
        } else {
            true
        };
        if !consent {
            return Ok(format!("{path} was left alone"));
        }
        let bytes = step!("write", io.did(format!("write {path}"), path.len() * 10).await?);
        Ok(format!("{bytes} bytes in {path}"))
    }
}

corpus! {
    tool_loop_over_an_enum => completes(|| tool_loop_over_an_enum("t".into(), 6)), fails("no answer after 1", || tool_loop_over_an_enum("t".into(), 1));
    json_tool_calls => completes(|| json_tool_calls(json!({ "tool_calls": [
        { "id": "a", "function": { "name": "weather", "arguments": { "city": "Oslo" } } },
        { "id": "b", "function": { "name": "time" } }, { "function": { "name": "dance" } },
    ] }))), fails("without a name", || json_tool_calls(json!({ "tool_calls": [{ "function": {} }] })));
    budget_of_tokens => completes(|| budget_of_tokens(vec!["short".into(), "a longer one".into(), "the longest of all".into(), "x".into()], 30.0));
    react_text_protocol => completes(|| react_text_protocol("what".into()));
    boxed_tools_before_a_step => completes(|| boxed_tools_before_a_step("banana".into()));
    boxed_tools_in_each_round => completes(|| boxed_tools_in_each_round(vec![("upper".into(), "x".into()), ("none".into(), "y".into()), ("count".into(), "aa".into())]));
    parallel_tool_calls => completes(|| parallel_tool_calls(vec![
        ToolCall::Search { query: "q".into() }, ToolCall::Calculate { left: 1, op: '+', right: 2 }, ToolCall::Finish { answer: "the end".into() },
    ]));
    a_tool_that_needs_consent => completes_with(Letters::default().with("consent", true), || a_tool_that_needs_consent("/etc/x".into())),
        completes_with(Letters::default().with("consent", false), || a_tool_that_needs_consent("/etc/x".into()));
}
