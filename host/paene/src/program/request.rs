//! What the host asks to be run: boot arguments of the domain, requests of sessions (`common/abi/machine`, [`BootArgs`]).

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use doppel_abi_machine::{BootArgs, boot_flags};
use doppel_sys::shared::SharedMap;

/// A program, and who it is to be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub argv: Vec<OsString>,
    pub env: Vec<OsString>,
    pub cwd: OsString,
    pub hostname: OsString,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub flags: u32,
    pub winsize: u32,
    /// File systems to mount: where, type, options.
    pub mounts: Vec<[OsString; 3]>,
}

impl Request {
    /// Reads `len` bytes at `offset` of the control area. None if they are no request.
    pub fn read(map: &SharedMap, offset: usize, len: u32, room: u64) -> Option<Self> {
        if u64::from(len) > room {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(len).ok()?];
        map.read(offset, &mut bytes);
        Self::parse(&bytes)
    }

    /// From bytes as they lie in the control area.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (header, rest) = bytes.split_at_checked(size_of::<BootArgs>())?;
        let words: Vec<u32> = header.as_chunks().0.iter().map(|w| u32::from_le_bytes(*w)).collect();
        let &[argc, envc, uid, gid, flags, winsize, clone_args, groups, mounts, _] = words.as_slice() else {
            return None;
        };
        let (ids, rest) = rest.split_at_checked(usize::try_from(groups).ok()?.checked_mul(4)?)?;
        let groups = ids.as_chunks().0.iter().map(|g| u32::from_le_bytes(*g)).collect();
        let mut strings = rest.split(|b| *b == 0).map(|s| OsString::from_vec(s.to_vec()));
        let mut take = |n: u32| (0..n).map(|_| strings.next()).collect::<Option<Vec<_>>>();
        let (argv, env, _) = (take(argc)?, take(envc)?, take(clone_args)?);
        let [cwd, hostname] = <[OsString; 2]>::try_from(take(2)?).ok()?;
        let mounts = take(mounts.checked_mul(3)?)?.as_chunks().0.to_vec();
        Some(Self { argv, env, cwd, hostname, uid, gid, groups, flags, winsize, mounts })
    }

    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    pub fn tty(&self) -> bool {
        self.has(boot_flags::TTY)
    }

    pub fn read_only(&self) -> bool {
        self.has(boot_flags::READ_ONLY)
    }

    pub fn stdin(&self) -> bool {
        self.has(boot_flags::STDIN)
    }

    pub fn builtin(&self) -> bool {
        self.has(boot_flags::BUILTIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(argc: u32, groups: &[u32], mounts: u32, strings: &[&str]) -> Vec<u8> {
        let count = u32::try_from(groups.len()).unwrap();
        let words = [argc, 1, 7, 8, boot_flags::STDIN, 24 << 16 | 80, 0, count, mounts, 0];
        let mut out: Vec<u8> = words.iter().chain(groups).flat_map(|w| w.to_le_bytes()).collect();
        for text in strings {
            out.extend(text.as_bytes());
            out.push(0);
        }
        out
    }

    #[test]
    fn requests_are_read() {
        let all = bytes(2, &[9, 10], 1, &["ls", "-l", "A=b", "/tmp", "host", "/m", "tmpfs", "size=1m"]);
        let r = Request::parse(&all).unwrap();
        assert_eq!((r.argv.len(), r.env[0].to_str(), r.cwd.to_str()), (2, Some("A=b"), Some("/tmp")));
        assert_eq!((r.uid, r.gid, r.groups.as_slice()), (7, 8, &[9, 10][..]));
        assert!(r.stdin() && !r.tty() && r.hostname == "host");
        assert_eq!(r.mounts, [["/m", "tmpfs", "size=1m"].map(OsString::from)]);
    }

    #[test]
    fn nonsense_is_refused() {
        let all = bytes(9, &[], 0, &["ls", "A=b", "/", "h"]);
        assert!(Request::parse(&all).is_none(), "fewer strings than it says");
        assert!(Request::parse(&all[..39]).is_none(), "no header");
        let mounts = bytes(1, &[], u32::MAX, &["ls", "A=b", "/", "h"]);
        assert!(Request::parse(&mounts).is_none(), "more mounts than words");
        let mut groups = bytes(1, &[], 0, &["ls", "A=b", "/", "h"]);
        groups[28..32].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(Request::parse(&groups).is_none(), "more groups than bytes");
    }
}
