#![allow(clippy::disallowed_methods, reason = "a test may fail for want of a thread")]

extern crate std;

use core::sync::atomic::AtomicBool;
use std::thread;

use super::*;

std::thread_local! {
    static ID: u64 = {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Ordering::Relaxed)
    };
}

pub(super) fn task_id() -> u64 {
    ID.with(|i| *i)
}

/// Notices a use after its drop, and counts the live ones.
struct Probe {
    alive: AtomicBool,
    live: Arc<AtomicU64>,
}

impl Probe {
    fn new(live: &Arc<AtomicU64>) -> Arc<Self> {
        live.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { alive: AtomicBool::new(true), live: live.clone() })
    }

    fn check(&self) {
        assert!(self.alive.load(Ordering::Relaxed));
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        assert!(self.alive.swap(false, Ordering::Relaxed), "dropped twice");
        self.live.fetch_sub(1, Ordering::Relaxed);
    }
}

struct Files(Slots<Probe, ()>);

impl Table for Files {
    type Item = Probe;
    type Meta = ();
    fn slots(&self) -> &Slots<Probe, ()> {
        &self.0
    }
}

fn table() -> (Arc<Files>, Arc<AtomicU64>) {
    (Arc::new(Files(Slots::new((), drop))), Arc::default())
}

#[test]
fn numbers_of_all_levels() {
    let (t, live) = table();
    let a = Attached::new(Some(t.clone()));
    for i in [0, 1, 63, 64, 127, 128, 1000, SLOTS_MAX - 1] {
        assert!(a.get(i).is_none());
        assert!(t.0.lock().set(i, Probe::new(&live)).is_none());
        assert!(a.get(i).is_some());
    }
    assert!(a.get(2).is_none());
    assert!(a.get(SLOTS_MAX).is_none());
    assert!(a.get(usize::MAX).is_none());
    assert_eq!(t.0.lock().end(), SLOTS_MAX);
    assert!(t.0.lock().take(64).is_some());
    assert!(a.get(64).is_none());
    assert_eq!(live.load(Ordering::Relaxed), 7);
    drop(a);
    drop(t);
    assert_eq!(live.load(Ordering::Relaxed), 0);
}

#[test]
fn an_owner_keeps_what_it_holds() {
    let (t, live) = table();
    let a = Attached::new(Some(t.clone()));
    t.0.lock().set(3, Probe::new(&live));
    let h = a.get(3).unwrap();
    assert_ne!(t.0.owner.load(Ordering::Relaxed), 0);
    let h2 = a.get(3).unwrap();
    assert!(matches!(t.0.lock().take(3), Some(Removed::Held(_))));
    drop(h);
    h2.check();
    assert_eq!(live.load(Ordering::Relaxed), 1);
    drop(t.0.lock().set(3, Probe::new(&live)));
    drop(h2);
    assert_eq!(live.load(Ordering::Relaxed), 1);
    a.get(3).unwrap().check();
    assert!(matches!(t.0.lock().take(3), Some(Removed::Free(_))));
}

#[test]
fn what_is_removed_while_held_is_let_go_once() {
    static GONE: AtomicU64 = AtomicU64::new(0);
    let live = Arc::default();
    let slots = Slots::new((), |p: Arc<Probe>| {
        p.check();
        GONE.fetch_add(1, Ordering::Relaxed);
    });
    let t = Arc::new(Files(slots));
    let a = Attached::new(Some(t.clone()));
    t.0.lock().set(1, Probe::new(&live));
    t.0.lock().set(2, Probe::new(&live));
    let (h1, h2) = (a.get(1).unwrap(), a.get(1).unwrap());
    drop(t.0.lock().take(1));
    drop(t.0.lock().take(2));
    drop(h1);
    assert_eq!(GONE.load(Ordering::Relaxed), 0);
    drop(h2);
    assert_eq!(GONE.load(Ordering::Relaxed), 1);
    assert_eq!(live.load(Ordering::Relaxed), 0);
}

#[test]
fn sharing_while_something_is_held() {
    let (t, live) = table();
    let a = Attached::new(Some(t.clone()));
    t.0.lock().set(0, Probe::new(&live));
    let h = a.get(0).unwrap();
    let b = Attached::new(Some(t.clone()));
    thread::scope(|s| {
        s.spawn(|| {
            b.get(0).unwrap().check();
            drop(t.0.lock().take(0));
            b.replace(None);
        });
    });
    h.check();
    // The only user again, but with something held: no owner.
    assert!(a.get(0).is_none());
    assert_eq!(t.0.owner.load(Ordering::Relaxed), 0);
    drop(h);
    assert_eq!(live.load(Ordering::Relaxed), 0);
    assert!(a.get(0).is_none());
    assert_ne!(t.0.owner.load(Ordering::Relaxed), 0);
}

#[test]
fn others_read_an_owned_table_and_may_not_change_it() {
    let (t, live) = table();
    let a = Attached::new(Some(t.clone()));
    t.0.lock().set(0, Probe::new(&live));
    a.get(0).unwrap().check();
    thread::scope(|s| {
        s.spawn(|| assert!(t.0.lock().get(0).is_some()));
        assert!(s.spawn(|| t.0.lock().take(0)).join().is_err());
    });
}

#[test]
#[should_panic(expected = "another's table")]
fn an_attachment_is_its_tasks_own() {
    let (t, _) = table();
    let a = Attached::new(Some(t));
    thread::scope(|s| s.spawn(|| a.get(0).is_none()).join()).unwrap();
    a.get(0);
}

#[test]
#[should_panic(expected = "while it is borrowed")]
fn a_table_stays_while_something_is_held() {
    let (t, live) = table();
    let a = Attached::new(Some(t.clone()));
    t.0.lock().set(0, Probe::new(&live));
    let _h = a.get(0);
    a.replace(None);
}

/// Threads look up, hold, close and replace a few numbers, and one leaves and comes back.
#[test]
fn storm() {
    const THREADS: usize = 4;
    const ROUNDS: u32 = 8_000;
    let (t, live) = table();
    let users: Vec<_> = (0..THREADS).map(|_| Attached::new(Some(t.clone()))).collect();
    let done = AtomicBool::new(false);
    thread::scope(|s| {
        let (t, live, done) = (&t, &live, &done);
        let running: Vec<_> = users
            .into_iter()
            .enumerate()
            .map(|(k, a)| {
                s.spawn(move || {
                    let mut seed = k as u32 + 1;
                    let mut seen = 0;
                    for _ in 0..ROUNDS {
                        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        let i = (seed >> 8) as usize % 5 * 40;
                        match seed >> 28 {
                            0..=2 => drop(t.0.lock().set(i, Probe::new(live))),
                            3..=4 => drop(t.0.lock().take(i)),
                            5 => drop(t.0.lock().get(i).cloned().inspect(|p| p.check())),
                            _ => {
                                if let Some(h) = a.get(i) {
                                    h.check();
                                    let other = a.get((i + 40) % 200);
                                    if seed & 64 == 0 {
                                        thread::yield_now();
                                    }
                                    h.check();
                                    drop(h);
                                    other.inspect(|o| o.check());
                                    seen += 1;
                                }
                            }
                        }
                    }
                    assert!(seen > 100);
                    a.replace(None);
                })
            })
            .collect();
        s.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                let end = t.0.lock().end();
                for i in 0..end {
                    t.0.lock().get(i).cloned().inspect(|p| p.check());
                }
            }
        });
        for r in running {
            r.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(t.0.users(), 0);
    for i in 0..200 {
        drop(t.0.lock().take(i));
    }
    assert_eq!(live.load(Ordering::Relaxed), 0);
}
