//! Chats as a layer of the runtime: what they register, and what they do when it opens.
use std::sync::Arc;

use forever_runtime::__layers::{Engine, EngineAgents, Functions, Layer, Slot, chain};
use forever_runtime::Result;
use forever_runtime::store::BoxFuture;
use tracing::warn;

use crate::answer::{Answer, settle_left};
use crate::elsewhere::ChatWatcher;
use crate::registry::ChatRegistry;
use crate::retention;

impl Slot for ChatRegistry {
    fn entries(&self) -> usize {
        ChatRegistry::entries(self)
    }
}

impl Layer for ChatRegistry {
    fn shared_classes(&self) -> Vec<&'static str> {
        self.classes.names().collect()
    }

    fn register(self: Arc<Self>, functions: &mut Functions<'_>) -> Result<()> {
        if !self.classes.is_empty() {
            functions.add::<Answer>(self)?;
        }
        Ok(())
    }

    fn open(self: Arc<Self>, engine: &Engine, agents: EngineAgents) {
        ChatRegistry::open(&self, agents);
        retention::listen(engine, &self);
    }

    fn recover(self: Arc<Self>, engine: Engine) -> BoxFuture<'static, Result<()>> {
        Box::pin(async move {
            engine.watch(ChatWatcher::new(&engine, &self));
            settle_orphans(&engine, &self).await?;
            retention::set_alarm(&engine, &self);
            Ok(())
        })
    }
}

/// Settles the turns whose fibers have ended.
async fn settle_orphans(engine: &Engine, chats: &Arc<ChatRegistry>) -> Result<()> {
    retention::correct(engine).await;
    for left in engine.store().orphaned_turns().await? {
        let settled = async {
            // A turn that cannot be read does not delay the others.
            match engine.store().turn_by_seq(left).await? {
                Some(row) => settle_left(engine, chats, &row).await,
                None => Ok(()),
            }
        };
        if let Err(error) = settled.await {
            warn!(turn.seq = left, error = %chain(&error), "a turn that was left could not be settled");
        }
    }
    Ok(())
}
