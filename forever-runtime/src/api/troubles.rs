//! What is wrong, for people: fibers that stopped, retried steps and failed turns, grouped by their
//! reasons, with how many, since when and how often by hour. Comes in: short rows of the store,
//! bounded. Goes out: groups, whose texts are those of one of their fibers, without secrets.
use std::collections::BTreeMap;

use serde::Serialize;

use crate::api::chat_views::{self, TurnView};
use crate::api::view::{self, LocalView, Stored};
use crate::error::Result;
use crate::exec::executor::Executor;
use crate::runtime::handle::FiberStatus;
use crate::secret::shown;
use crate::store::{FiberQuery, FiberRef, FiberState, LONGEST_QUEUE, QueueRow, RetryRow, Seq, StopRow};

/// How many stopped fibers, retried steps and messages are looked at.
const LOOKED_AT: u32 = 10_000;

/// How many stopped fibers of one function in one state are looked at, at least.
const FEWEST: u32 = 100;

/// How many failed turns are looked at.
const TURNS: u32 = 500;

/// How many groups there are at most; the others are one for each function.
const GROUPS: usize = 50;

/// The states of fibers that need a person.
const STOPPED: [FiberState; 3] = [FiberState::Failed, FiberState::Parked, FiberState::Interrupted];

const HOUR_MS: i64 = 3_600_000;

/// How long failed turns are shown.
const DAY_MS: i64 = 24 * HOUR_MS;

/// Kind of a [`TroubleView`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TroubleKind {
    /// Fibers that failed.
    Failed,
    /// Fibers that are parked.
    Parked,
    /// Fibers that were interrupted.
    Interrupted,
    /// Fibers with a step that is retried.
    Retrying,
    /// Turns of chats that failed or were interrupted in the last 24 hours.
    Turn,
}

/// Fibers or turns that are in trouble for the same reason.
///
/// ```
/// # use forever_runtime as forever;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// # let forever = forever::Forever::builder().in_memory().open().await?;
/// for trouble in forever.view_troubles().await? {
///     let or_more = if trouble.at_least { " or more" } else { "" };
///     println!("{}{or_more} of {}: {}", trouble.count, trouble.name, trouble.reason);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TroubleView {
    /// Kind.
    pub kind: TroubleKind,
    /// Stored name of the function, or the class of the chats.
    pub name: String,
    /// The step that is retried.
    pub step: Option<String>,
    /// The reason of the newest. Numbers and ids in it may be others in the other ones.
    pub reason: String,
    /// How many.
    pub count: u64,
    /// Whether there are more, which were not looked at.
    pub at_least: bool,
    /// When the first of them began to be in trouble, in milliseconds since 1970. Earlier if there
    /// are [more](Self::at_least).
    pub first_ms: i64,
    /// When the last of them did.
    pub last_ms: i64,
    /// How many of them did in each of the last 24 hours, the last hour last.
    pub hours: [u64; 24],
    /// Id of the newest fiber.
    pub example: Option<String>,
    /// Its idempotency key.
    pub key: Option<String>,
    /// Its agent, or the newest chat: class and name.
    pub agent: Option<(String, String)>,
}

/// Fiber with many messages that it has not received.
///
/// ```
/// # use forever_runtime as forever;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> forever::Result<()> {
/// # let forever = forever::Forever::builder().in_memory().open().await?;
/// for queue in forever.view_queues(10, 8).await? {
///     println!("{} has not received {} messages", queue.fiber.id, queue.messages);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct QueueView {
    /// The fiber.
    pub fiber: FiberStatus,
    /// Number of messages.
    pub messages: u64,
    /// Whether there are more.
    pub at_least: bool,
    /// When the first of them was sent, in milliseconds since 1970.
    pub first_ms: i64,
    /// When the last of them was sent.
    pub last_ms: i64,
}

/// Child of a fiber.
///
/// ```
/// # use forever_runtime as forever;
/// # async fn show(forever: &forever::Forever) -> forever::Result<()> {
/// for child in forever.view_children("hire-3", 50).await? {
///     println!("{} {:?}", child.status.name, child.arguments);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ChildView {
    /// Its status.
    #[serde(flatten)]
    pub status: FiberStatus,
    /// Its arguments.
    pub arguments: Vec<LocalView>,
}

/// Rows with the same reason.
struct Group {
    count: u64,
    first_ms: i64,
    last_ms: i64,
    hours: [u64; 24],
    /// The highest number.
    newest: Seq,
}

impl Group {
    fn none() -> Self {
        Group { count: 0, first_ms: i64::MAX, last_ms: i64::MIN, hours: [0; 24], newest: Seq::MIN }
    }

    fn add(&mut self, seq: Seq, at_ms: i64, now_ms: i64) {
        self.count += 1;
        self.first_ms = self.first_ms.min(at_ms);
        self.last_ms = self.last_ms.max(at_ms);
        self.newest = self.newest.max(seq);
        let ago = usize::try_from(now_ms.saturating_sub(at_ms).max(0) / HOUR_MS).unwrap_or(usize::MAX);
        if let Some(hour) = 23_usize.checked_sub(ago).and_then(|hour| self.hours.get_mut(hour)) {
            *hour += 1;
        }
    }

    fn join(&mut self, other: &Group) {
        self.count += other.count;
        self.first_ms = self.first_ms.min(other.first_ms);
        self.last_ms = self.last_ms.max(other.last_ms);
        self.newest = self.newest.max(other.newest);
        self.hours.iter_mut().zip(other.hours).for_each(|(hour, more)| *hour += more);
    }
}

/// What the rows of a group have in common: kind, function, step and reason. One without a reason
/// has the rows of many.
type Common = (TroubleKind, String, Option<String>, Option<String>);

/// All that is wrong, what needs a person first, and of each kind the largest group first.
pub(crate) async fn troubles(exec: &Executor) -> Result<Vec<TroubleView>> {
    let (store, now_ms) = (&exec.runtime.store, exec.runtime.now_ms());
    let mut groups: BTreeMap<Common, Group> = BTreeMap::new();
    let mut full: Vec<(TroubleKind, String)> = Vec::new();
    let stopped = store.counts(STOPPED.to_vec()).await?;
    let limit = LOOKED_AT.checked_div(u32::try_from(stopped.len()).unwrap_or(LOOKED_AT)).unwrap_or(LOOKED_AT).max(FEWEST);
    for count in stopped {
        let kind = kind_of(count.state);
        let rows = store.stops(count.name.clone(), count.state, limit).await?;
        if rows.len() >= limit as usize {
            full.push((kind, count.name.clone()));
        }
        for StopRow { seq, reason, changed_ms } in rows {
            let common = (kind, count.name.clone(), None, Some(shape(shown(reason.as_deref().unwrap_or_default()))));
            groups.entry(common).or_insert_with(Group::none).add(seq, changed_ms, now_ms);
        }
    }
    let retries = store.retries(LOOKED_AT).await?;
    let more_retries = retries.len() >= LOOKED_AT as usize;
    for RetryRow { seq, name, step, error, started_ms, .. } in retries {
        let common = (TroubleKind::Retrying, name, Some(step), Some(shape(shown(&error))));
        groups.entry(common).or_insert_with(Group::none).add(seq, started_ms, now_ms);
    }
    let mut views = Vec::new();
    for ((kind, name, step, reason), group) in largest(groups) {
        let example = store.find(FiberRef::Seq(group.newest)).await?;
        let example = match example {
            Some(row) => Some(Stored::of(exec, row).await.status(exec)),
            // It has been deleted since.
            None => None,
        };
        let at_least = full.iter().any(|full| *full == (kind, name.clone())) || kind == TroubleKind::Retrying && more_retries;
        let of_example = example.as_ref().and_then(|status| match kind {
            TroubleKind::Retrying => status.retry.as_ref().map(|retry| retry.error.clone()),
            _ => status.reason.clone(),
        });
        let reason = match reason {
            Some(shape) => of_example.unwrap_or(shape),
            None => "for other reasons".to_owned(),
        };
        let agent = example.as_ref().and_then(|status| status.agent.clone());
        let (id, key) = example.map_or((None, None), |status| (Some(status.id), status.key));
        views.push(group.view((kind, name, step), reason, at_least, id, key, agent));
    }
    views.extend(failed_turns(exec, now_ms).await?);
    views.sort_by_key(|view| (view.kind, std::cmp::Reverse(view.count)));
    Ok(views)
}

impl Group {
    fn view(
        self,
        (kind, name, step): (TroubleKind, String, Option<String>),
        reason: String,
        at_least: bool,
        example: Option<String>,
        key: Option<String>,
        agent: Option<(String, String)>,
    ) -> TroubleView {
        let Group { count, first_ms, last_ms, hours, .. } = self;
        TroubleView { kind, name, step, reason, count, at_least, first_ms, last_ms, hours, example, key, agent }
    }
}

fn kind_of(state: FiberState) -> TroubleKind {
    match state {
        FiberState::Failed => TroubleKind::Failed,
        FiberState::Parked => TroubleKind::Parked,
        _ => TroubleKind::Interrupted,
    }
}

/// The largest groups. The others become one for each kind and function.
fn largest(groups: BTreeMap<Common, Group>) -> Vec<(Common, Group)> {
    let mut all: Vec<(Common, Group)> = groups.into_iter().collect();
    all.sort_by_key(|(_, group)| std::cmp::Reverse(group.count));
    let mut others: BTreeMap<Common, Group> = BTreeMap::new();
    for ((kind, name, ..), group) in all.split_off(GROUPS.min(all.len())) {
        others.entry((kind, name, None, None)).or_insert_with(Group::none).join(&group);
    }
    all.extend(others.into_iter().take(GROUPS));
    all
}

/// The failed turns of the last day, in groups.
async fn failed_turns(exec: &Executor, now_ms: i64) -> Result<Vec<TroubleView>> {
    let turns = chat_views::failed_turns(&*exec.runtime.store, None, TURNS).await?;
    let at_least = turns.len() == TURNS as usize;
    let mut groups: BTreeMap<(String, String), (Group, TurnView)> = BTreeMap::new();
    for turn in turns {
        let at_ms = turn.settled_ms.unwrap_or(turn.created_ms);
        if now_ms.saturating_sub(at_ms) > DAY_MS {
            continue;
        }
        let common = (turn.class.clone(), shape(&reason_of(&turn)));
        let number = turn.number;
        // The newest comes first.
        groups.entry(common).or_insert_with(|| (Group::none(), turn)).0.add(number, at_ms, now_ms);
    }
    let view = |((class, _), (group, turn)): (_, (Group, TurnView))| {
        let reason = reason_of(&turn);
        group.view((TroubleKind::Turn, class, None), reason, at_least, None, turn.key, Some((turn.class, turn.agent)))
    };
    Ok(groups.into_iter().map(view).collect())
}

/// Why a turn failed.
fn reason_of(turn: &TurnView) -> String {
    match (&turn.reason, &turn.error) {
        (Some(reason), Some(error)) if !error.starts_with(reason) => format!("{reason} ({error})"),
        (_, Some(error)) => error.clone(),
        (Some(reason), None) => reason.clone(),
        (None, None) => format!("it is {}", turn.state),
    }
}

/// A text without what differs from fiber to fiber: `#` stands for each word with a digit in it.
fn shape(reason: &str) -> String {
    let is_word = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    let (mut shape, mut rest) = (String::new(), reason);
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| is_word(c) != is_word(first)).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        shape.push_str(if is_word(first) && run.contains(|c: char| c.is_ascii_digit()) { "#" } else { run });
        rest = after;
    }
    shape
}

/// Fibers with at least `least` messages that they have not received, at most `limit`.
pub(crate) async fn queues(exec: &Executor, least: u32, limit: u32) -> Result<Vec<QueueView>> {
    let mut views = Vec::new();
    for QueueRow { seq, messages, first_ms, last_ms } in exec.runtime.store.queues(LOOKED_AT, least, limit).await? {
        let Some(row) = exec.runtime.store.find(FiberRef::Seq(seq)).await? else { continue };
        let fiber = Stored::of(exec, row).await.status(exec);
        let most = u64::from(LONGEST_QUEUE);
        let (messages, at_least) = if messages >= most { (most - 1, true) } else { (messages, false) };
        views.push(QueueView { fiber, messages, at_least, first_ms, last_ms });
    }
    Ok(views)
}

/// The first children of a fiber.
pub(crate) async fn children(exec: &Executor, id: &str, limit: u32) -> Result<Vec<ChildView>> {
    let query = FiberQuery { parent: Some(id.to_owned()), ..FiberQuery::default() };
    let mut children = Vec::new();
    for row in exec.runtime.store.list(query, Seq::MIN, limit).await? {
        let view::FiberView { status, arguments, .. } = Stored::of(exec, row).await.view(exec, Vec::new(), Vec::new());
        children.push(ChildView { status, arguments });
    }
    Ok(children)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_differ_in_numbers_are_one() {
        assert_eq!(shape("limit 3 of order-17 is too low"), shape("limit 40 of order-2 is too low"));
        assert_ne!(shape("limit is too low"), shape("limit is too high"));
        assert_eq!(shape("a1"), "#");
        assert_eq!(shape(""), "");
        assert_eq!(shape("é2 – (x9)"), "# – (#)");
    }

    #[test]
    fn group_counts_the_last_24_hours_by_hour() {
        let mut group = Group::none();
        let now_ms = 100 * HOUR_MS;
        for at_ms in [now_ms + 5, now_ms, now_ms - 1, now_ms - HOUR_MS, now_ms - 24 * HOUR_MS + 1, now_ms - 24 * HOUR_MS, i64::MIN] {
            group.add(at_ms, at_ms, now_ms);
        }
        let mut hours = [0; 24];
        (hours[23], hours[22], hours[0]) = (3, 1, 1);
        assert_eq!((group.hours, group.count, group.newest), (hours, 7, now_ms + 5));
        assert_eq!((group.first_ms, group.last_ms), (i64::MIN, now_ms + 5));
    }

    #[test]
    fn small_groups_beyond_the_most_are_one_for_each_function() {
        let groups = (0..GROUPS + 10).map(|n| {
            let mut group = Group::none();
            (0..=n).for_each(|seq| group.add(i64::try_from(seq).unwrap(), 5, 10));
            ((TroubleKind::Failed, "work".to_owned(), None, Some(format!("{n:03}"))), group)
        });
        let kept = largest(groups.collect());
        assert_eq!(kept.len(), GROUPS + 1);
        let ((.., reason), others) = kept.last().unwrap();
        assert_eq!((reason, others.count), (&None, (1..=10).sum()));
    }
}
