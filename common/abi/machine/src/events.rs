//! Events of a guest kernel (docs/debugging.md): their levels, and the record that the built-in command `events` prints.

use core::fmt;

use crate::boot_flags;

/// How much an event matters. A kernel keeps events up to the level that it is set to; [`Level::Off`] keeps none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// None.
    #[default]
    Off,
    /// A program was ended by what it did, or something failed for good.
    Error,
    /// Something was refused: a limit, a system call that does not exist, a network service that went away.
    Warning,
    /// What happens in a healthy domain: processes, freezes, the network.
    Info,
    /// What only those who look for a fault of the kernel want: threads, patches.
    Debug,
}

impl Level {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Off, "off"),
        (Self::Error, "error"),
        (Self::Warning, "warning"),
        (Self::Info, "info"),
        (Self::Debug, "debug"),
    ];

    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// The level in a domain's flags ([`boot_flags::EVENTS`]); a number that is none of a level's is [`Self::Off`].
    #[must_use]
    pub fn from_flags(flags: u32) -> Self {
        let number = (flags & boot_flags::EVENTS) >> boot_flags::EVENTS.trailing_zeros();
        Self::ALL.get(number as usize).map_or(Self::Off, |(level, _)| *level)
    }

    /// As [`Self::from_flags`] finds it.
    #[must_use]
    pub fn flags(self) -> u32 {
        u32::from(self as u8) << boot_flags::EVENTS.trailing_zeros()
    }

    /// The level of a word; none if it is none.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, its)| *its == word).map(|(level, _)| *level)
    }
}

/// What is said of an event. As text it ends with a space; what happened in words and a NUL follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRecord<'a> {
    /// Its number; the first event of a domain has 0. A gap: the ring was full, the oldest ones are lost.
    pub number: u64,
    /// When it happened (if it is a repeated one, for the first time), in nanoseconds since 1970.
    pub time_ns: u64,
    /// How often it happened in a row; at least 1.
    pub count: u64,
    /// How much it matters; never [`Level::Off`].
    pub level: Level,
    /// The process it happened in; 0 is the kernel itself.
    pub pid: i32,
    /// Its thread.
    pub tid: i32,
    /// The thread's virtual CPU, as numbered in its process.
    pub cpu: u32,
    /// What kind of event it is, as `process.exit`.
    pub kind: &'a str,
}

impl fmt::Display for EventRecord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, time_ns, count, level, pid, tid, cpu, kind } = self;
        write!(f, "{number} {time_ns} {count} {} {pid} {tid} {cpu} {kind} ", level.word())
    }
}

impl<'a> EventRecord<'a> {
    /// Reads one with what happened in words. A domain has written it: none if it is not like this.
    #[must_use]
    pub fn parse(text: &'a str) -> Option<(Self, &'a str)> {
        let mut words = text.splitn(9, ' ');
        let mut word = || words.next();
        let record = Self {
            number: word()?.parse().ok()?,
            time_ns: word()?.parse().ok()?,
            count: word()?.parse().ok().filter(|n| *n > 0)?,
            level: Level::parse(word()?).filter(|l| *l != Level::Off)?,
            pid: word()?.parse().ok()?,
            tid: word()?.parse().ok()?,
            cpu: word()?.parse().ok()?,
            kind: word()?,
        };
        Some((record, word()?))
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use std::format;

    #[test]
    fn a_level_is_among_a_domains_flags() {
        for (level, _) in Level::ALL {
            assert_eq!(Level::from_flags(level.flags() | !boot_flags::EVENTS), level);
        }
        assert_eq!(Level::from_flags(boot_flags::EVENTS), Level::Off, "the number is no level's");
    }

    #[test]
    fn events_are_read_as_they_are_written() {
        let event = EventRecord {
            number: 7,
            time_ns: 1_500_000_000,
            count: 2,
            level: Level::Warning,
            pid: 3,
            tid: 4,
            cpu: 1,
            kind: "limit.files",
        };
        let text = format!("{event}no more than 10");
        assert_eq!(text, "7 1500000000 2 warning 3 4 1 limit.files no more than 10");
        assert_eq!(EventRecord::parse(&text), Some((event, "no more than 10")));
        for wrong in
            ["", "7 1 1 loud 3 4 1 x y", "7 1 1 off 3 4 1 x y", "7 1 0 info 3 4 1 x y", "7 1 1 info 3 4 1 x"]
        {
            assert_eq!(EventRecord::parse(wrong), None, "{wrong}");
        }
        assert!(
            Level::ALL
                .iter()
                .all(|(level, word)| level.word() == *word && Level::parse(word) == Some(*level))
        );
        assert!(Level::Off < Level::Error && Level::Info < Level::Debug);
    }
}
