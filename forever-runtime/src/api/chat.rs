//! Pending interactions of chats, over all agents.
use crate::api::forever::Forever;
use crate::chat::PendingInteractions;
use crate::store::InteractionQuery;

impl Forever {
    /// The pending interactions of all chats, the latest first: tool calls that wait for a person
    /// or their client.
    ///
    /// ```
    /// # use forever_runtime as forever;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> forever::Result<()> {
    /// # let forever = forever::Forever::builder().in_memory().open().await?;
    /// let page = forever.pending_interactions().class("support").limit(20).await?;
    /// for asked in &page.interactions {
    ///     println!("{}: may `{}` be run with {}?", asked.agent, asked.tool, asked.input);
    /// }
    /// # assert_eq!(page.next, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// An interaction is listed from the end of its turn until it is answered, or its message is
    /// replaced or deleted. The list is read from an index of the pending messages, so its cost
    /// does not depend on the number of chats.
    pub fn pending_interactions(&self) -> PendingInteractions {
        PendingInteractions::new(self.exec_link(), InteractionQuery::default())
    }
}
