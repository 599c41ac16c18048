//! A server of the tests' own: a new cluster in a temporary folder, or the one that `FOREVER_TEST_POSTGRES` names.
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// A server in a temporary folder. It is stopped and removed when this is dropped, and when the process ends in whatever way.
#[derive(Debug)]
pub struct Cluster {
    folder: PathBuf,
    programs: PathBuf,
    /// Runs the programs as a user that the server accepts.
    user: Vec<String>,
    guard: Child,
}

impl Cluster {
    /// Starts a server; `None` where none is installed.
    pub fn start() -> Option<Self> {
        Self::start_with("")
    }

    /// Starts a server that leaves writing to the disk to the operating system, which no test crashes. A sync may take half a minute
    /// while compilers write to the same disk.
    pub fn start_without_syncs() -> Option<Self> {
        Self::start_with("fsync = off\n")
    }

    fn start_with(settings: &str) -> Option<Self> {
        let cluster = Self::without_data(programs()?);
        cluster.run("initdb", &["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync"]);
        cluster.set(settings);
        cluster.pg_ctl("start", &[]);
        Some(cluster)
    }

    fn set(&self, settings: &str) {
        let mut file = fs::OpenOptions::new().append(true).open(self.folder.join("data/postgresql.conf")).unwrap();
        file.write_all(settings.as_bytes()).unwrap();
    }

    fn without_data(programs: PathBuf) -> Self {
        let folder = tempfile::Builder::new().prefix("forever-pg").tempdir().unwrap().keep();
        let user = user(&folder);
        // Its input ends with this process.
        let clean_up = format!(
            "cat > /dev/null; {} '{}/pg_ctl' stop -D '{folder}/data' -m immediate > /dev/null 2>&1; \
             umount '{folder}/{SMALL_DISK}' 2> /dev/null; rm -rf '{folder}'",
            user.join(" "),
            programs.display(),
            folder = folder.display()
        );
        let mut guard = Command::new("sh");
        guard.arg("-c").arg(clean_up).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Not killed together with the tests, which it outlives.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut guard, 0);
        Cluster { guard: guard.spawn().unwrap(), folder, programs, user }
    }

    /// Starts a standby, and lets this server acknowledge a commit when the standby has it on disk.
    #[must_use]
    pub fn start_standby(&self) -> Self {
        let standby = Self::without_data(self.programs.clone());
        let primary = self.folder.display().to_string();
        standby.run("pg_basebackup", &["-h", &primary, "-U", "postgres", "-R", "-X", "stream", "-c", "fast"]);
        standby.pg_ctl("start", &[]);
        self.set("synchronous_standby_names = '*'\n");
        self.run("pg_ctl", &["reload"]);
        standby
    }

    /// Makes a standby the primary.
    pub fn promote(&self) {
        self.run("pg_ctl", &["promote", "-w"]);
    }

    /// A file system of so many MiB; `None` where this process may not mount one, which is said.
    #[must_use]
    pub fn small_disk(&self, mebibytes: u32) -> Option<SmallDisk> {
        let disk = SmallDisk(self.folder.join(SMALL_DISK));
        fs::create_dir(&disk.0).unwrap();
        let size = format!("size={mebibytes}m");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "forever-test"]).arg(&disk.0).stderr(Stdio::null()).status();
        if !mounted.is_ok_and(|status| status.success()) {
            let _ = writeln!(std::io::stderr(), "a test of a full disk of the server was left out: no file system could be mounted");
            return None;
        }
        fs::create_dir(disk.folder()).unwrap();
        user(&disk.folder());
        Some(disk)
    }

    /// Moves the server's write-ahead log to a disk. The server is restarted for it.
    pub fn move_log(&self, to: &SmallDisk) {
        self.run("pg_ctl", &["stop", "-m", "fast"]);
        let (log, there) = (self.folder.join("data/pg_wal"), to.folder().join("pg_wal"));
        let moved = Command::new("mv").args([&log, &there]).status();
        assert!(moved.is_ok_and(|status| status.success()), "the log could not be moved");
        #[cfg(unix)]
        std::os::unix::fs::symlink(&there, &log).unwrap();
        self.start_again();
    }

    /// Whether it has stopped.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        !self.pid_file().exists()
    }

    /// The URL of its database.
    pub fn url(&self) -> String {
        format!("host={} user=postgres dbname=postgres", self.folder.display())
    }

    /// The folder of its socket, which is the host in a URL.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where its socket is.
    pub fn socket(&self) -> PathBuf {
        self.folder.join(".s.PGSQL.5432")
    }

    /// Stops the server as a crash would.
    pub fn crash(&self) {
        if let Err(why) = self.try_run("pg_ctl", &["stop", "-m", "immediate"]) {
            // The server waits for a process that waits for the disk, say; or sleeps, for a minute.
            eprintln!("{why}\nof the server there are still:\n{}", self.processes());
            let stopped = self.try_run("pg_ctl", &["stop", "-m", "immediate", "-t", "600"]);
            // It may have ended between the two.
            if let Err(why) = stopped
                && self.pid_file().exists()
            {
                panic!("{why}");
            }
        }
    }

    fn pid_file(&self) -> PathBuf {
        self.folder.join("data/postmaster.pid")
    }

    /// The processes of the server, with what each waits for in the kernel.
    fn processes(&self) -> String {
        let pid_file = fs::read_to_string(self.pid_file()).unwrap_or_default();
        let server = pid_file.lines().next().unwrap_or_default().to_owned();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let text = |file: &str| fs::read_to_string(entry.path().join(file)).unwrap_or_default();
            let stat = text("stat");
            // `pid (name) state parent ..`
            let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
            let (state, parent) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
            let pid = entry.file_name().to_string_lossy().into_owned();
            if !server.is_empty() && (pid == server || parent == server) {
                found.push(format!("{pid} {state} {} {}", text("wchan"), text("cmdline").replace('\0', " ")));
            }
        }
        found.join("\n")
    }

    /// Starts a server that has crashed.
    pub fn start_again(&self) {
        self.pg_ctl("start", &[]);
    }

    fn pg_ctl(&self, what: &str, more: &[&str]) {
        let options = format!("-c listen_addresses= -c max_connections=200 -k {}", self.folder.display());
        let log = self.folder.join("log");
        self.run("pg_ctl", &[&[what, "-w", "-l", log.to_str().unwrap(), "-o", &options], more].concat());
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        self.try_run(program, arguments).unwrap();
    }

    fn try_run(&self, program: &str, arguments: &[&str]) -> Result<(), String> {
        let mut words = self.user.clone();
        words.push(self.programs.join(program).display().to_string());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg("-D").arg(self.folder.join("data")).args(arguments).current_dir("/");
        // Not a pipe: the server would keep it open.
        let said = self.folder.join(format!("{program}.out"));
        let out = fs::File::create(&said).unwrap();
        let ran = command.stdin(Stdio::null()).stdout(out.try_clone().unwrap()).stderr(out).status().unwrap();
        if ran.success() {
            return Ok(());
        }
        Err(format!("{program} {arguments:?}: {}", fs::read_to_string(said).unwrap_or_default()))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}

/// Name of the folder of a [`SmallDisk`].
const SMALL_DISK: &str = "small";

/// A small file system, which a test can fill. It is gone with its [`Cluster`].
#[derive(Debug)]
pub struct SmallDisk(PathBuf);

impl SmallDisk {
    /// A folder on it that belongs to the server.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.0.join("folder")
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    /// Fills it to the last block.
    pub fn fill(&self) {
        let mut filler = fs::File::create(self.filler()).unwrap();
        while filler.write(&[1; 4096]).is_ok() {}
    }

    /// Makes room again.
    pub fn free(&self) {
        fs::remove_file(self.filler()).unwrap();
    }
}

/// Where the programs of a server are.
fn programs() -> Option<PathBuf> {
    let in_path = std::env::var_os("PATH").into_iter().flat_map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    let mut of_debian: Vec<PathBuf> =
        fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|version| version.path().join("bin")).collect();
    of_debian.sort();
    of_debian.reverse();
    let folder = in_path.chain(of_debian).find(|folder| folder.join("initdb").exists() && folder.join("pg_ctl").exists())?;
    // The other programs are where these are, and not where links to these are.
    folder.join("initdb").canonicalize().ok()?.parent().map(Path::to_owned)
}

/// The words before a command that have it run as a user other than root, whom the folder then belongs to.
fn user(folder: &Path) -> Vec<String> {
    let id = Command::new("id").arg("-u").output().unwrap();
    if id.stdout.trim_ascii() != b"0" {
        return Vec::new();
    }
    let exists = |name: &str| Command::new("id").arg(name).output().is_ok_and(|id| id.status.success());
    let name = if exists("postgres") { "postgres" } else { "nobody" };
    assert!(Command::new("chown").arg(name).arg(folder).status().unwrap().success());
    let group = Command::new("id").args(["-g", name]).output().unwrap();
    let group = String::from_utf8(group.stdout).unwrap();
    ["setpriv", &format!("--reuid={name}"), &format!("--regid={}", group.trim()), "--clear-groups"].map(str::to_owned).to_vec()
}

/// The URL of the server that all tests share; `None` where there is none, which is said once.
pub fn url() -> Option<String> {
    static SHARED: OnceLock<Option<Cluster>> = OnceLock::new();
    if let Ok(url) = std::env::var("FOREVER_TEST_POSTGRES") {
        return Some(url);
    }
    let shared = SHARED.get_or_init(|| started("the tests of the Postgres store were left out"));
    shared.as_ref().map(Cluster::url)
}

/// The URL with a setting of the server for each session, which is as if its role had it. May be called again for another one.
#[must_use]
pub fn with_setting(url: &str, name: &str, value: &str) -> String {
    let (is_url, given) = (url.contains("://"), url.contains("options="));
    match (is_url, given) {
        (true, true) => format!("{url}%20-c{name}%3D{value}"),
        (true, false) => format!("{url}{}options=-c{name}%3D{value}", if url.contains('?') { '&' } else { '?' }),
        // The options come last, in quotes.
        (false, true) => format!("{} -c{name}={value}'", url.trim_end_matches('\'')),
        (false, false) => format!("{url} options='-c{name}={value}'"),
    }
}

/// A server of one test's own.
pub fn own() -> Option<Cluster> {
    started("a test of the Postgres store that restarts the server was left out")
}

fn started(left_out: &str) -> Option<Cluster> {
    let started = Cluster::start_without_syncs();
    if started.is_none() {
        let required = std::env::var_os("FOREVER_REQUIRE_POSTGRES").is_some();
        assert!(!required, "no `initdb` in PATH or /usr/lib/postgresql, and `FOREVER_REQUIRE_POSTGRES` is set");
        // Past the capture of the test's output.
        let _ = writeln!(std::io::stderr(), "{left_out}: no `initdb` in PATH or /usr/lib/postgresql");
    }
    started
}

/// A name for a new schema.
pub fn schema() -> String {
    static MADE: AtomicU32 = AtomicU32::new(0);
    format!("test {} {}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed))
}
