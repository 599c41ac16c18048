//! Tools whose input is a type of the program.
use std::sync::{Arc, Mutex};

use forever::BoxError;
use forever::chat::model::{FinishReason, ModelRequest, ToolSpec};
use forever::chat::{AgentLoop, Tool};
use forever::schemars::{self, JsonSchema};
use forever_testkit::models::{ScriptedModel, call, ends, text};
use forever_testkit::notes::Notes;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::agent_loop::{answered, outline, plain};

/// Books a room of the house.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Booking {
    /// Number of the room.
    room: u8,
    /// How many nights.
    #[serde(default)]
    nights: Option<u32>,
}

#[derive(Serialize)]
struct Booked {
    room: u8,
    nights: u32,
}

fn booking(seen: &Notes) -> Tool {
    let seen = seen.clone();
    Tool::typed::<Booking, _, _>("book", move |input, _| {
        seen.note(format!("book {}", input.room));
        async move {
            if input.room == 13 {
                return Err(BoxError::from("there is no such room"));
            }
            Ok(Booked { room: input.room, nights: input.nights.unwrap_or(1) })
        }
    })
}

/// Inputs that fit and such that do not, one in each answer.
const INPUTS: [&str; 5] = [r#"{"room": "seven"}"#, r#"{"room": 7, "bed": 2}"#, "null", r#"{"room": 13}"#, r#"{"room": 7, "nights": 3}"#];

#[tokio::test(start_paused = true)]
async fn a_typed_tool_is_given_its_type_and_the_model_is_told_what_does_not_fit() {
    let (seen, specs) = (Notes::default(), Arc::new(Mutex::new(Vec::<ToolSpec>::new())));
    let told = Arc::clone(&specs);
    let says = move |results: usize, request: &ModelRequest| {
        told.lock().unwrap().clone_from(&request.tools);
        match INPUTS.get(results) {
            Some(input) => {
                let input = serde_json::from_str(input).unwrap();
                [call(&format!("c{results}"), "book", input), ends(FinishReason::ToolCalls)].concat()
            }
            None => [text(&["Booked."]), ends(FinishReason::Stop)].concat(),
        }
    };
    let looped = AgentLoop::new(ScriptedModel::new(says)).tool(booking(&seen));
    let forever = plain(looped).open().await.unwrap();
    let (_, message) = answered(&forever).await;
    assert_eq!(seen.all(), ["book 13", "book 7"], "{:?}", outline(&message));
    let errors: Vec<_> = message.parts.iter().filter_map(|part| part.get("errorText")?.as_str().map(str::to_owned)).collect();
    assert_eq!(errors.len(), 4, "{message:?}");
    for (error, what) in errors.iter().zip(["\"seven\"", "unknown field `bed`", "null"]) {
        assert!(error.starts_with("the input of the tool does not fit its schema: ") && error.contains(what), "{error}");
    }
    assert_eq!(errors[3], "there is no such room");
    let outputs: Vec<_> = message.parts.iter().filter_map(|part| part.get("output")).collect();
    assert_eq!(outputs, [&json!({ "room": 7, "nights": 3 })]);

    let specs = specs.lock().unwrap();
    assert_eq!((specs[0].name.as_str(), specs[0].description.as_str()), ("book", "Books a room of the house."));
    let schema = &specs[0].parameters;
    assert_eq!(
        (&schema["type"], &schema["required"], &schema["additionalProperties"]),
        (&json!("object"), &json!(["room"]), &json!(false))
    );
    assert_eq!(schema["properties"]["room"]["description"], "Number of the room.");
}
