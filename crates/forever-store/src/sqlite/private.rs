//! Files and folders that only the user of this process can open, whatever its umask: they hold what
//! fibers know.
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::path::Path;

/// Opens a file, which is made first if it is not there. One that is there keeps its rights.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    match options.open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        opened => return opened,
    }
    let mut new = options.clone();
    new.create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut new, 0o600);
    match new.open(path) {
        // Somebody else made it meanwhile.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => options.open(path),
        Err(e) => Err(e),
        Ok(file) => {
            // The umask may have taken more than it was to lose.
            #[cfg(unix)]
            file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
            Ok(file)
        }
    }
}

/// Makes a folder.
pub(super) fn folder(path: &Path) -> io::Result<()> {
    #[allow(unused_mut)]
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

#[cfg(all(test, unix))]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;
    use std::process::Command;
    use std::time::Duration;

    use crate::Durability;
    use crate::sqlite::Sqlite;
    use crate::sqlite::copied::Copied;

    const FOLDER: &str = "FOREVER_TEST_PRIVATE";

    /// What the files of a folder allow, by their names.
    fn rights(folder: &std::path::Path) -> BTreeMap<String, u32> {
        let files = folder.read_dir().unwrap().map(Result::unwrap);
        files.map(|file| (file.file_name().into_string().unwrap(), file.metadata().unwrap().permissions().mode() & 0o777)).collect()
    }

    #[test]
    fn files_of_a_database_are_its_users_alone_under_any_umask() {
        for umask in ["000", "022", "077", "377"] {
            let folder = tempfile::tempdir().unwrap();
            let mut shell = Command::new("sh");
            shell.args(["-c", &format!("umask {umask}; exec \"$0\" --exact sqlite::private::tests::makes_files --ignored")]);
            assert!(shell.arg(std::env::current_exe().unwrap()).env(FOLDER, folder.path()).status().unwrap().success());
            let files = ["a.db", "a.db-shm", "a.db-wal", "a.db.lock", "backup.db"].map(|name| (name.to_owned(), 0o600));
            assert_eq!(rights(folder.path()), BTreeMap::from(files), "umask {umask}");
        }
    }

    #[tokio::test]
    #[ignore = "a process of the test above"]
    async fn makes_files() {
        let folder = PathBuf::from(std::env::var(FOLDER).unwrap());
        let path = folder.join("a.db");
        let store = Sqlite::open(&path, Durability::Process, Duration::ZERO).await.unwrap();
        store.back_up(folder.join("backup.db"), "1").await.unwrap();
        let copied = Copied::of(&path).await.unwrap();
        let of_copy = copied.path().parent().unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(of_copy & 0o077, 0, "{of_copy:o}");
        drop(copied);
        // It dies, so that its log stays.
        std::process::exit(0);
    }
}
