//! Who calls.

use alloc::vec::Vec;

use super::key::Serial;

/// The keyrings that a thread holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rings {
    /// Its own.
    pub thread: Option<Serial>,
    /// Its process'.
    pub process: Option<Serial>,
    /// Its session's.
    pub session: Option<Serial>,
}

/// Where `request_key` puts what it makes, unless it is told (KEYCTL_SET_REQKEY_KEYRING).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Destination {
    /// The first there is of thread, process and session keyring.
    #[default]
    First,
    /// The thread's; without it as [`Self::First`].
    Thread,
    /// The process'; without it the session's.
    Process,
    /// The session's.
    Session,
    /// The user's.
    User,
    /// The user's session's.
    UserSession,
    /// That of who asks for the key.
    Requestor,
}

impl Destination {
    const ALL: [(Self, i32); 7] = [
        (Self::First, 0),
        (Self::Thread, 1),
        (Self::Process, 2),
        (Self::Session, 3),
        (Self::User, 4),
        (Self::UserSession, 5),
        (Self::Requestor, 7),
    ];

    /// By its number.
    pub fn by_number(number: i32) -> Option<Self> {
        Self::ALL.iter().find(|(_, n)| *n == number).map(|(d, _)| *d)
    }

    /// Its number.
    pub fn number(self) -> i32 {
        Self::ALL.iter().find(|(d, _)| *d == self).map_or(0, |(_, n)| *n)
    }
}

/// Who calls, when, and with which keyrings.
pub struct Who {
    /// Real ids: those of the keyrings that are made for it.
    pub uid: u32,
    #[allow(missing_docs)]
    pub gid: u32,
    /// Ids that permissions are checked with.
    pub fsuid: u32,
    #[allow(missing_docs)]
    pub fsgid: u32,
    /// Further groups.
    pub groups: Vec<u32>,
    /// CAP_SYS_ADMIN.
    pub admin: bool,
    /// Its keyrings. Calls may give it others; what is new here is held once, for it, and it lets go of what it had.
    pub rings: Rings,
    /// Where what it requests goes.
    pub destination: Destination,
    /// Seconds of the clock of the world.
    pub now: u64,
    /// Where numbers of new keys come from.
    pub random: fn() -> u32,
}

impl Who {
    /// Whether it is in a group.
    pub(super) fn in_group(&self, gid: u32) -> bool {
        self.fsgid == gid || self.groups.contains(&gid)
    }
}
