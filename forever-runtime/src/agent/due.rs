//! A schedule that is due, as the agent's hook sees it.
use std::fmt;
use std::time::SystemTime;

use serde::de::DeserializeOwned;

use crate::clock::from_ms;
use crate::error::{Error, ErrorKind, Result};
use crate::exact;
use crate::store::ScheduleRow;

/// A schedule that is due, as [`Agent::on_schedule`](super::Agent::on_schedule) sees it.
///
/// ```
/// # use forever_runtime as forever;
/// # use forever::BoxError;
/// # use forever::agent::{Agent, Due};
/// # struct Assistant;
/// # impl Assistant {
/// #     async fn remind(&self, _: &str) -> Result<(), BoxError> { Ok(()) }
/// #     async fn report(&self) -> Result<(), BoxError> { Ok(()) }
/// # }
/// # impl Agent for Assistant {
/// #     const CLASS: &'static str = "assistant";
/// #     type State = ();
/// // In `impl Agent for Assistant`:
/// async fn on_schedule(&self, due: &Due) -> Result<(), BoxError> {
///     match due.name() {
///         "remind" => self.remind(&due.payload::<String>()?).await,
///         "report" => self.report().await,
///         name => Err(format!("there is no schedule `{name}`").into()),
///     }
/// }
/// # }
/// ```
pub struct Due {
    pub(super) row: ScheduleRow,
}

impl Due {
    /// Id of the schedule.
    pub fn id(&self) -> &str {
        &self.row.id
    }

    /// Name of the schedule.
    pub fn name(&self) -> &str {
        &self.row.name
    }

    /// Payload of the schedule.
    ///
    /// # Errors
    /// When it cannot be read as a `P`.
    pub fn payload<P: DeserializeOwned>(&self) -> Result<P> {
        payload(&self.row)
    }

    /// Time at which it was due, UTC.
    ///
    /// It is the same in every attempt, so that together with the id it is an idempotency key.
    pub fn scheduled(&self) -> SystemTime {
        from_ms(self.row.due_ms)
    }

    /// Number of the attempt for this due time, from 1.
    ///
    /// Attempts that ended with the process are not counted.
    pub fn attempt(&self) -> u32 {
        self.row.attempts.saturating_add(1)
    }
}

impl fmt::Debug for Due {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Due")
            .field("id", &self.row.id)
            .field("name", &self.row.name)
            .field("payload", &self.row.payload)
            .field("scheduled", &self.scheduled())
            .field("attempt", &self.attempt())
            .finish()
    }
}

/// Reads the payload of a schedule.
pub(super) fn payload<P: DeserializeOwned>(row: &ScheduleRow) -> Result<P> {
    exact::from_str(&row.payload).map_err(|why| {
        let wanted = std::any::type_name::<P>();
        Error::new(ErrorKind::Value, format!("the payload of schedule `{}` ({}) cannot be read as `{wanted}`: {why}", row.name, row.id))
    })
}
