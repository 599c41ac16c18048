//! What is asked: a live owner over its socket, an inspector by URL, or a database that is opened
//! here, without running anything.
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ArgMatches;
use forever_inspect::{Inspector, socket_path};
use forever_runtime::Forever;
use forever_store::rusqlite::Connection;
use forever_store::sqlite::copied::Copied;
use forever_store::sqlite::schema_version;
use tokio::net::TcpStream;

use crate::client::{Client, Way};
use crate::failure::{Failure, warn};

/// A reached target.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) client: Client,
    /// Whether a live process owns the database.
    pub(crate) is_live: bool,
    /// What was opened here.
    opened: Option<Forever>,
    /// The copy that was opened in place of the file.
    _copy: Option<Copied>,
}

impl Target {
    /// Reaches what the arguments name. `changes` says whether the command changes anything.
    pub(crate) async fn reach(matches: &ArgMatches, changes: bool) -> Result<Self, Failure> {
        let target = matches.get_one::<String>("target").map_or("", String::as_str);
        if let Some(rest) = target.strip_prefix("http://") {
            return by_url(rest, headers(matches)?).await;
        }
        if target.starts_with("https://") {
            return Err(Failure::usage("https is not spoken here: reach the inspector through a tunnel, or its host's socket"));
        }
        if target.starts_with("postgres://") || target.starts_with("postgresql://") {
            return opened(postgres(target).await?, None).await;
        }
        let file = PathBuf::from(target);
        let length = std::fs::metadata(&file).map_err(|_| Failure::unreachable(format!("there is no file `{target}`")))?.len();
        if length == 0 {
            return Err(Failure::unreachable(format!("`{target}` is empty: it is no database, or was cut off")));
        }
        if let Some(client) = over_socket(&file).await? {
            return Ok(Target { client, is_live: true, opened: None, _copy: None });
        }
        by_file(file, changes, matches.get_flag("upgrade")).await
    }

    /// Closes what was opened here.
    pub(crate) async fn close(self) -> Result<(), Failure> {
        match self.opened {
            Some(forever) => forever.close().await.map_err(|why| Failure::refused(why.to_string())),
            None => Ok(()),
        }
    }
}

/// The file that the arguments name, if it is one and is there.
pub(crate) fn named_file(matches: &ArgMatches) -> Option<PathBuf> {
    let target = matches.get_one::<String>("target")?;
    let is_url = ["http://", "https://", "postgres://", "postgresql://"].iter().any(|scheme| target.starts_with(scheme));
    Some(PathBuf::from(target)).filter(|file| !is_url && std::fs::metadata(file).is_ok_and(|found| found.is_file() && found.len() > 0))
}

fn headers(matches: &ArgMatches) -> Result<Vec<(String, String)>, Failure> {
    let given = matches.get_many::<String>("header").unwrap_or_default();
    let parts = given.map(|header| header.split_once(':').map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())));
    parts.collect::<Option<_>>().ok_or_else(|| Failure::usage("a header is `name: value`"))
}

async fn by_url(rest: &str, headers: Vec<(String, String)>) -> Result<Target, Failure> {
    let (host, path) = rest.split_once('/').map_or((rest, ""), |(host, path)| (host, path));
    let address =
        if host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) { host.to_owned() } else { format!("{host}:80") };
    let stream = TcpStream::connect(&address).await.map_err(|why| Failure::unreachable(format!("`{address}` cannot be reached: {why}")))?;
    let base = if path.is_empty() { String::new() } else { format!("/{path}") };
    let client = Client::over(Way::Address(address), stream, host, &base, headers).await?;
    Ok(Target { client, is_live: true, opened: None, _copy: None })
}

/// A client of the live owner of a file; `None` if nothing listens.
///
/// In a folder that others can write to, anybody can put a socket beside the file. So it is asked
/// only if it is served by this user, root, or the file's own user.
#[cfg(unix)]
async fn over_socket(file: &Path) -> Result<Option<Client>, Failure> {
    use std::io::ErrorKind;
    use std::os::unix::fs::MetadataExt;

    let socket = socket_path(file);
    let cannot_tell = |why: std::io::Error| Failure::unreachable(format!("who serves `{}` cannot be told: {why}", socket.display()));
    let stream = match tokio::net::UnixStream::connect(&socket).await {
        Ok(stream) => stream,
        Err(why) if why.kind() == ErrorKind::PermissionDenied => {
            return Err(Failure::unreachable(format!("the socket of `{}` belongs to another user", file.display())));
        }
        Err(_) => return Ok(None),
    };
    let server = stream.peer_cred().map_err(cannot_tell)?.uid();
    let this = tokio::net::UnixStream::pair().and_then(|(ours, _)| ours.peer_cred()).map_err(cannot_tell)?.uid();
    let owner = std::fs::metadata(file).map_err(cannot_tell)?.uid();
    if ![0, this, owner].contains(&server) {
        return Err(Failure::unreachable(format!(
            "`{}` is served by user {server}, whose database this is not: it was not asked, and should be removed",
            socket.display()
        )));
    }
    Client::over(Way::Socket(socket), stream, "localhost", "", Vec::new()).await.map(Some)
}

#[cfg(not(unix))]
async fn over_socket(_: &Path) -> Result<Option<Client>, Failure> {
    Ok(None)
}

async fn by_file(file: PathBuf, changes: bool, upgrade: bool) -> Result<Target, Failure> {
    let version = version_of(&file)?;
    let is_older = version < schema_version();
    if changes && is_older && !upgrade {
        let why = format!(
            "`{}` has schema {version}, and this command would raise it to {}: open it with the program's next version first, or say --upgrade",
            file.display(),
            schema_version()
        );
        return Err(Failure::refused(why));
    }
    let copied = is_older && !changes;
    if !copied {
        match idle(&file).await {
            Ok(forever) => return opened(forever, None).await,
            Err(why) if !why.is_busy() => return Err(failed(&why)),
            Err(why) if changes => {
                return Err(Failure::unreachable(format!("{why}; it answers commands if it calls `Inspector::listen_beside`")));
            }
            Err(_) => warn("the owner of this file has no socket; this is a copy of this moment"),
        }
    }
    let copy = Copied::of(&file).await.map_err(|why| failed(&why))?;
    let forever = idle(&copy.path()).await.map_err(|why| failed(&why))?;
    opened(forever, Some(copy)).await
}

/// The failure to open a database, with its causes.
fn failed(why: &forever_runtime::Error) -> Failure {
    let mut text = why.to_string();
    let mut source = std::error::Error::source(why);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    Failure::unreachable(text)
}

async fn idle(file: &Path) -> forever_runtime::Result<Forever> {
    Forever::builder().sqlite(file).wait_for_lock(Duration::ZERO).open_idle().await
}

fn version_of(file: &Path) -> Result<i32, Failure> {
    let failed = |why: forever_store::rusqlite::Error| Failure::unreachable(format!("`{}` cannot be read: {why}", file.display()));
    read_only(file).and_then(|conn| conn.query_row("PRAGMA user_version", (), |row| row.get(0))).map_err(failed)
}

/// A connection that cannot change the file.
pub(crate) fn read_only(file: &Path) -> forever_store::rusqlite::Result<Connection> {
    Connection::open(format!("file:{}?mode=ro", crate::text::escaped_path(file)))
}

#[cfg(feature = "postgres")]
async fn postgres(url: &str) -> Result<Forever, Failure> {
    let store = forever_postgres::PostgresStore::builder(url).connect().await.map_err(|why| failed(&why))?;
    Forever::builder().store(store).open_idle().await.map_err(|why| failed(&why))
}

#[cfg(not(feature = "postgres"))]
async fn postgres(_: &str) -> Result<Forever, Failure> {
    Err(Failure::usage("this command was built without its feature `postgres`"))
}

/// A target that is served in this process.
async fn opened(forever: Forever, copy: Option<Copied>) -> Result<Target, Failure> {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    Inspector::new(&forever).serve_caller(theirs);
    let client = Client::over(Way::Here, ours, "localhost", "", Vec::new()).await?;
    Ok(Target { client, is_live: false, opened: Some(forever), _copy: copy })
}
