//! The claim of one activation, as everything that writes under it sees it.
use std::sync::{Arc, Weak};

use crate::error::Result;
use crate::runtime::active::Control;
use crate::store::Claim;

/// The claim that the writes of an activation are conditional on.
#[derive(Debug)]
pub struct Fence {
    claim: Claim,
    /// The activation that stops when the claim is lost. A hook has none: it gets the error.
    control: Option<Weak<Control>>,
}

impl Fence {
    pub(crate) fn new(claim: Claim, control: Option<&Arc<Control>>) -> Self {
        Fence { claim, control: control.map(Arc::downgrade) }
    }

    /// The claim.
    pub fn claim(&self) -> Claim {
        self.claim
    }

    /// The activation, while there is one.
    pub(crate) fn control(&self) -> Option<Arc<Control>> {
        self.control.as_ref().and_then(Weak::upgrade)
    }

    /// Stops the activation if a write of it has failed for a lost claim, and gives what the store
    /// gave.
    ///
    /// # Errors
    /// Those of the store.
    pub fn checked<T>(&self, stored: Result<T>) -> Result<T> {
        if let Err(error) = &stored
            && error.is_claim_lost()
            && let Some(control) = self.control()
        {
            control.lose();
        }
        stored
    }

    /// Waits for a write of the activation itself. When the claim is lost the activation is dropped
    /// where it waits. What has outlived its activation, in a task of the program, gets the error.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn guard<T>(&self, stored: impl Future<Output = Result<T>>) -> Result<T> {
        let stored = self.checked(stored.await);
        if let Err(error) = &stored
            && error.is_claim_lost()
            && let Some(gone) = self.control().map(|control| control.gone())
        {
            gone.await;
        }
        stored
    }
}
