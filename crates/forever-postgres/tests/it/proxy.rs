//! A proxy in front of a server: it can stop forwarding, and cut a connection at a statement.
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;

/// What is done with bytes on their way to the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Forward,
    /// The connection is cut, and the server never sees them.
    CutBefore,
    /// The server gets them, and the client never hears of it.
    CutAfter,
}

/// Which bytes are forwarded; the others are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) to_server: bool,
    pub(crate) to_client: bool,
}

impl Link {
    const WHOLE: Link = Link { to_server: true, to_client: true };
}

type Hook = dyn FnMut(&[u8]) -> Fate + Send;

/// A proxy.
#[derive(Clone)]
pub(crate) struct Proxy {
    port: u16,
    link: watch::Sender<Link>,
    hook: Arc<Mutex<Box<Hook>>>,
}

impl Proxy {
    pub(crate) async fn start(socket: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Proxy {
            port: listener.local_addr().unwrap().port(),
            link: watch::channel(Link::WHOLE).0,
            hook: Arc::new(Mutex::new(Box::new(|_: &[u8]| Fate::Forward))),
        };
        let accepts = proxy.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(accepts.clone().connection(client, socket.clone()));
            }
        });
        proxy
    }

    pub(crate) fn url(&self) -> String {
        format!("host=127.0.0.1 port={} user=postgres dbname=postgres", self.port)
    }

    /// Keeps everything in both directions until [`heal`](Self::heal).
    pub(crate) fn partition(&self) {
        self.cut(Link { to_server: false, to_client: false });
    }

    /// Keeps what goes in one direction or both, until [`heal`](Self::heal).
    pub(crate) fn cut(&self, link: Link) {
        self.link.send_replace(link);
    }

    pub(crate) fn heal(&self) {
        self.link.send_replace(Link::WHOLE);
    }

    /// Decides about what is sent from now on.
    pub(crate) fn on_sent(&self, hook: impl FnMut(&[u8]) -> Fate + Send + 'static) {
        *self.hook.lock().unwrap() = Box::new(hook);
    }

    async fn connection(self, client: TcpStream, socket: PathBuf) {
        let Ok(server) = UnixStream::connect(socket).await else { return };
        client.set_nodelay(true).unwrap();
        let (mut from_client, mut to_client) = client.into_split();
        let (mut from_server, mut to_server) = server.into_split();
        let (mut link, mut back) = (self.link.subscribe(), self.link.subscribe());
        let cut = Arc::new(AtomicBool::new(false));
        let is_cut = Arc::clone(&cut);
        let sent = async move {
            let mut bytes = vec![0; 1 << 16];
            while let Ok(n @ 1..) = from_client.read(&mut bytes).await {
                link.wait_for(|link| link.to_server).await.unwrap();
                let fate = self.hook.lock().unwrap()(&bytes[..n]);
                cut.fetch_or(fate != Fate::Forward, Ordering::SeqCst);
                if fate != Fate::CutBefore && to_server.write_all(&bytes[..n]).await.is_err() {
                    break;
                }
                match fate {
                    Fate::Forward => {}
                    Fate::CutBefore => break,
                    // The other direction ends with the answer.
                    Fate::CutAfter => std::future::pending().await,
                }
            }
        };
        let answered = async move {
            let mut bytes = vec![0; 1 << 16];
            while let Ok(n @ 1..) = from_server.read(&mut bytes).await {
                back.wait_for(|link| link.to_client).await.unwrap();
                if is_cut.load(Ordering::SeqCst) || to_client.write_all(&bytes[..n]).await.is_err() {
                    break;
                }
            }
        };
        tokio::select! {
            () = sent => {}
            () = answered => {}
        }
    }
}
