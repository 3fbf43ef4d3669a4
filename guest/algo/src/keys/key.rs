//! One key.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;

use doppel_abi_linux::errno::{Errno, Result};

use super::kind::Kind;

/// The number of a key.
pub type Serial = i32;

/// Permissions: one byte each for who possesses the key, its user, its group and others, from the highest down.
#[allow(missing_docs)]
pub mod perm {
    pub const VIEW: u32 = 0x01;
    pub const READ: u32 = 0x02;
    pub const WRITE: u32 = 0x04;
    pub const SEARCH: u32 = 0x08;
    pub const LINK: u32 = 0x10;
    pub const SETATTR: u32 = 0x20;
    /// All of one byte.
    pub const ALL: u32 = 0x3f;
    /// Where those of a possessor, of the user and of the group begin.
    pub const POSSESSOR: u32 = 24;
    pub const USER: u32 = 16;
    pub const GROUP: u32 = 8;
    /// All bits there are.
    pub const MASK: u32 = 0x3f3f_3f3f;
}

/// No group: that of keyrings which belong to a user alone.
pub(super) const NO_GROUP: u32 = u32::MAX;
/// How ids without a name here are shown.
const OVERFLOW_ID: u32 = 65534;

/// What a key is found by in a keyring.
pub(super) type Index = (Kind, Arc<[u8]>);

/// The links of a keyring: no two of the same type and description.
pub type Links = BTreeMap<(Kind, Arc<[u8]>), Serial>;

/// What is in a key.
pub enum Payload {
    /// Nothing: it was refused, or has been revoked.
    Nothing,
    /// Bytes.
    Bytes(Arc<[u8]>),
    /// The links of a keyring: no two of the same type and description.
    Links(Links),
}

/// A key.
pub struct Key {
    pub(super) kind: Kind,
    pub(super) description: Arc<[u8]>,
    /// The user it counts for.
    pub(super) payer: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) perm: u32,
    pub(super) payload: Payload,
    /// Length of its content.
    pub(super) len: usize,
    /// Why it was refused, if it was.
    pub(super) refused: Option<Errno>,
    /// When it expires, in seconds of the clock of the world.
    pub(super) expiry: Option<u64>,
    pub(super) revoked: bool,
    pub(super) invalid: bool,
    /// A keyring that takes no more links.
    pub(super) closed: bool,
    /// Whether it counts for its user.
    pub(super) charged: bool,
    /// Bytes it counts for.
    pub(super) bytes: usize,
    /// Keyrings, threads and the kernel that hold it.
    pub(super) refs: usize,
    /// The keyrings among them.
    pub(super) linked: BTreeSet<Serial>,
    /// When it is to be taken out of them.
    pub(super) due: Option<u64>,
}

impl Key {
    /// Its type.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// What it is described by.
    pub fn description(&self) -> &[u8] {
        &self.description
    }

    /// The user it belongs to.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// User and group as they are shown.
    pub(super) fn shown_ids(&self) -> (u32, u32) {
        (self.uid, if self.gid == NO_GROUP { OVERFLOW_ID } else { self.gid })
    }

    /// Its permissions.
    pub fn perm(&self) -> u32 {
        self.perm
    }

    /// The links of a keyring.
    pub(super) fn links(&self) -> Option<&Links> {
        match &self.payload {
            Payload::Links(l) => Some(l),
            _ => None,
        }
    }

    pub(super) fn links_mut(&mut self) -> Option<&mut Links> {
        match &mut self.payload {
            Payload::Links(l) => Some(l),
            _ => None,
        }
    }

    /// What it is found by in a keyring.
    pub(super) fn index(&self) -> Index {
        (self.kind, self.description.clone())
    }

    /// Whether its time is over.
    pub(super) fn expired(&self, now: u64) -> bool {
        self.expiry.is_some_and(|e| now >= e)
    }

    /// Whether it has not ended: ENOKEY, EKEYREVOKED or EKEYEXPIRED if it has.
    pub(super) fn validate(&self, now: u64) -> Result<()> {
        if self.invalid {
            Err(Errno::ENOKEY)
        } else if self.revoked {
            Err(Errno::EKEYREVOKED)
        } else if self.expired(now) {
            Err(Errno::EKEYEXPIRED)
        } else {
            Ok(())
        }
    }
}
