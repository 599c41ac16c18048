//! One fiber as JSON: [`Forever::export`], and [`Forever::import`], which stores it in another
//! database.
mod importer;
mod writer;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::api::forever::Forever;
use crate::error::Result;
use crate::store::{FiberState, OpState};

pub use importer::Import;

/// Version of the format of an export.
const VERSION: u32 = 1;

impl Forever {
    /// Everything that is stored of a fiber, as a value that serde writes as JSON: to look at it
    /// elsewhere, to run it on a laptop, or to move it to another database.
    ///
    /// ```
    /// # use forever_runtime as forever;
    /// # async fn copy(forever: forever::Forever) -> Result<(), forever::BoxError> {
    /// let export = forever.export("order-17").await?;
    /// std::fs::write("order-17.json", serde_json::to_string_pretty(&export)?)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Values that are marked `#[secret]`, and texts that contain them, are
    /// [withheld](FiberExport::withheld). The fiber stays where it is and as it is.
    ///
    /// # Errors
    /// Of kind [`NotFound`](crate::ErrorKind::NotFound) if there is no such fiber; of kind
    /// [`Conflict`](crate::ErrorKind::Conflict) for a closure or a turn of a chat; of kind
    /// [`Value`](crate::ErrorKind::Value) if what is stored is damaged; when the store fails.
    pub async fn export(&self, id: &str) -> Result<FiberExport> {
        writer::export(&self.exec, id).await
    }

    /// Stores an exported fiber in this database.
    ///
    /// One that has ended is stored as it ended. Any other is stored as failed, with a reason that
    /// says so, until [`resume`](Self::resume) lets it go on here; with
    /// [`Import::resume`] it goes on at once. **Let it go on in one place only**: nothing keeps two
    /// databases from carrying out the same effect.
    ///
    /// ```
    /// # use forever_runtime as forever;
    /// # async fn copy(forever: forever::Forever) -> Result<(), forever::BoxError> {
    /// let export = serde_json::from_str(&std::fs::read_to_string("order-17.json")?)?;
    /// let order = forever.import(export).await?;
    /// println!("{:?}", order.status().await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Values that were withheld have to be set by [`edit`](Self::edit) before it can go on.
    ///
    /// # Errors
    /// Of kind [`Value`](crate::ErrorKind::Value) if the export is of a later version, is damaged, or the
    /// id is not valid; of kind [`InvalidState`](crate::ErrorKind::InvalidState) if it gets another id
    /// although a transaction was committed since its last checkpoint; of kind
    /// [`Conflict`](crate::ErrorKind::Conflict) if there is another fiber with the id or key; when the
    /// store fails. Safe to repeat.
    pub fn import(&self, export: FiberExport) -> Import {
        Import::new(self.exec_link(), export)
    }
}

/// A fiber with everything that is stored of it; serde reads and writes it as JSON.
///
/// ```
/// # use forever_runtime as forever;
/// # async fn copy(forever: forever::Forever) -> Result<(), forever::BoxError> {
/// let export = forever.export("order-17").await?;
/// println!("{} ({}) is {}", export.id(), export.name(), export.state());
/// for name in export.withheld() {
///     println!("`{name}` is secret: set it by an edit, once it is imported");
/// }
/// std::fs::write("order-17.json", serde_json::to_string(&export)?)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FiberExport {
    /// Version of the format.
    forever_export: u32,
    exported_ms: i64,
    fiber: Fiber,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    snapshot: Option<Stand>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    layouts: Vec<LayoutText>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ops: Vec<Operation>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    branches: Vec<Branch>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    messages: Vec<Message>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    closed: Vec<Closed>,
    /// Items of the history.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    history: Vec<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    withheld: BTreeSet<String>,
}

impl FiberExport {
    /// Id of the fiber.
    pub fn id(&self) -> &str {
        &self.fiber.id
    }

    /// Stored name of its function.
    pub fn name(&self) -> &str {
        &self.fiber.name
    }

    /// State that it had.
    pub fn state(&self) -> FiberState {
        self.fiber.state
    }

    /// Names of the values that are left out since they are, or repeat, values marked `#[secret]`:
    /// locals and arguments by their names, others as `metadata`, `result` or `history`.
    pub fn withheld(&self) -> impl Iterator<Item = &str> {
        self.withheld.iter().map(String::as_str)
    }
}

/// A topic that is closed since a checkpoint.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Closed {
    topic: String,
    checkpoint: u64,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Fiber {
    id: String,
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    class: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    parent: Option<String>,
    state: FiberState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    args: Box<RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    metadata: Option<Box<RawValue>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    result: Option<Box<RawValue>>,
    restarts: u32,
    checkpoints: u64,
    created_ms: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    finished_ms: Option<i64>,
}

/// The snapshot: the main text, which refers to no other rows, and the hashes of its layouts.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Stand {
    main: Box<RawValue>,
    layout: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    callees: Vec<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct LayoutText {
    hash: String,
    function: String,
    layout: Box<RawValue>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Operation {
    id: String,
    kind: String,
    function: String,
    step: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    number: Option<u64>,
    state: OpState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    outcome: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    resolved: bool,
    #[serde(default, skip_serializing_if = "is_zero")]
    failed: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next_ms: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    stash: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    layout: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    log: Vec<Box<RawValue>>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Branch {
    name: String,
    value: Box<RawValue>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    layout: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Message {
    topic: String,
    value: Box<RawValue>,
    sent_ms: i64,
}
