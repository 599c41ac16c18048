//! A pooler in transaction mode: each transaction runs on another connection, whose session is reset before.
use std::io::{Error, ErrorKind, Result};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Mutex;

/// A pooler; gives its URL, and a count of the transactions that went through it.
pub(crate) async fn start(socket: PathBuf, connections: usize) -> (String, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut servers = Vec::new();
    for _ in 0..connections {
        servers.push(Arc::new(Mutex::new(server(&socket).await.unwrap())));
    }
    let (servers, count) = (Arc::new(servers), Arc::new(AtomicU64::new(0)));
    let counted = Arc::clone(&count);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (servers, count) = (Arc::clone(&servers), Arc::clone(&counted));
            tokio::spawn(async move {
                let _ = serve(client, &servers, &count).await;
            });
        }
    });
    (format!("host=127.0.0.1 port={port} user=postgres dbname=postgres sslmode=disable"), count)
}

/// A message, with its kind and its length in front.
async fn message(from: &mut (impl AsyncRead + Unpin)) -> Result<(u8, Vec<u8>)> {
    let mut head = [0; 5];
    from.read_exact(&mut head).await?;
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    let mut whole = head.to_vec();
    whole.resize(1 + length, 0);
    from.read_exact(&mut whole[5..]).await?;
    Ok((head[0], whole))
}

/// A connection to the server that is past its start.
async fn server(socket: &PathBuf) -> Result<UnixStream> {
    let mut server = UnixStream::connect(socket).await?;
    let mut start = 196_608_u32.to_be_bytes().to_vec();
    start.extend_from_slice(b"user\0postgres\0database\0postgres\0client_encoding\0UTF8\0\0");
    server.write_u32(u32::try_from(start.len()).unwrap() + 4).await?;
    server.write_all(&start).await?;
    while message(&mut server).await?.0 != b'Z' {}
    Ok(server)
}

async fn query(server: &mut UnixStream, sql: &str) -> Result<()> {
    server.write_u8(b'Q').await?;
    server.write_u32(u32::try_from(sql.len()).unwrap() + 5).await?;
    server.write_all(sql.as_bytes()).await?;
    server.write_u8(0).await?;
    while message(server).await?.0 != b'Z' {}
    Ok(())
}

async fn serve(mut client: TcpStream, servers: &[Arc<Mutex<UnixStream>>], count: &AtomicU64) -> Result<()> {
    client.set_nodelay(true)?;
    let length = client.read_u32().await?;
    let mut start = vec![0; length as usize - 4];
    client.read_exact(&mut start).await?;
    // Welcome, and ready.
    let parameter = |name: &str, value: &str| {
        let text = format!("{name}\0{value}\0");
        [&b"S"[..], &(u32::try_from(text.len()).unwrap() + 4).to_be_bytes(), text.as_bytes()].concat()
    };
    client.write_all(b"R\0\0\0\x08\0\0\0\0").await?;
    client.write_all(&parameter("client_encoding", "UTF8")).await?;
    client.write_all(&parameter("server_version", "15.0")).await?;
    client.write_all(b"Z\0\0\0\x05I").await?;
    let (mut client_read, mut client_write) = client.into_split();
    loop {
        let (kind, first) = message(&mut client_read).await?;
        if kind == b'X' {
            return Ok(());
        }
        // Each time another one.
        let n = count.fetch_add(1, Ordering::Relaxed);
        let mut server = servers[usize::try_from(n).unwrap() % servers.len()].lock().await;
        query(&mut server, "DISCARD ALL").await?;
        let (mut server_read, mut server_write) = server.split();
        let mut next = Some((kind, first));
        // Until the server is ready for the next query outside of a transaction.
        loop {
            // A group of messages, which a query or a sync ends.
            loop {
                let (kind, whole) = match next.take() {
                    Some(next) => next,
                    None => message(&mut client_read).await?,
                };
                if kind == b'X' {
                    return Err(Error::new(ErrorKind::UnexpectedEof, "it left in the middle"));
                }
                server_write.write_all(&whole).await?;
                if matches!(kind, b'Q' | b'S') {
                    break;
                }
            }
            let state = loop {
                let (kind, whole) = message(&mut server_read).await?;
                client_write.write_all(&whole).await?;
                if kind == b'Z' {
                    break whole[5];
                }
            };
            if state == b'I' {
                break;
            }
        }
    }
}
