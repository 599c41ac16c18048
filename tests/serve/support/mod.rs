//! What the tests share: an agent whose answers are scripted (`scripted`), places in which it is served (`place`), and clients: of web sockets
//! (`client`), of requests (`request`), and of bytes that no library would send (`raw`).
pub(crate) mod bank;
pub(crate) mod client;
pub(crate) mod events;
pub(crate) mod panics;
pub(crate) mod place;
pub(crate) mod raw;
pub(crate) mod request;
pub(crate) mod scripted;

pub(crate) use forever_testkit::waiting::{eventually as until, soon};
