//! What the host asks to be run, as a domain reads it: boot arguments, and requests of sessions (`common/abi/machine`,
//! [`BootArgs`]). What is written here is read by guest kernels, and by the attendants of paene domains with [`Request::parse`].

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use doppel_abi_machine::{BootArgs, boot_flags};

use crate::Program;

/// A program, and what its domain is told with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The program.
    pub program: Program,
    /// Lines of `/sys/doppel/args`.
    pub clone_args: Vec<OsString>,
    /// Host name.
    pub hostname: OsString,
    /// [`boot_flags`].
    pub flags: u32,
    /// Size of its terminal: rows << 16 | columns.
    pub winsize: u32,
    /// File systems to mount: where, type, options.
    pub mounts: Vec<[OsString; 3]>,
    /// Further lines of `/etc/hosts`.
    pub hosts: Vec<OsString>,
}

/// Why a request cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// A word contains a NUL.
    Nul,
    /// It is longer than there is room.
    TooLong,
}

impl Request {
    /// As bytes, at most `room`.
    ///
    /// # Errors
    /// Why there are none.
    pub fn to_bytes(&self, room: u64) -> Result<Vec<u8>, Unfit> {
        let count = |n: usize| u32::try_from(n).map_err(|_| Unfit::TooLong);
        let Program { argv, env, cwd, uid, gid, groups } = &self.program;
        let header = [
            count(argv.len())?,
            count(env.len())?,
            *uid,
            *gid,
            self.flags,
            self.winsize,
            count(self.clone_args.len())?,
            count(groups.len())?,
            count(self.mounts.len())?,
            count(self.hosts.len())?,
        ];
        const { assert!(size_of::<[u32; 10]>() == size_of::<BootArgs>(), "see docs/machine-interface.md") };
        let mut out: Vec<u8> = header.iter().chain(groups).flat_map(|word| word.to_le_bytes()).collect();
        let words = argv.iter().chain(env).chain(&self.clone_args).chain([cwd, &self.hostname]);
        for word in words.chain(self.mounts.as_flattened()).chain(&self.hosts) {
            let bytes = word.as_bytes();
            if bytes.contains(&0) {
                return Err(Unfit::Nul);
            }
            out.extend(bytes);
            out.push(0);
        }
        if out.len() as u64 > room { Err(Unfit::TooLong) } else { Ok(out) }
    }

    /// From bytes as they lie in the control area. None if they are no request.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (header, rest) = bytes.split_at_checked(size_of::<BootArgs>())?;
        let words: Vec<u32> = header.as_chunks().0.iter().map(|w| u32::from_le_bytes(*w)).collect();
        let &[argc, envc, uid, gid, flags, winsize, clone_args, groups, mounts, hosts] = words.as_slice()
        else {
            return None;
        };
        let (ids, rest) = rest.split_at_checked(usize::try_from(groups).ok()?.checked_mul(4)?)?;
        let groups = ids.as_chunks().0.iter().map(|g| u32::from_le_bytes(*g)).collect();
        let mut strings = rest.split(|b| *b == 0).map(|s| OsString::from_vec(s.to_vec()));
        let mut take = |n: u32| (0..n).map(|_| strings.next()).collect::<Option<Vec<_>>>();
        let (argv, env, clone_args) = (take(argc)?, take(envc)?, take(clone_args)?);
        let [cwd, hostname] = <[OsString; 2]>::try_from(take(2)?).ok()?;
        let mounts = take(mounts.checked_mul(3)?)?.as_chunks().0.to_vec();
        let hosts = take(hosts)?;
        let program = Program { argv, env, cwd, uid, gid, groups };
        Some(Self { program, clone_args, hostname, flags, winsize, mounts, hosts })
    }

    fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// The program has a terminal.
    #[must_use]
    pub fn tty(&self) -> bool {
        self.has(boot_flags::TTY)
    }

    /// The root file system is read-only.
    #[must_use]
    pub fn read_only(&self) -> bool {
        self.has(boot_flags::READ_ONLY)
    }

    /// Its standard input is connected.
    #[must_use]
    pub fn stdin(&self) -> bool {
        self.has(boot_flags::STDIN)
    }

    /// It is a command of the guest kernel or the attendant.
    #[must_use]
    pub fn builtin(&self) -> bool {
        self.has(boot_flags::BUILTIN)
    }
}

/// The flags whose condition holds.
#[must_use]
pub fn flags(all: &[(bool, u32)]) -> u32 {
    all.iter().filter(|(set, _)| *set).fold(0, |flags, (_, flag)| flags | flag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Request {
        let words = |all: &[&str]| all.iter().map(OsString::from).collect();
        let (argv, env) = (words(&["ls", "-l"]), words(&["A=b"]));
        Request {
            program: Program { argv, env, cwd: "/tmp".into(), uid: 7, gid: 8, groups: vec![9, 10] },
            clone_args: words(&["x"]),
            hostname: "host".into(),
            flags: boot_flags::STDIN,
            winsize: 24 << 16 | 80,
            mounts: vec![["/m", "tmpfs", "size=1m"].map(OsString::from)],
            hosts: words(&["10.0.0.1\ta"]),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = request().to_bytes(1 << 10).unwrap();
        assert_eq!(Request::parse(&bytes), Some(request()));
        assert!(request().stdin() && !request().tty());
        assert_eq!(request().to_bytes(bytes.len() as u64 - 1), Err(Unfit::TooLong));
        let nul = Request { hostname: "a\0b".into(), ..request() };
        assert_eq!(nul.to_bytes(1 << 10), Err(Unfit::Nul));
    }

    #[test]
    fn nonsense_is_refused() {
        let bytes = |change: fn(&mut [u32; 10])| {
            let mut all = request().to_bytes(1 << 10).unwrap();
            let mut words: [u32; 10] =
                std::array::from_fn(|i| u32::from_le_bytes(all[4 * i..4 * i + 4].try_into().unwrap()));
            change(&mut words);
            let header = words.iter().flat_map(|word| word.to_le_bytes());
            all.splice(..40, header);
            all
        };
        assert!(Request::parse(&bytes(|_| ())).is_some());
        assert!(Request::parse(&bytes(|w| w[0] = 9)).is_none(), "fewer strings than it says");
        assert!(Request::parse(&bytes(|_| ())[..39]).is_none(), "no header");
        assert!(Request::parse(&bytes(|w| w[8] = u32::MAX)).is_none(), "more mounts than words");
        assert!(Request::parse(&bytes(|w| w[9] = u32::MAX)).is_none(), "more hosts than words");
        assert!(Request::parse(&bytes(|w| w[7] = u32::MAX)).is_none(), "more groups than bytes");
    }
}
