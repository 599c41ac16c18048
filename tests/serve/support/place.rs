//! A database, and the servers that come and go over it.
use std::net::{Ipv4Addr, SocketAddr};

use forever::agent::AgentHandle;
use forever::prelude::*;
use forever::serve::Server;
use forever::testing::VirtualClock;
use forever::{Builder, Forever, Result};
use forever_testkit::gates::Gates;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::client::Client;
use super::request::{Answered, request};
use super::scripted::Scripted;
use super::{panics, soon, until};

pub(crate) struct Place {
    folder: tempfile::TempDir,
    in_memory: bool,
    clock: Option<VirtualClock>,
    pub(crate) gates: Gates,
}

impl Place {
    pub(crate) fn new() -> Self {
        panics::watch();
        Place { folder: tempfile::tempdir().unwrap(), in_memory: false, clock: None, gates: Gates::new() }
    }

    /// One without a file, for many answers and one server.
    pub(crate) fn in_memory() -> Self {
        Place { in_memory: true, ..Place::new() }
    }

    /// One whose servers wait for clients by this clock.
    pub(crate) fn by(clock: &VirtualClock) -> Self {
        Place { clock: Some(clock.clone()), ..Place::new() }
    }

    pub(crate) fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("chat.db")
    }

    pub(crate) fn builder(&self) -> Builder {
        let gates = self.gates.clone();
        let builder = Forever::builder().chat_agent(move |_| Scripted { gates: gates.clone() });
        let builder = if let Some(clock) = &self.clock { builder.clock(clock.clone()) } else { builder };
        if self.in_memory { builder.in_memory() } else { builder.sqlite(self.path()) }
    }

    /// Serves at a free port.
    pub(crate) async fn up(&self) -> Up {
        self.up_with(|server| server).await
    }

    pub(crate) async fn up_with(&self, with: impl FnOnce(Server) -> Server) -> Up {
        self.up_at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), with).await
    }

    /// Serves a runtime of this builder.
    pub(crate) async fn up_of(&self, builder: Builder) -> Up {
        Self::serve(builder, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), |server| server).await
    }

    pub(crate) async fn up_at(&self, address: SocketAddr, with: impl FnOnce(Server) -> Server) -> Up {
        Self::serve(self.builder(), address, with).await
    }

    async fn serve(builder: Builder, address: SocketAddr, with: impl FnOnce(Server) -> Server) -> Up {
        let forever = builder.open().await.unwrap();
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(with(Server::new(&forever)).listen(listener));
        Up { forever, address, serving }
    }
}

/// A server that serves.
pub(crate) struct Up {
    pub(crate) forever: Forever,
    pub(crate) address: SocketAddr,
    pub(crate) serving: JoinHandle<Result<()>>,
}

impl Up {
    pub(crate) fn agent(&self, name: &str) -> AgentHandle<Scripted> {
        self.forever.agent(name)
    }

    /// A client of an agent.
    pub(crate) async fn client(&self, agent: &str) -> Client {
        Client::connect(self.address, agent).await
    }

    /// One that has been told what there is.
    pub(crate) async fn settled(&self, agent: &str) -> Client {
        let mut client = self.client(agent).await;
        client.settled().await;
        client
    }

    /// A client, as soon as it has a place.
    pub(crate) async fn let_in(&self, agent: &str) -> Client {
        let mut client = None;
        until("a place is given back", async || {
            client = Client::try_connect(self.address, &format!("/agents/chat-agent/{agent}"), &[]).await.ok();
            client.is_some()
        })
        .await;
        client.unwrap()
    }

    /// Whether there is room for a client.
    pub(crate) async fn has_room(&self, agent: &str) -> bool {
        match Client::try_connect(self.address, &format!("/agents/chat-agent/{agent}"), &[]).await {
            Ok(mut client) => {
                client.settled().await;
                client.leave().await;
                true
            }
            Err((status, said)) => {
                assert!(matches!(status, 429 | 503), "{status} {said}");
                false
            }
        }
    }

    pub(crate) async fn get(&self, path: &str) -> Answered {
        request(self.address, &format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address)).await
    }

    /// Ends as a program does that is asked to.
    pub(crate) async fn down(self) {
        soon("the runtime closes", async { self.forever.close().await }).await.unwrap();
        soon("`listen` returns", self.serving).await.unwrap().unwrap();
    }
}
