//! From a stored fiber to an export.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::{Branch, Closed, Fiber, FiberExport, LayoutText, Message, Operation, Stand, VERSION};
use crate::api::copies::{lines, log_of, whole};
use crate::api::edit::is_editable;
use crate::api::view::{Stored, arguments};
use crate::error::{Error, ErrorKind, Result};
use crate::exec::executor::Executor;
use crate::frame::snapshot::Snapshot;
use crate::history::with_whole_values;
use crate::secret::{are_secret, secret_arguments};
use crate::store::{FiberRow, HISTORY, LayoutRow, LoadedFiber, OpRecord, Seq};

/// Messages that are read at once.
const PAGE: u32 = 1000;

/// JSON that stands in the place of a withheld value.
const WITHHELD: &str = "{\"$withheld\":true}";

/// Exports one fiber. Leaves out what is secret, and remembers where.
struct Writer<'a> {
    exec: &'a Executor,
    stored: &'a Stored,
    /// Whether messages and earlier values may be secret.
    hides_values: bool,
    withheld: BTreeSet<String>,
}

pub(super) async fn export(exec: &Arc<Executor>, id: &str) -> Result<FiberExport> {
    let stored = Stored::read(exec, id).await?;
    let row = stored.row().clone();
    is_editable(exec, &row, "export")?;
    let loaded = match stored.loaded() {
        Some(loaded) => loaded.clone(),
        None => exec.runtime.store.load(row.seq).await?,
    };
    let mut writer = Writer { exec, stored: &stored, hides_values: stored.hides_values(exec), withheld: BTreeSet::new() };
    let mut loaded = whole(loaded).map_err(|why| writer.damaged(why))?;
    let closed = writer.closed(id).await?;
    Ok(FiberExport {
        forever_export: VERSION,
        exported_ms: exec.runtime.now_ms(),
        snapshot: writer.snapshot(&loaded)?,
        layouts: writer.layouts(&loaded)?,
        ops: writer.ops(&mut loaded).await?,
        branches: writer.branches(&mut loaded)?,
        messages: writer.messages(id).await?,
        closed,
        history: writer.history(row.seq).await?,
        fiber: writer.fiber(row, &loaded)?,
        withheld: writer.withheld,
    })
}

impl Writer<'_> {
    fn damaged(&self, why: impl std::fmt::Display) -> Error {
        Error::new(ErrorKind::Value, format!("failed to export fiber `{}`: {why}", self.stored.row().id))
    }

    /// A JSON text, unless it is or contains a secret.
    fn json(&mut self, name: &str, is_secret: bool, text: &str) -> Result<Box<RawValue>> {
        let text = if is_secret || self.stored.has_secret(text) {
            self.withheld.insert(name.to_owned());
            WITHHELD
        } else {
            text
        };
        RawValue::from_string(text.to_owned()).map_err(|why| self.damaged(format_args!("`{name}` is no JSON: {why}")))
    }

    /// A text, unless it is or contains a secret.
    fn text(&mut self, name: &str, is_secret: bool, text: String) -> Option<String> {
        if is_secret || self.stored.has_secret(&text) {
            self.withheld.insert(name.to_owned());
            return None;
        }
        Some(text)
    }

    fn raw(&self, value: &impl Serialize) -> Result<Box<RawValue>> {
        to_raw_value(value).map_err(|why| self.damaged(why))
    }

    fn fiber(&mut self, row: FiberRow, loaded: &LoadedFiber) -> Result<Fiber> {
        let mut args = BTreeMap::new();
        for (name, text) in arguments(&row.args) {
            let value = self.json(&name, self.stored.is_secret(0, &name), &text)?;
            args.insert(name, value);
        }
        let (is_secret, hides_result) = (are_secret(&row.args), self.stored.hides_result());
        let args = self.raw(&args)?;
        let marked = || RawValue::from_string(secret_arguments(args.get())).map_err(|why| self.damaged(why));
        Ok(Fiber {
            args: if is_secret { marked()? } else { args },
            key: row.key.and_then(|key| self.text("key", is_secret, key)),
            reason: row.reason.and_then(|reason| self.text("reason", false, reason)),
            metadata: row.metadata.map(|text| self.json("metadata", is_secret, &text)).transpose()?,
            result: row.result.map(|text| self.json("result", hides_result, &text)).transpose()?,
            id: row.id,
            name: row.name,
            class: row.agent.as_ref().map(|agent| agent.class.clone()),
            agent: row.agent.map(|agent| agent.name),
            parent: row.parent,
            state: row.state,
            restarts: loaded.restarts,
            checkpoints: loaded.number,
            created_ms: row.created_ms,
            finished_ms: row.finished_ms,
        })
    }

    fn snapshot(&mut self, loaded: &LoadedFiber) -> Result<Option<Stand>> {
        let Some(text) = &loaded.snapshot else { return Ok(None) };
        let mut snapshot: Snapshot = serde_json::from_str(text).map_err(|why| self.damaged(why))?;
        let mut depth = 0;
        snapshot.each(|frame| {
            for (name, value) in &mut frame.locals {
                *value = self.json(name, self.stored.is_secret(depth, name), value.get())?;
            }
            depth += 1;
            Ok::<_, Error>(())
        })?;
        let hash = |layout: &LayoutRow| layout.hash.clone();
        let (layout, callees) = (loaded.layout.as_ref().map(hash), loaded.callees.iter().map(hash).collect());
        Ok(Some(Stand { main: self.raw(&snapshot)?, layout, callees }))
    }

    /// All layouts that the rest refers to.
    fn layouts(&self, loaded: &LoadedFiber) -> Result<Vec<LayoutText>> {
        let of_ops = loaded.ops.iter().filter_map(|op| op.layout.as_deref());
        let of_branches = loaded.branches.iter().filter_map(|branch| branch.layout.as_deref());
        let all = loaded.layout.iter().chain(&loaded.callees).chain(of_ops).chain(of_branches);
        let by_hash: BTreeMap<&str, &LayoutRow> = all.map(|layout| (layout.hash.as_str(), layout)).collect();
        let text = |row: &LayoutRow| {
            let layout =
                RawValue::from_string(row.layout.clone()).map_err(|why| self.damaged(format_args!("a layout is no JSON: {why}")))?;
            Ok(LayoutText { hash: row.hash.clone(), function: row.fiber.clone(), layout })
        };
        by_hash.into_values().map(text).collect()
    }

    /// The ledger, and the temporary operations of the step under way.
    async fn ops(&mut self, loaded: &mut LoadedFiber) -> Result<Vec<Operation>> {
        let store = &self.exec.runtime.store;
        let mut records: Vec<OpRecord> = store.ops(self.stored.seq()).await?.into_iter().map(|op| op.record).collect();
        for op in std::mem::take(&mut loaded.ops) {
            match records.iter_mut().find(|there| there.id == op.id && there.number == op.number) {
                Some(there) => *there = op,
                None => records.push(op),
            }
        }
        let mut ops = Vec::new();
        for op in records {
            let log = log_of(self.exec, self.stored.seq(), &op).await?;
            ops.push(self.op(op, &log)?);
        }
        Ok(ops)
    }

    fn op(&mut self, op: OpRecord, log: &[String]) -> Result<Operation> {
        let name = format!("operation {}", op.id);
        let hides = self.stored.hides_step(&op.function, &op.step);
        let (error, next_ms) = op.retry.map(|retry| (retry.error, retry.next_ms)).unzip();
        Ok(Operation {
            kind: op.kind.as_str().to_owned(),
            function: op.function,
            step: op.step,
            key: op.key.and_then(|key| self.text(&name, hides, key)),
            number: op.number,
            state: op.state,
            outcome: op.outcome.and_then(|outcome| self.text(&name, hides, outcome)),
            resolved: op.resolved,
            failed: op.failed,
            error: error.and_then(|error| self.text(&name, false, error)),
            next_ms,
            stash: op.stash.and_then(|stash| self.text(&name, hides, stash)),
            layout: op.layout.map(|layout| layout.hash.clone()),
            log: log.iter().map(|item| self.json(&name, hides, item)).collect::<Result<_>>()?,
            id: op.id,
        })
    }

    fn branches(&mut self, loaded: &mut LoadedFiber) -> Result<Vec<Branch>> {
        let mut branches = Vec::new();
        for branch in std::mem::take(&mut loaded.branches) {
            let is_secret = self.stored.hides_branch(&branch.branch);
            let value = self.json(&branch.branch, is_secret, &branch.data)?;
            branches.push(Branch { name: branch.branch, value, layout: branch.layout.map(|layout| layout.hash.clone()) });
        }
        Ok(branches)
    }

    async fn messages(&mut self, id: &str) -> Result<Vec<Message>> {
        let (mut messages, mut after) = (Vec::new(), i64::MIN);
        loop {
            let page = self.exec.runtime.store.pending_messages(id.to_owned(), after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(messages) };
            after = last.seq;
            for message in page {
                let value = self.json(&format!("message on {}", message.topic), self.hides_values, &message.data)?;
                messages.push(Message { topic: message.topic, value, sent_ms: message.sent_ms });
            }
        }
    }

    async fn closed(&self, id: &str) -> Result<Vec<Closed>> {
        let topics = self.exec.runtime.store.topics(id.to_owned()).await?.into_iter();
        Ok(topics.filter_map(|row| Some(Closed { topic: row.topic, checkpoint: row.closed? })).collect())
    }

    async fn history(&mut self, fiber: Seq) -> Result<Vec<Box<RawValue>>> {
        let items = lines(self.exec, fiber, HISTORY).await?;
        if self.hides_values && !items.is_empty() || items.iter().any(|item| self.stored.has_secret(item)) {
            // A value that is kept no longer may have been secret.
            self.withheld.insert("history".to_owned());
            return Ok(Vec::new());
        }
        let items = with_whole_values(&items).map_err(|why| self.damaged(format_args!("{why}")))?;
        let item = |item| RawValue::from_string(item).map_err(|why| self.damaged(format_args!("an item of its history is no JSON: {why}")));
        items.into_iter().map(item).collect()
    }
}
