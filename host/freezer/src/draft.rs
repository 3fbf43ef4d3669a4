//! A file that is being written: without a name until it is complete, so that whoever is killed leaves nothing.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use tempfile::NamedTempFile;

/// A file in the making.
#[derive(Debug)]
pub(crate) enum Draft {
    /// Without a name: gone with the last descriptor.
    Nameless(File),
    /// Where the file system has no such files.
    Named(NamedTempFile),
}

impl Draft {
    /// Starts one in `dir`.
    pub fn new(dir: &Path) -> io::Result<Self> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        match rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR) {
            Ok(fd) => Ok(Self::Nameless(fd.into())),
            Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
                tempfile::Builder::new().prefix(".freezing-").tempfile_in(dir).map(Self::Named)
            }
            Err(e) => Err(e.into()),
        }
    }

    /// The file.
    pub fn as_file(&self) -> &File {
        match self {
            Self::Nameless(file) => file,
            Self::Named(file) => file.as_file(),
        }
    }

    /// Gives it its name; a file that has it already is replaced at once.
    pub fn persist(self, to: &Path) -> io::Result<()> {
        let file = match self {
            Self::Nameless(file) => file,
            Self::Named(file) => return file.persist(to).map(drop).map_err(|e| e.error),
        };
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        let link = |to: &Path| rustix::fs::linkat(CWD, &*own, CWD, to, AtFlags::SYMLINK_FOLLOW);
        match link(to) {
            Err(Errno::EXIST) => {
                let beside = to.with_added_extension(format!("{}", std::process::id()));
                link(&beside)?;
                std::fs::rename(&beside, to)
            }
            done => Ok(done?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn appears_when_it_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let names = || std::fs::read_dir(dir.path()).unwrap().count();
        drop(Draft::new(dir.path()).unwrap());
        assert_eq!(names(), 0);
        let to = dir.path().join("x");
        for text in ["first", "second"] {
            let draft = Draft::new(dir.path()).unwrap();
            draft.as_file().write_all(text.as_bytes()).unwrap();
            draft.persist(&to).unwrap();
            assert_eq!((std::fs::read_to_string(&to).unwrap().as_str(), names()), (text, 1));
        }
    }
}
