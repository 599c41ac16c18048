//! Lists of fibers, and their deletion.
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::time::SystemTime;

use tracing::warn;

use crate::clock;
use crate::error::{Error, ErrorKind, Result};
use crate::exec::retention;
use crate::runtime::handle::FiberStatus;
use crate::runtime::link::Link;
use crate::runtime::state::Runtime;
use crate::store::{FiberQuery, FiberRow, FiberState, Seq};

/// Default and maximum number of fibers of a page.
const PAGE: (u32, u32) = (50, 1000);

/// How many fibers a page looks at where a condition has no index, and in how many pieces. Between
/// two pieces, fibers that the other conditions leave out are skipped by their indexes.
const SEARCHED: u32 = 20_000;
const PIECES: u32 = 40;

/// Fibers deleted in one transaction; bounds the wait of other writes.
pub(crate) const BATCH: u32 = 500;

/// Fiber filter; its conditions are combined by AND.
///
/// ```
/// # use forever_runtime as forever;
/// use forever::fiber::{FiberFilter, FiberState};
/// let old = FiberFilter::new().state(FiberState::Failed).name("research");
/// # let _ = old;
/// ```
#[derive(Debug, Clone, Default)]
pub struct FiberFilter {
    query: FiberQuery,
    /// Whether fibers with operations in doubt are deleted as well.
    in_doubt: bool,
    /// Whether the deleted fibers leave no tombstones.
    forget_keys: bool,
}

impl FiberFilter {
    /// A filter that matches all fibers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Limits the filter to fibers in this state; called several times, in one of these states.
    pub fn state(mut self, state: FiberState) -> Self {
        self.query.states.push(state);
        self
    }

    /// Limits the filter to the function with this stored name, or to closures with this name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.query.name = Some(name.into());
        self
    }

    /// Limits the filter to fibers of this agent.
    pub fn agent(mut self, class: impl Into<String>, name: impl Into<String>) -> Self {
        self.query.class = Some(class.into());
        self.query.agent = Some(name.into());
        self
    }

    /// Limits the filter to children of the fiber with this id.
    pub fn parent(mut self, id: impl Into<String>) -> Self {
        self.query.parent = Some(id.into());
        self
    }

    /// Limits the filter to the fiber with this idempotency key.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.query.key = Some(key.into());
        self
    }

    /// Limits the filter to fibers whose metadata is an object with this scalar field. Several
    /// fields are combined by AND.
    ///
    /// There is no index for it: a page of a list looks at a limited number of fibers, and may then
    /// be shorter than its limit, or empty, with a [`next`](Page::next).
    pub fn metadata(mut self, field: impl Into<String>, value: impl Into<serde_json::Value>) -> Self {
        self.query.metadata.push((field.into(), value.into().to_string()));
        self
    }

    /// Limits the filter to fibers accepted at this time or later. There is no index for it, as for
    /// [`metadata`](Self::metadata).
    pub fn created_from(mut self, time: SystemTime) -> Self {
        self.query.created_from_ms = Some(clock::ms(time));
        self
    }

    /// Limits the filter to fibers accepted before this time. There is no index for it, as for
    /// [`metadata`](Self::metadata).
    pub fn created_before(mut self, time: SystemTime) -> Self {
        self.query.created_before_ms = Some(clock::ms(time));
        self
    }

    /// Limits the filter to fibers whose state has changed at this time or later. There is no index
    /// for it, as for [`metadata`](Self::metadata).
    pub fn changed_from(mut self, time: SystemTime) -> Self {
        self.query.changed_from_ms = Some(clock::ms(time));
        self
    }

    /// Limits the filter to fibers with this text in the id, name, key, agent, reason or metadata.
    /// The case of ASCII letters is ignored. A reason that may repeat a value marked `#[secret]` is
    /// not searched.
    ///
    /// There is no index for it, as for [`metadata`](Self::metadata).
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.query.text = Some(text.into());
        self
    }

    /// Limits the filter to fibers with an operation in doubt. There is no index for it, as for
    /// [`metadata`](Self::metadata).
    pub fn in_doubt(mut self) -> Self {
        self.query.only_in_doubt = true;
        self
    }

    /// Limits the filter to fibers with a step that has failed and is retried.
    ///
    /// There is no index for it, as for [`metadata`](Self::metadata).
    pub fn retrying(mut self) -> Self {
        self.query.only_retrying = true;
        self
    }

    /// Limits the filter to fibers that ended before this time.
    pub fn ended_before(mut self, time: SystemTime) -> Self {
        self.query.ended_before_ms = Some(clock::ms(time));
        self
    }

    /// Includes fibers with operations in doubt in [`Forever::delete`](crate::Forever::delete).
    ///
    /// The ledger is the only record that such an operation may have been carried out. No effect on
    /// a list.
    pub fn delete_in_doubt(mut self) -> Self {
        self.in_doubt = true;
        self
    }

    /// Forgets the keys and ids of fibers that [`Forever::delete`](crate::Forever::delete) deletes.
    ///
    /// Those of fibers deleted earlier are forgotten too: the next spawn with one of them begins a
    /// new fiber, with new operations. The records of fibers deleted earlier do not name their
    /// agents, so with [`agent`](Self::agent) they stay. No effect on a list.
    pub fn forget_keys(mut self) -> Self {
        self.forget_keys = true;
        self
    }
}

/// Query for a page of fibers, sent by `.await`.
///
/// Made by [`Forever::fibers`](crate::Forever::fibers).
///
/// ```
/// # use forever_runtime as forever;
/// use forever::fiber::FiberState;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// # let forever = forever::Forever::builder().in_memory().open().await?;
/// let failed = || forever.fibers().state(FiberState::Failed);
/// let mut query = Some(failed());
/// while let Some(fibers) = query {
///     let page = fibers.await?;
///     for fiber in &page.fibers {
///         println!("{} of {}: {:?}", fiber.id, fiber.name, fiber.reason);
///     }
///     query = page.next.map(|cursor| failed().after(cursor));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "fibers are listed when this is awaited"]
pub struct Fibers {
    link: Link<Runtime>,
    filter: FiberFilter,
    limit: u32,
    after: Option<Seq>,
    newest_first: bool,
    within: u32,
}

/// A page of fibers, in the order in which they were accepted, or in the reverse order.
///
/// See [`Fibers`] for an example.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The fibers.
    pub fibers: Vec<FiberStatus>,
    /// Start of the next page, if there may be more; for [`Fibers::after`].
    ///
    /// Where a condition has no index, a page with a next one may be short or empty.
    pub next: Option<Cursor>,
}

/// Position in the list of fibers.
///
/// With serde it is a number, for an HTTP API. See [`Fibers`] for an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Cursor(Seq);

impl Fibers {
    pub(crate) fn new(link: Link<Runtime>) -> Self {
        Fibers { link, filter: FiberFilter::new(), limit: PAGE.0, after: None, newest_first: false, within: SEARCHED }
    }

    /// Sets the filter, replacing earlier conditions.
    pub fn filter(mut self, filter: FiberFilter) -> Self {
        self.filter = filter;
        self
    }

    /// Limits the list to fibers in this state; called several times, in one of these states.
    ///
    /// [`FiberState::Completed`] has an index for each function alone: without
    /// [`name`](Self::name), a page looks at a limited number of fibers, as for
    /// [`FiberFilter::metadata`].
    pub fn state(mut self, state: FiberState) -> Self {
        self.filter = self.filter.state(state);
        self
    }

    /// Limits the list to the function with this stored name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.filter = self.filter.name(name);
        self
    }

    /// Limits the list to fibers of this agent.
    pub fn agent(mut self, class: impl Into<String>, name: impl Into<String>) -> Self {
        self.filter = self.filter.agent(class, name);
        self
    }

    /// Sets the maximum number of fibers of the page. Defaults to 50, at most 1000.
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = limit.clamp(1, PAGE.1);
        self
    }

    /// Continues after the page that returned this cursor.
    pub fn after(mut self, cursor: Cursor) -> Self {
        self.after = Some(cursor.0);
        self
    }

    /// The newest first.
    pub fn newest_first(mut self) -> Self {
        self.newest_first = true;
        self
    }

    /// Sets how many fibers a page looks at where a condition has no index. Defaults to 20 000.
    ///
    /// A page may then be shorter than the limit although there are more: it has a
    /// [`next`](Page::next) until all were looked at.
    pub fn within(mut self, fibers: u32) -> Self {
        self.within = fibers.max(1);
        self
    }

    async fn read(self) -> Result<Page> {
        let runtime = self.link.get()?;
        let (rows, next) = self.rows().await?;
        Ok(Page { fibers: rows.into_iter().map(|row| FiberStatus::of(row).live(&runtime)).collect(), next })
    }

    /// The rows of the page, and where the next one begins.
    pub(crate) async fn rows(self) -> Result<(Vec<FiberRow>, Option<Cursor>)> {
        let runtime = self.link.get()?;
        let mut after = self.after.unwrap_or(if self.newest_first { Seq::MAX } else { Seq::MIN });
        let query = FiberQuery { newest_first: self.newest_first, ..self.filter.query };
        let Some(by_index) = without_search(&query) else {
            let rows = runtime.store.list(query, after, self.limit).await?;
            let next = rows.last().filter(|_| is_full(&rows, self.limit)).map(|row| Cursor(row.seq));
            return Ok((rows, next));
        };
        let piece = Seq::from(self.within.div_ceil(PIECES));
        let mut found = Vec::new();
        for _ in 0..PIECES {
            // Where the next fiber is that an index finds.
            let first = runtime.store.list(by_index.clone(), after, 1).await?;
            let Some(first) = first.first().map(|row| row.seq) else { return Ok((found, None)) };
            let mut query = query.clone();
            if query.newest_first {
                query.from_seq = Some(first.saturating_sub(piece - 1));
            } else {
                query.to_seq = Some(first.saturating_add(piece - 1));
            }
            let last = query.from_seq.or(query.to_seq);
            let left = self.limit - u32::try_from(found.len()).unwrap_or(self.limit);
            let rows = runtime.store.list(query, after, left).await?;
            let is_full = is_full(&rows, left);
            found.extend(rows);
            if is_full {
                break;
            }
            after = last.unwrap_or(first);
        }
        let next = if is_full(&found, self.limit) { found.last().map(|row| row.seq) } else { Some(after) };
        Ok((found, next.map(Cursor)))
    }
}

fn is_full(rows: &[FiberRow], limit: u32) -> bool {
    u32::try_from(rows.len()) == Ok(limit)
}

/// The conditions of a query that have an index; `None` if all have.
fn without_search(query: &FiberQuery) -> Option<FiberQuery> {
    let FiberQuery { states, name, agent, parent, key, text, metadata, .. } = query;
    let has_time = [query.created_from_ms, query.created_before_ms, query.changed_from_ms].iter().any(Option::is_some);
    // Those that have completed are in the index of their function alone.
    let by_state = !states.contains(&FiberState::Completed) || [name, agent, parent, key].into_iter().any(Option::is_some);
    let is_searched = !by_state || text.is_some() || !metadata.is_empty() || has_time || query.only_in_doubt || query.only_retrying;
    is_searched.then(|| FiberQuery {
        states: if by_state { states.clone() } else { Vec::new() },
        text: None,
        metadata: Vec::new(),
        created_from_ms: None,
        created_before_ms: None,
        changed_from_ms: None,
        only_in_doubt: false,
        only_retrying: false,
        ..query.clone()
    })
}

impl IntoFuture for Fibers {
    type Output = Result<Page>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.read())
    }
}

/// Deletes the ended fibers that match the filter; returns how many.
pub(crate) async fn delete(runtime: &Arc<Runtime>, filter: FiberFilter) -> Result<u64> {
    let mut query = FiberQuery { exclude_in_doubt: !filter.in_doubt, ..filter.query };
    if let Some(open) = query.states.iter().find(|state| !state.is_final()) {
        return Err(Error::new(ErrorKind::InvalidState, format!("fibers that are {open} cannot be deleted: cancel or resolve them first")));
    }
    if query.states.is_empty() {
        query.states = vec![FiberState::Completed, FiberState::Failed, FiberState::Cancelled];
    }
    let deletion = retention::deletion(runtime, query, filter.forget_keys);
    let deleted = retention::delete(runtime, deletion.clone()).await?;
    if filter.forget_keys && deletion.query.class.is_none() {
        retention::forget(runtime, deletion, None).await?;
    }
    if deleted.held > 0 {
        warn!(
            fibers = deleted.held,
            "fibers were not deleted: rows of the program's own tables refer to them, or their own rows are damaged"
        );
    }
    Ok(deleted.count)
}
