//! The state of the layers above the runtime, by type.
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// State of a layer above the runtime, which the runtime keeps for it.
///
/// The runtime cannot name its type. It is kept apart from the resources of the program.
pub trait Slot: Any + Send + Sync + fmt::Debug {
    /// Number of entries that it holds in memory for single agents, chats and turns.
    fn entries(&self) -> usize;
}

/// The states of all layers above a runtime.
#[derive(Debug, Default)]
pub(crate) struct Slots(Vec<Arc<dyn Slot>>);

impl Slots {
    pub(crate) fn add(&mut self, slot: Arc<dyn Slot>) {
        self.0.push(slot);
    }

    /// The state of a layer, by its type.
    pub(crate) fn get<T: Slot>(&self) -> Option<Arc<T>> {
        let found = |slot: &Arc<dyn Slot>| Arc::<dyn Any + Send + Sync>::downcast(Arc::<dyn Slot>::clone(slot)).ok();
        self.0.iter().find_map(found)
    }

    /// Number of entries of all layers.
    #[cfg(feature = "testing")]
    pub(crate) fn entries(&self) -> usize {
        self.0.iter().map(|slot| slot.entries()).sum()
    }
}
