//! A program whose own names come by a glob import, beside the prelude's.
#![deny(warnings)]
mod bank {
    #[derive(Clone, serde::Serialize, serde::Deserialize)]
    pub(crate) struct Log(pub(crate) Vec<String>);
    pub(crate) struct Connection;
    pub(crate) struct Agent;
    pub(crate) struct AgentHandle;
    pub(crate) struct Op;
    pub(crate) struct Schedule;
    pub(crate) struct Due;
    pub(crate) struct KeepAlive;
    pub(crate) struct BoxError;
    pub(crate) struct Message;
    pub(crate) struct Clock;
    pub(crate) struct Error;
    pub(crate) struct Event;
    pub(crate) struct Turn;
    pub(crate) struct Builder;

    impl Connection {
        pub(crate) async fn charge(&self, _: &Op) -> anyhow::Result<u32> {
            Ok(1)
        }
    }
}

use bank::*;
use forever::prelude::*;

#[fiber]
async fn checkout(connection: Res<Connection>, log: Log) -> anyhow::Result<Log> {
    let mut log = log;
    let receipt = step!(connection.charge(&Op).await?);
    log.0.push(receipt.to_string());
    step!("told", tell(&log).await?);
    Ok(log)
}

async fn tell(_: &Log) -> anyhow::Result<()> {
    let _ = (Agent, AgentHandle, Schedule, Due, KeepAlive, BoxError, Message, Clock, Error, Event, Turn);
    Ok(())
}

pub(crate) fn main() {
    let _ = checkout(Log(Vec::new()));
    let _: Builder = Builder;
}
