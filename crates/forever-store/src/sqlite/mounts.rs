//! The mount of a path on Linux: `/proc/self/mountinfo`, as described in `proc_pid_mountinfo(5)`.
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// File systems that turn `flock` into a range lock on the server, which would block the locks that
/// SQLite takes on the same file.
const SHARED_LOCKS: [&str; 7] = ["nfs", "nfs4", "cifs", "smb", "smb3", "smbfs", "9p"];

/// The mount that a file is on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mount {
    point: PathBuf,
    kind: String,
}

impl Mount {
    /// The mount of a path without symbolic links; `None` where the system does not say.
    pub(super) fn of(path: &Path) -> Option<Self> {
        Self::find(&std::fs::read(TABLE).ok()?, path)
    }

    fn find(table: &[u8], path: &Path) -> Option<Self> {
        let mounts = table.split(|byte| *byte == b'\n').filter_map(Self::parse).filter(|mount| path.starts_with(&mount.point));
        // Of two mounts at one place, the later one is visible.
        mounts.max_by_key(|mount| mount.point.components().count())
    }

    /// `36 35 98:0 /root /mount/point rw,noatime master:1 - ext3 /dev/root rw`
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let point = PathBuf::from(OsString::from_vec(unescape(fields.nth(4)?)));
        fields.find(|field| *field == b"-")?;
        Some(Mount { point, kind: String::from_utf8_lossy(fields.next()?).into_owned() })
    }

    /// Whether the file itself is mounted, and not its folder.
    pub(super) fn is_of_one_file(&self, path: &Path) -> bool {
        self.point == path
    }

    /// Whether a lock on a file stays on this machine and does not interfere with SQLite's own.
    pub(super) fn has_own_locks(&self) -> bool {
        !SHARED_LOCKS.contains(&&*self.kind)
    }
}

const TABLE: &str = "/proc/self/mountinfo";

/// Spaces, tabs, line ends and backslashes are written as `\` with three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(field.len());
    let mut left = field;
    while let [first, rest @ ..] = left {
        let octal = rest.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            text.push(byte);
            left = &rest[3..];
        } else {
            text.push(*first);
            left = rest;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
40 22 0:40 / /data rw shared:1 master:2 - nfs4 server:/data rw
41 40 0:41 / /data/fast\\040disk rw - xfs /dev/vdb rw
42 22 254:0 /home/me/a.db /srv/a.db rw - ext4 /dev/vda rw
43 22 0:43 / /database rw - tmpfs tmpfs rw
44 43 0:44 / /database rw - 9p share rw
half a line
";

    fn of(path: &str) -> Mount {
        Mount::find(MOUNTS.as_bytes(), Path::new(path)).unwrap()
    }

    #[test]
    fn path_is_on_the_mount_nearest_to_it() {
        for (path, point, kind, own) in [
            ("/home/a.db", "/", "ext4", true),
            ("/data/a.db", "/data", "nfs4", false),
            ("/data/fast disk/a.db", "/data/fast disk", "xfs", true),
            ("/database/a.db", "/database", "9p", false),
            ("/databases/a.db", "/", "ext4", true),
        ] {
            let mount = of(path);
            assert_eq!((&*mount.point, &*mount.kind, mount.has_own_locks()), (Path::new(point), kind, own), "{path}");
            assert!(!mount.is_of_one_file(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn file_that_is_mounted_by_itself_is_known() {
        assert!(of("/srv/a.db").is_of_one_file(Path::new("/srv/a.db")));
        assert!(!of("/srv/a.db-wal").is_of_one_file(Path::new("/srv/a.db-wal")));
    }

    #[test]
    fn this_system_says_where_its_root_is_mounted() {
        assert_eq!(Mount::of(Path::new("/")).unwrap().point, Path::new("/"));
    }
}
