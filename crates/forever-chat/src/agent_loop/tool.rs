//! Tools that the model may call and that run in this process.
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use forever_runtime::BoxError;
use forever_runtime::ops::Op;
use forever_runtime::store::BoxFuture;
use serde_json::Value;

use crate::model::ToolSpec;
use crate::user_code::{awaited, called_or, said_of};

/// Policy for a tool call in doubt: the process died while it ran.
///
/// ```
/// use forever::chat::{Tool, UnknownCall};
/// use serde_json::{Value, json};
///
/// let forecast = Tool::new("forecast", |_: Value, _| async { Ok(json!("rain")) })
///     // It changes nothing, so it may run twice.
///     .on_unknown(UnknownCall::Retry);
/// let order = Tool::new("order", |_: Value, _| async { Ok(json!("a taxi")) })
///     // The default: the model reads that the outcome is unknown.
///     .on_unknown(UnknownCall::Report);
/// # let _ = (forecast, order);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum UnknownCall {
    /// The model is informed that it may have been carried out, and decides. It is not repeated
    /// automatically.
    #[default]
    Report,
    /// It is repeated with the same [`Op::id`]: right for tools that only read, and for services
    /// that accept an idempotency key.
    Retry,
}

/// Tool that the model may call, and that runs in this process.
///
/// Each call is an operation in the ledger, begun before the closure is called. So a call that was
/// interrupted by a crash is known to be in doubt, and [`on_unknown`](Tool::on_unknown) decides
/// whether it is repeated. An error of the closure is given to the model as text; it does not end
/// the turn.
///
/// ```
/// use forever::chat::{Tool, UnknownCall};
/// use serde_json::{Value, json};
///
/// let refund = Tool::new("refund", |input: Value, op| async move {
///     // The same id however often the call is repeated: the key for the payment provider.
///     let key = op.id().to_owned();
///     Ok(json!({ "refunded": input["cents"].clone(), "key": key }))
/// })
/// .description("Pays money back to the guest.")
/// .parameters(json!({
///     "type": "object",
///     "properties": { "cents": { "type": "integer" } },
///     "required": ["cents"],
/// }))
/// .on_unknown(UnknownCall::Retry)
/// .needs_approval(|input| input["cents"].as_u64().is_none_or(|cents| cents > 5_000));
/// # let _ = refund;
/// ```
#[derive(Clone)]
#[must_use]
pub struct Tool {
    pub(super) spec: ToolSpec,
    pub(super) on_unknown: UnknownCall,
    run: Arc<Run>,
    approval: Option<Arc<Asks>>,
}

type Run = dyn Fn(Value, Op) -> BoxFuture<'static, Result<Value, BoxError>> + Send + Sync;
type Asks = dyn Fn(&Value) -> bool + Send + Sync;

impl Tool {
    /// A tool that runs a closure with the model's input and an operation, whose id is the same
    /// however often the call is repeated.
    pub fn new<F, B>(name: impl Into<String>, run: F) -> Self
    where
        F: Fn(Value, Op) -> B + Send + Sync + 'static,
        B: Future<Output = Result<Value, BoxError>> + Send + 'static,
    {
        let spec = ToolSpec { name: name.into(), ..ToolSpec::default() };
        Tool { spec, on_unknown: UnknownCall::default(), run: Arc::new(move |input, op| Box::pin(run(input, op))), approval: None }
    }

    /// A tool whose input is a type of the program. The model gets its JSON schema; the description
    /// of the type is that of the tool.
    ///
    /// If an input does not fit the type, the model gets an error and can call the tool again; the
    /// closure is not called. The result of the call is the closure's value as JSON.
    ///
    /// ```
    /// # use forever_chat::schemars;
    /// use forever::BoxError;
    /// use forever::chat::Tool;
    /// use schemars::JsonSchema;
    /// use serde::Deserialize;
    ///
    /// /// Looks up the weather of a city.
    /// #[derive(Deserialize, JsonSchema)]
    /// struct Weather {
    ///     /// Name of the city, in English.
    ///     city: String,
    /// }
    ///
    /// let tool = Tool::typed::<Weather, _, _>("weather", |input, _| async move {
    ///     Ok::<_, BoxError>(format!("{}: 21 degrees", input.city))
    /// });
    /// # let _ = tool;
    /// ```
    #[cfg(feature = "schemars")]
    pub fn typed<I, O, B>(name: impl Into<String>, run: impl Fn(I, Op) -> B + Send + Sync + 'static) -> Self
    where
        I: serde::de::DeserializeOwned + schemars::JsonSchema + 'static,
        O: serde::Serialize,
        B: Future<Output = Result<O, BoxError>> + Send + 'static,
    {
        let schema = schemars::schema_for!(I).to_value();
        let description = schema.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
        let of_values = move |input: Value, op| {
            let begun = serde_json::from_value(input).map(|input| run(input, op));
            async move {
                let done = begun.map_err(|why| format!("the input of the tool does not fit its schema: {why}"))?;
                Ok(serde_json::to_value(done.await?)?)
            }
        };
        Tool::new(name, of_values).description(description).parameters(schema)
    }

    /// Sets the description for the model.
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.spec.description = text.into();
        self
    }

    /// Sets the JSON schema of the input. Defaults to an object without properties.
    ///
    /// The schema is for the model. Inputs are not checked against it, except by `Tool::typed`
    /// (feature `schemars`).
    pub fn parameters(mut self, schema: Value) -> Self {
        self.spec.parameters = schema;
        self
    }

    /// Sets the policy for calls in doubt. Defaults to [`UnknownCall::Report`].
    pub fn on_unknown(mut self, what: UnknownCall) -> Self {
        self.on_unknown = what;
        self
    }

    /// Asks a person before each call for whose input `asks` returns `true`. Defaults to no call.
    ///
    /// If `asks` panics, a person is asked. The turn ends meanwhile, and
    /// [`ChatHandle::answer_tool`](crate::ChatHandle::answer_tool) continues its message in a new
    /// turn.
    pub fn needs_approval(mut self, asks: impl Fn(&Value) -> bool + Send + Sync + 'static) -> Self {
        self.approval = Some(Arc::new(asks));
        self
    }

    pub(super) fn asks(&self, input: &Value) -> bool {
        // A person decides where the program does not.
        self.approval.as_ref().is_some_and(|asks| called_or("needs_approval", || asks(input), || true))
    }

    /// Result of the call, or the text of its error.
    pub(super) async fn call(&self, input: Value, op: Op) -> Result<Value, String> {
        awaited(|| (self.run)(input, op)).await.map_err(|why| said_of(&why))
    }
}

impl fmt::Debug for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool").field("name", &self.spec.name).field("on_unknown", &self.on_unknown).finish_non_exhaustive()
    }
}

/// Tools by name.
#[derive(Debug, Clone, Default)]
pub(super) struct Tools(BTreeMap<String, Tool>);

impl Tools {
    pub(super) fn add(&mut self, tool: Tool) {
        self.0.insert(tool.spec.name.clone(), tool);
    }

    pub(super) fn get(&self, name: &str) -> Option<&Tool> {
        self.0.get(name)
    }

    pub(super) fn specs(&self) -> impl Iterator<Item = ToolSpec> {
        self.0.values().map(|tool| tool.spec.clone())
    }
}
