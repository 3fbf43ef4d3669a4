//! The keys of the domain, and the keyrings that threads hold (`keyrings(7)`).
//!
//! Key types: [`Keys`] (all of them), [`Keyrings`] (those of a thread), [`Held`] (that one is held). What keys are and who may
//! do what with them is `doppel_algo::keys`. Lock order: a thread's keyrings → all keys.

use doppel_algo::keys::{Caller, Destination, Rings, Serial, Store, Who};
use doppel_machine::sync::SpinLock;

use crate::core::part::Part;
use crate::core::time::realtime_ns;
use crate::process::task::{Cred, Thread};

const CAP_SYS_ADMIN: u32 = 21;

/// All keys of the domain.
#[derive(Default)]
pub struct Keys(SpinLock<Store>);

/// The domain's.
pub static KEYS: Part<Keys> = Part::new();

impl Keys {
    /// Looks at them, or changes them. Nothing may wait or touch memory of programs meanwhile, nor let go of a [`Held`].
    pub fn with<R>(&self, f: impl FnOnce(&mut Store) -> R) -> R {
        f(&mut self.0.lock())
    }
}

/// That a key is held.
pub struct Held(Serial);

impl Clone for Held {
    fn clone(&self) -> Self {
        KEYS.with(|s| s.hold(self.0));
        Self(self.0)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        KEYS.with(|s| s.release(self.0));
    }
}

/// The keyrings of a thread.
#[derive(Default)]
pub struct Keyrings {
    thread: Option<Held>,
    process: Option<Held>,
    session: Option<Held>,
    /// Where what it requests goes.
    pub destination: Destination,
}

impl Keyrings {
    /// What a new process has, or a program that is executed.
    #[must_use]
    pub fn of_process(&self) -> Self {
        Self { thread: None, process: None, session: self.session.clone(), destination: self.destination }
    }

    /// What a new thread of the process has: a keyring of its own if its maker has one.
    #[must_use]
    pub fn of_thread(&self, cred: &Cred) -> Self {
        let make = |_: &Held| KEYS.with(|s| s.new_thread_ring(cred.ruid, cred.rgid, random())).ok().map(Held);
        let thread = self.thread.as_ref().and_then(make);
        Self { thread, process: self.process.clone(), ..self.of_process() }
    }

    /// The thread has got another identity, and its own keyring with it.
    pub fn follow(&self, uid: u32, gid: u32) {
        if let Some(own) = &self.thread {
            KEYS.with(|s| s.follow(own.0, uid, gid));
        }
    }

    /// Their numbers.
    pub fn numbers(&self) -> Rings {
        let of = |held: &Option<Held>| held.as_ref().map(|h| h.0);
        Rings { thread: of(&self.thread), process: of(&self.process), session: of(&self.session) }
    }

    /// Gives the thread another session keyring.
    #[must_use = "what it had is let go without a lock"]
    pub fn enter(&mut self, session: Held) -> Option<Held> {
        self.session.replace(session)
    }
}

impl Held {
    /// Holds a key.
    pub fn new(serial: Serial) -> Self {
        KEYS.with(|s| s.hold(serial));
        Self(serial)
    }
}

fn random() -> u32 {
    let mut bytes = [0; 4];
    crate::core::random::fill(&mut bytes);
    u32::from_ne_bytes(bytes)
}

/// Does something with the keys for a thread, which is the calling one, and gives it the keyrings that were made for it.
pub fn call<R>(t: &Thread, f: impl FnOnce(&mut Caller<'_>) -> R) -> R {
    let cred = t.cred();
    let (rings, destination) = {
        let k = t.keyrings.lock();
        (k.numbers(), k.destination)
    };
    let who = Who {
        uid: cred.ruid,
        gid: cred.rgid,
        fsuid: cred.fsuid,
        fsgid: cred.fsgid,
        groups: cred.groups.clone(),
        admin: cred.capable(CAP_SYS_ADMIN),
        rings,
        destination,
        now: realtime_ns() / 1_000_000_000,
        random,
    };
    let (r, new) = KEYS.with(|store| {
        store.collect(who.now);
        let mut caller = Caller::new(store, who);
        let r = f(&mut caller);
        (r, caller.who.rings)
    });
    if new != rings {
        install(t, rings, new);
    }
    r
}

/// Gives a thread the keyrings that a call has made, which are held for it.
fn install(t: &Thread, old: Rings, new: Rings) {
    let changed = |old, new: Option<Serial>| new.filter(|_| new != old).map(Held);
    let made = (
        changed(old.thread, new.thread),
        changed(old.process, new.process),
        changed(old.session, new.session),
    );
    let mut k = t.keyrings.lock();
    let mut gone = (None, None, None);
    if made.0.is_some() {
        gone.0 = core::mem::replace(&mut k.thread, made.0);
    }
    if made.1.is_some() {
        gone.1 = core::mem::replace(&mut k.process, made.1);
    }
    if made.2.is_some() {
        gone.2 = core::mem::replace(&mut k.session, made.2);
    }
    drop(k);
    drop(gone);
}
