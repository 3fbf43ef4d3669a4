//! Built-in commands of a session (docs/sessions.md): their words, and the records that they print.
//!
//! A guest kernel has them for para domains, an attendant for paene domains; the supervisor and the command line ask. What
//! they say to each other is here, once. How files and processes are reached is each one's own.

use core::fmt;
use core::str::{SplitN, from_utf8};

use crate::events::Level;

/// What is to be done; paths are bytes, as Linux takes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// `tar-out PATH`: an archive of it to standard output.
    TarOut(&'a [u8]),
    /// `tar-in PATH`: the archive on standard input into this directory.
    TarIn(&'a [u8]),
    /// `stat [-L] PATH`: a [`FileRecord`]; with `-L` of what a link points to.
    Stat {
        /// Of what.
        path: &'a [u8],
        /// Whether links are followed.
        follow: bool,
    },
    /// `list PATH [DEPTH]`: a [`FileRecord`] of each name in a directory, and below it.
    List {
        /// The directory.
        path: &'a [u8],
        /// So many levels; 1 is the directory alone.
        depth: u64,
    },
    /// `remove [-r] PATH`.
    Remove {
        /// What.
        path: &'a [u8],
        /// With all that is in it.
        recursive: bool,
    },
    /// `mkdir PATH [MODE]`: a directory, and those above it.
    Mkdir {
        /// Where.
        path: &'a [u8],
        /// Permission bits, given in octal; 755 if not said.
        mode: u32,
    },
    /// `rename FROM TO`.
    Rename {
        /// What.
        from: &'a [u8],
        /// Its new name.
        to: &'a [u8],
    },
    /// `read PATH [OFFSET [LENGTH]]`: bytes of a file to standard output.
    Read {
        /// The file.
        path: &'a [u8],
        /// From this byte on.
        offset: u64,
        /// So many at most; none: all.
        length: Option<u64>,
    },
    /// `write PATH [MODE]`: a file of what is on standard input, and the directories above it.
    Write {
        /// The file.
        path: &'a [u8],
        /// Permission bits, given in octal; 644 if not said.
        mode: u32,
    },
    /// `watch [-r] PATH`: what happens to the names in a directory, as it happens ([`Change`]).
    Watch {
        /// The directory.
        path: &'a [u8],
        /// In those below it, too.
        recursive: bool,
    },
    /// `processes`: a [`ProcessRecord`] of each process but its own.
    Processes,
    /// `stacks`: a [`ThreadRecord`] of each thread but its own.
    Stacks,
    /// `events [-f]`: a NUL, and an [`EventRecord`](crate::events::EventRecord) of each event that is kept; with `-f` also
    /// of those to come.
    Events {
        /// Whether it goes on with those to come.
        follow: bool,
    },
    /// `event-level LEVEL`: events up to this level are kept from now on.
    EventLevel(Level),
}

/// The word of a command that is none; Linux would say EINVAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoCommand<'a>(pub &'a [u8]);

fn number(text: &[u8], base: u32) -> Result<u64, NoCommand<'_>> {
    from_utf8(text).ok().and_then(|t| u64::from_str_radix(t, base).ok()).ok_or(NoCommand(text))
}

fn mode(text: &[u8]) -> Result<u32, NoCommand<'_>> {
    // The mask leaves what fits.
    number(text, 8).map(|n| (n & 0o7777) as u32)
}

impl<'a> Command<'a> {
    /// Reads a command's name and arguments.
    ///
    /// # Errors
    /// The word that is wrong: a name that is none, also for the number of its arguments, or a number that is none.
    pub fn parse(name: &'a [u8], args: &[&'a [u8]]) -> Result<Self, NoCommand<'a>> {
        Ok(match (name, args) {
            (b"tar-out", &[path]) => Self::TarOut(path),
            (b"tar-in", &[path]) => Self::TarIn(path),
            (b"stat", &[b"-L", path]) => Self::Stat { path, follow: true },
            (b"stat", &[path]) => Self::Stat { path, follow: false },
            (b"list", &[path]) => Self::List { path, depth: 1 },
            (b"list", &[path, depth]) => Self::List { path, depth: number(depth, 10)? },
            (b"remove", &[b"-r", path]) => Self::Remove { path, recursive: true },
            (b"remove", &[path]) => Self::Remove { path, recursive: false },
            (b"mkdir", &[path]) => Self::Mkdir { path, mode: 0o755 },
            (b"mkdir", &[path, bits]) => Self::Mkdir { path, mode: mode(bits)? },
            (b"rename", &[from, to]) => Self::Rename { from, to },
            (b"read", &[path]) => Self::Read { path, offset: 0, length: None },
            (b"read", &[path, offset]) => Self::Read { path, offset: number(offset, 10)?, length: None },
            (b"read", &[path, offset, length]) => {
                Self::Read { path, offset: number(offset, 10)?, length: Some(number(length, 10)?) }
            }
            (b"write", &[path]) => Self::Write { path, mode: 0o644 },
            (b"write", &[path, bits]) => Self::Write { path, mode: mode(bits)? },
            (b"watch", &[b"-r", path]) => Self::Watch { path, recursive: true },
            (b"watch", &[path]) => Self::Watch { path, recursive: false },
            (b"processes", &[]) => Self::Processes,
            (b"stacks", &[]) => Self::Stacks,
            (b"events", &[]) => Self::Events { follow: false },
            (b"events", &[b"-f"]) => Self::Events { follow: true },
            (b"event-level", &[word]) => {
                Self::EventLevel(from_utf8(word).ok().and_then(Level::parse).ok_or(NoCommand(word))?)
            }
            _ => return Err(NoCommand(name)),
        })
    }
}

/// The words of a record.
struct Words<'a>(SplitN<'a, char>);

impl<'a> Words<'a> {
    fn next<T: core::str::FromStr>(&mut self) -> Option<T> {
        self.0.next()?.parse().ok()
    }

    fn text(&mut self) -> Option<&'a str> {
        self.0.next()
    }
}

/// What is said of a file. As text it ends with a space; its name, a NUL, what a symbolic link points to and another NUL
/// follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileRecord {
    /// A letter as `find -printf %y` has it: `f`, `d`, `l`, `c`, `b`, `p` or `s`.
    pub kind: char,
    /// In bytes.
    pub size: u64,
    /// Permission bits; octal as text.
    pub mode: u32,
    /// Its owner inside the domain.
    pub uid: u32,
    /// Its group inside the domain.
    pub gid: u32,
    /// Its last change, in nanoseconds since 1970.
    pub modified: i128,
    /// Number of links.
    pub links: u64,
}

impl fmt::Display for FileRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, size, mode, uid, gid, modified, links } = self;
        write!(f, "{kind} {size} {mode:o} {uid} {gid} {modified} {links} ")
    }
}

impl FileRecord {
    /// Reads one with its name. A domain has written it: none if it is not like this.
    #[must_use]
    pub fn parse(text: &str) -> Option<(Self, &str)> {
        let mut words = Words(text.splitn(8, ' '));
        let record = Self {
            kind: words.next()?,
            size: words.next()?,
            mode: u32::from_str_radix(words.text()?, 8).ok()?,
            uid: words.next()?,
            gid: words.next()?,
            modified: words.next()?,
            links: words.next()?,
        };
        Some((record, words.text()?))
    }
}

/// What is said of a process. As text it ends with a space; its command and a NUL follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessRecord {
    /// Its number.
    pub pid: i32,
    /// Its parent's.
    pub ppid: i32,
    /// Its user inside the domain.
    pub uid: u32,
    /// Its group inside the domain.
    pub gid: u32,
    /// Its state, as in proc_pid_stat(5).
    pub state: char,
    /// How many threads it has.
    pub threads: u64,
    /// CPU time that it has used, in nanoseconds.
    pub cpu_ns: u64,
    /// Time since its start, in nanoseconds.
    pub age_ns: u64,
    /// Resident memory, in bytes.
    pub resident: u64,
}

impl fmt::Display for ProcessRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, ppid, uid, gid, state, threads, cpu_ns, age_ns, resident } = self;
        write!(f, "{pid} {ppid} {uid} {gid} {state} {threads} {cpu_ns} {age_ns} {resident} ")
    }
}

impl ProcessRecord {
    /// Reads one with its command. A domain has written it: none if it is not like this.
    #[must_use]
    pub fn parse(text: &str) -> Option<(Self, &str)> {
        let mut words = Words(text.splitn(10, ' '));
        let record = Self {
            pid: words.next()?,
            ppid: words.next()?,
            uid: words.next()?,
            gid: words.next()?,
            state: words.next()?,
            threads: words.next()?,
            cpu_ns: words.next()?,
            age_ns: words.next()?,
            resident: words.next()?,
        };
        Some((record, words.text().unwrap_or_default()))
    }
}

/// What is said of a thread. As text it ends with a space; its name, a NUL, the function in which the guest kernel waits for
/// it and a NUL, its calls in the guest kernel, a line each, and a NUL, its calls in its program, likewise, and a NUL follow. All
/// three are empty for one that runs, and for threads of a paene domain as far as the host's kernel does not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadRecord {
    /// Its process.
    pub pid: i32,
    /// Its number.
    pub tid: i32,
    /// Its state, as in proc_pid_stat(5).
    pub state: char,
}

impl fmt::Display for ThreadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pid, tid, state } = self;
        write!(f, "{pid} {tid} {state} ")
    }
}

impl ThreadRecord {
    /// Reads one with its name. A domain has written it: none if it is not like this.
    #[must_use]
    pub fn parse(text: &str) -> Option<(Self, &str)> {
        let mut words = Words(text.splitn(4, ' '));
        let record = Self { pid: words.next()?, tid: words.next()?, state: words.next()? };
        Some((record, words.text()?))
    }

    /// Reads what `stacks` has printed: of each thread its record, name, where it waits and its calls in kernel and program. A domain has written
    /// it: none in place of what is not like this.
    pub fn all(text: &str) -> impl Iterator<Item = Option<(Self, [&str; 4])>> {
        let mut parts = text.split('\0');
        core::iter::from_fn(move || {
            let head = parts.next().filter(|head| !head.is_empty())?;
            let (channel, calls, program) = (parts.next(), parts.next(), parts.next());
            Some(
                Self::parse(head)
                    .and_then(|(record, name)| Some((record, [name, channel?, calls?, program?]))),
            )
        })
    }
}

/// What `watch` says: the word, a space, a name and a NUL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The directory is watched now; said once.
    Ready,
    /// There is something of this name, made or renamed.
    Created,
    /// Something was written.
    Modified,
    /// Something was closed after writing.
    Written,
    /// Its attributes are others.
    Changed,
    /// The name is gone; without a name, the directory.
    Removed,
    /// There was more than could be told.
    Lost,
}

impl Change {
    const ALL: [(Self, &'static str); 7] = [
        (Self::Ready, "ready"),
        (Self::Created, "created"),
        (Self::Modified, "modified"),
        (Self::Written, "written"),
        (Self::Changed, "changed"),
        (Self::Removed, "removed"),
        (Self::Lost, "lost"),
    ];

    /// What an event of inotify(7) means for a name; none for those of no concern.
    #[must_use]
    pub fn of_event(mask: u32) -> Option<Self> {
        const IN_MODIFY: u32 = 0x2;
        const IN_ATTRIB: u32 = 0x4;
        const IN_CLOSE_WRITE: u32 = 0x8;
        const IN_MOVED_FROM: u32 = 0x40;
        const IN_MOVED_TO: u32 = 0x80;
        const IN_CREATE: u32 = 0x100;
        const IN_DELETE: u32 = 0x200;
        let any = |bits| mask & bits != 0;
        Some(match () {
            () if any(IN_CREATE | IN_MOVED_TO) => Self::Created,
            () if any(IN_DELETE | IN_MOVED_FROM) => Self::Removed,
            () if any(IN_CLOSE_WRITE) => Self::Written,
            () if any(IN_MODIFY) => Self::Modified,
            () if any(IN_ATTRIB) => Self::Changed,
            () => return None,
        })
    }

    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(change, _)| *change == self).map_or("", |(_, word)| word)
    }

    /// Reads one with its name. A domain has written it: none if it is not like this.
    #[must_use]
    pub fn parse(text: &str) -> Option<(Self, &str)> {
        let (word, name) = text.split_once(' ')?;
        Self::ALL.iter().find(|(_, its)| *its == word).map(|(change, _)| (*change, name))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::format;

    #[test]
    fn commands_are_read() {
        let parse = |words: &[&'static str]| {
            let words: std::vec::Vec<&'static [u8]> = words.iter().map(|w| w.as_bytes()).collect();
            Command::parse(words[0], &words[1..]).map_err(|NoCommand(what)| what)
        };
        assert_eq!(parse(&["stat", "-L", "/x"]), Ok(Command::Stat { path: b"/x", follow: true }));
        assert_eq!(parse(&["mkdir", "d", "41777"]), Ok(Command::Mkdir { path: b"d", mode: 0o1777 }));
        assert_eq!(parse(&["read", "f", "5"]), Ok(Command::Read { path: b"f", offset: 5, length: None }));
        assert_eq!(parse(&["read", "f", "5", "x"]), Err(&b"x"[..]));
        assert_eq!(parse(&["write", "f", "9"]), Err(&b"9"[..]));
        assert_eq!(parse(&["processes", "x"]), Err(&b"processes"[..]));
        assert_eq!(parse(&["events", "-f"]), Ok(Command::Events { follow: true }));
        assert_eq!(parse(&["event-level", "debug"]), Ok(Command::EventLevel(Level::Debug)));
        assert_eq!(parse(&["event-level", "loud"]), Err(&b"loud"[..]));
        // A file may be called so.
        assert_eq!(parse(&["remove", "-r"]), Ok(Command::Remove { path: b"-r", recursive: false }));
    }

    #[test]
    fn records_are_read_as_they_are_written() {
        let file = FileRecord { kind: 'l', size: 9, mode: 0o4711, uid: 1, gid: 2, modified: -5, links: 3 };
        assert_eq!(format!("{file}"), "l 9 4711 1 2 -5 3 ");
        assert_eq!(FileRecord::parse(&format!("{file}a b")), Some((file, "a b")));
        assert_eq!(FileRecord::parse("l 9 4711 1 2 -5 3"), None);
        let process = ProcessRecord {
            pid: 7,
            ppid: 1,
            uid: 5,
            gid: 6,
            state: 'S',
            threads: 2,
            cpu_ns: 10,
            age_ns: 20,
            resident: 4096,
        };
        assert_eq!(ProcessRecord::parse(&format!("{process}sh -c x")), Some((process, "sh -c x")));
        assert_eq!(ProcessRecord::parse("7 x"), None);
        let thread = ThreadRecord { pid: 7, tid: 9, state: 'R' };
        assert_eq!(ThreadRecord::parse(&format!("{thread}a b")), Some((thread, "a b")));
        assert_eq!(ThreadRecord::parse("7 9 R"), None);
        let text = format!("{thread}a\0pipe\0f\ng\n\0main\n\0{thread}b\0\0\0\0nonsense\0");
        let all: std::vec::Vec<_> = ThreadRecord::all(&text).collect();
        assert_eq!(
            all,
            [Some((thread, ["a", "pipe", "f\ng\n", "main\n"])), Some((thread, ["b", "", "", ""])), None]
        );
        assert_eq!(Change::parse("written a b"), Some((Change::Written, "a b")));
        assert_eq!((Change::parse("what x"), Change::parse("ready")), (None, None));
        assert_eq!(Change::of_event(0x4000_0100).map(Change::word), Some("created"));
    }
}
