//! The tools of the research agent: a search in a small library and a calculator.
use async_openai::types::chat::{ChatCompletionTool, ChatCompletionTools, FunctionObjectArgs};
use serde_json::{Value, json};

use super::openai::ToolCall;

const LIBRARY: [&str; 8] = [
    "The Eiffel Tower in Paris has a height of 330 m with its antennas. It was finished in 1889.",
    "The Great Pyramid of Giza has a height of 138.5 m today; 146.6 m when it was built, about 2560 BC.",
    "Lincoln Cathedral had a spire, blown down in 1548, that may have reached a height of 160 m.",
    "The Pharos of Alexandria, a lighthouse, had a height of about 100 m.",
    "The Colosseum in Rome has a height of 48 m and had seats for 50000 people.",
    "The leaning tower of Pisa has a height of 57 m and leans by 4 degrees.",
    "The Great Wall of China has a length of 21196 km, all its walls together.",
    "The Panama Canal has a length of 82 km and was opened in 1914.",
];

/// Descriptions of the tools, for the model.
pub(crate) fn offered() -> anyhow::Result<Vec<ChatCompletionTools>> {
    let tool = |name: &str, what: &str, argument: &str| -> anyhow::Result<_> {
        let parameters = json!({"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]});
        let function = FunctionObjectArgs::default().name(name).description(what).parameters(parameters).build()?;
        Ok(ChatCompletionTools::Function(ChatCompletionTool { function }))
    };
    Ok(vec![
        tool("search", "Finds the two passages of a library of facts about buildings that fit the words of a query best.", "query")?,
        tool("calculate", "Works out an expression of numbers, + - * / and parentheses.", "expression")?,
    ])
}

/// Runs a tool call. The model receives an error as text, and may do better.
pub(crate) async fn run(call: &ToolCall) -> String {
    println!("  tool: {} {}", call.function.name, call.function.arguments);
    // Most tools take a moment.
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    let arguments: Value = serde_json::from_str(&call.function.arguments).unwrap_or_default();
    let text = |name: &str| arguments[name].as_str();
    match (call.function.name.as_str(), text("query"), text("expression")) {
        ("search", Some(query), _) => search(query),
        ("calculate", _, Some(expression)) => calculate(expression).unwrap_or_else(|| format!("error: cannot work out `{expression}`")),
        (name, ..) => format!("error: there is no tool `{name}` that takes {}", call.function.arguments),
    }
}

fn search(query: &str) -> String {
    let words: Vec<_> = query.to_lowercase().split_whitespace().map(str::to_owned).collect();
    let score = |passage: &str| words.iter().filter(|word| passage.to_lowercase().contains(*word)).count();
    let mut found = LIBRARY;
    found.sort_by_key(|passage| std::cmp::Reverse(score(passage)));
    match found.iter().take(2).filter(|passage| score(passage) > 0).copied().collect::<Vec<_>>() {
        none if none.is_empty() => "nothing found".to_owned(),
        passages => passages.join("\n"),
    }
}

fn calculate(expression: &str) -> Option<String> {
    let mut rest: &str = &expression.replace(' ', "");
    let value = sum(&mut rest, 0)?;
    (rest.is_empty() && value.is_finite()).then(|| value.to_string())
}

/// Deepest nesting of parentheses.
const DEEPEST: u32 = 50;

fn sum(rest: &mut &str, depth: u32) -> Option<f64> {
    let mut value = product(rest, depth)?;
    while let Some(sign) = take(rest, &['+', '-']) {
        let other = product(rest, depth)?;
        value = if sign == '+' { value + other } else { value - other };
    }
    Some(value)
}

fn product(rest: &mut &str, depth: u32) -> Option<f64> {
    let mut value = factor(rest, depth)?;
    while let Some(sign) = take(rest, &['*', '/']) {
        let other = factor(rest, depth)?;
        value = if sign == '*' { value * other } else { value / other };
    }
    Some(value)
}

fn factor(rest: &mut &str, depth: u32) -> Option<f64> {
    if depth < DEEPEST && take(rest, &['(']).is_some() {
        let value = sum(rest, depth + 1)?;
        return take(rest, &[')']).map(|_| value);
    }
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    let (number, after) = rest.split_at(end);
    *rest = after;
    number.parse().ok()
}

/// Takes the next character if it is one of `wanted`.
fn take(rest: &mut &str, wanted: &[char]) -> Option<char> {
    let mut after = rest.chars();
    let next = after.next().filter(|c| wanted.contains(c))?;
    *rest = after.as_str();
    Some(next)
}
