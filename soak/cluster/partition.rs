//! A proxy between a worker and the server: it can cut one direction or both, or delay what goes
//! through.
//!
//! What is cut is kept, and arrives when the link is whole again, as with packets that are sent
//! again. So does the end of a connection.
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// State of the link between a worker and the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Link {
    Whole,
    Cut,
    /// The server does not hear the worker.
    CutToServer,
    /// The worker does not hear the server.
    CutToWorker,
    Slow(Duration),
}

#[derive(Debug, Clone, Copy)]
enum Direction {
    ToServer,
    ToWorker,
}

/// A proxy; it accepts connections as long as the process lives.
#[derive(Debug, Clone)]
pub(crate) struct Proxy {
    port: u16,
    link: Arc<(Mutex<Link>, Condvar)>,
}

impl Proxy {
    pub(crate) fn start(server: PathBuf) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let proxy = Proxy { port: listener.local_addr()?.port(), link: Arc::new((Mutex::new(Link::Whole), Condvar::new())) };
        let accepts = proxy.clone();
        thread::spawn(move || {
            for worker in listener.incoming().flatten() {
                // Without a server the connection is closed.
                if let Ok(server) = UnixStream::connect(&server) {
                    // So is one that cannot be forwarded.
                    let _ = accepts.forward(&worker, &server);
                }
            }
        });
        Ok(proxy)
    }

    pub(crate) fn url(&self) -> String {
        format!("host=127.0.0.1 port={} user=postgres dbname=postgres", self.port)
    }

    pub(crate) fn set(&self, link: Link) {
        *self.link.0.lock().unwrap_or_else(PoisonError::into_inner) = link;
        self.link.1.notify_all();
    }

    fn forward(&self, worker: &TcpStream, server: &UnixStream) -> std::io::Result<()> {
        worker.set_nodelay(true)?;
        let (from_worker, to_server) = (worker.try_clone()?, server.try_clone()?);
        let (from_server, to_worker) = (server.try_clone()?, worker.try_clone()?);
        let (sent, answered) = (self.clone(), self.clone());
        thread::spawn(move || {
            sent.pump(from_worker, &to_server, Direction::ToServer);
            let _ = to_server.shutdown(Shutdown::Both);
        });
        thread::spawn(move || {
            answered.pump(from_server, &to_worker, Direction::ToWorker);
            let _ = to_worker.shutdown(Shutdown::Both);
        });
        Ok(())
    }

    fn pump(&self, mut from: impl Read, mut to: impl Write, direction: Direction) {
        let mut bytes = vec![0; 1 << 16];
        loop {
            let read = from.read(&mut bytes).unwrap_or(0);
            self.pass(direction);
            if read == 0 || to.write_all(&bytes[..read]).is_err() {
                return;
            }
        }
    }

    /// Waits until something may pass.
    fn pass(&self, direction: Direction) {
        let is_cut = |link: &mut Link| match direction {
            Direction::ToServer => matches!(link, Link::Cut | Link::CutToServer),
            Direction::ToWorker => matches!(link, Link::Cut | Link::CutToWorker),
        };
        let link = self.link.0.lock().unwrap_or_else(PoisonError::into_inner);
        let link = *self.link.1.wait_while(link, is_cut).unwrap_or_else(PoisonError::into_inner);
        if let Link::Slow(delay) = link {
            thread::sleep(delay);
        }
    }
}
