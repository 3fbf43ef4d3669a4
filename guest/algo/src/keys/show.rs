//! `/proc/keys` and `/proc/key-users`.

use alloc::format;
use alloc::string::String;

use super::caller::Caller;
use super::key::{Key, perm};
use super::kind::Kind;
use super::store::Store;

/// How long a key has to live.
fn time_left(key: &Key, now: u64) -> String {
    const UNITS: [(u64, u64, char); 5] =
        [(60, 1, 's'), (3600, 60, 'm'), (86400, 3600, 'h'), (604_800, 86400, 'd'), (u64::MAX, 604_800, 'w')];
    if key.revoked || key.expired(now) {
        return "expd".into();
    }
    let Some(left) = key.expiry.map(|e| e - now) else { return "perm".into() };
    let unit = UNITS.iter().find(|(below, ..)| left < *below).unwrap_or(&UNITS[4]);
    format!("{}{}", left / unit.1, unit.2)
}

/// What a type says of a key.
fn about(key: &Key) -> String {
    let name = String::from_utf8_lossy(&key.description);
    match (key.kind, key.links().map_or(0, |l| l.len())) {
        (Kind::Keyring, 0) => format!("{name}: empty"),
        (Kind::Keyring, n) => format!("{name}: {n}"),
        _ if key.refused.is_some() => name.into_owned(),
        (Kind::BigKey, _) => format!("{name}: {} [buff]", key.len),
        _ => format!("{name}: {}", key.len),
    }
}

impl Caller<'_> {
    /// The keys that the caller may see.
    pub fn list(&self) -> String {
        let mut out = String::new();
        for (serial, key) in &self.store.keys {
            let looks = key.perm >> perm::POSSESSOR & perm::VIEW != 0;
            let possessed = looks && self.store.possesses(&self.who, *serial);
            if self.store.allow(&self.who, *serial, possessed, perm::VIEW).is_err() {
                continue;
            }
            let flag = |on: bool, letter: char| if on { letter } else { '-' };
            let (uid, gid) = key.shown_ids();
            out += &format!(
                "{serial:08x} I{}-{}-{}{} {:5} {:>4} {:08x} {uid:5} {gid:5} {:<9.9} {}\n",
                flag(key.revoked, 'R'),
                flag(key.charged, 'Q'),
                flag(key.refused.is_some(), 'N'),
                flag(key.invalid, 'i'),
                key.refs,
                time_left(key, self.who.now),
                key.perm,
                key.kind.name(),
                about(key),
            );
        }
        out
    }
}

impl Store {
    /// The users that have keys.
    pub fn list_users(&self) -> String {
        let mut out = String::new();
        for (uid, used) in &self.users {
            let (keys, bytes) = self.limits.of(*uid);
            out += &format!(
                "{uid:5}: {:5} {n}/{n} {}/{keys} {}/{bytes}\n",
                used.keys,
                used.charged,
                used.bytes,
                n = used.keys
            );
        }
        out
    }
}
