//! Who is woken for news, and who is not.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use doppel_abi_machine::{VirtualRegisters, event};
use doppel_abi_service::{Bells, ChannelHeader, layout, sleeps};
use doppel_ring::Entry;
use doppel_sys::shared::SharedMap;

use crate::{Channel, Hibernated, make};

const SIZE: u64 = layout::SERVICE;

fn at(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}

/// Both ends of a channel.
fn channel() -> (Channel, SharedMap) {
    let (memory, doorbell): (OwnedFd, OwnedFd) = make(SIZE).unwrap();
    let map = SharedMap::new(memory.as_fd(), at(SIZE)).unwrap();
    let mut c = Channel::open(&memory, doorbell, None, SIZE).unwrap();
    let header: &ChannelHeader = map.get(0);
    header.guest_epoch.store(header.epoch.load(Ordering::SeqCst), Ordering::SeqCst);
    assert!(c.agreed() && posted(&map));
    (c, map)
}

fn header(map: &SharedMap) -> &ChannelHeader {
    map.get(at(layout::HEADER))
}

#[test]
fn a_new_epoch_is_told_whatever_the_last_service_domain_was_about_to_do() {
    for state in [sleeps::NOT, sleeps::SOON, sleeps::IDLE] {
        let (memory, doorbell) = make(SIZE).unwrap();
        let map = SharedMap::new(memory.as_fd(), at(SIZE)).unwrap();
        let bell = header(&map).bell.load(Ordering::SeqCst);
        header(&map).guest_sleeps.store(state, Ordering::SeqCst);
        Channel::open(&memory, doorbell, None, SIZE).unwrap();
        assert!(posted(&map), "{state}");
        assert_ne!(header(&map).bell.load(Ordering::SeqCst), bell, "nobody falls asleep on it");
    }
}

/// Whether the event was posted since the last look.
fn posted(map: &SharedMap) -> bool {
    let registers: &VirtualRegisters = map.get(at(layout::REGISTERS));
    registers.pending.swap(0, Ordering::SeqCst) & event::NETWORK != 0
}

#[test]
fn a_bell_changes_with_news_and_only_a_sleeper_is_woken() {
    let (mut c, map) = channel();
    let bell = header(&map).bell.load(Ordering::SeqCst);
    c.wake();
    assert_eq!(header(&map).bell.load(Ordering::SeqCst), bell, "no news");
    c.mark(1);
    c.wake();
    assert_ne!(header(&map).bell.load(Ordering::SeqCst), bell);
    assert!(!posted(&map), "the guest kernel looks by itself");
    header(&map).guest_sleeps.store(sleeps::IDLE, Ordering::SeqCst);
    c.mark(1);
    c.wake();
    assert!(posted(&map));
    assert_eq!(header(&map).guest_sleeps.load(Ordering::SeqCst), sleeps::NOT, "once");
}

#[test]
fn a_watch_without_a_sleeper_does_not_lose_the_event() {
    let (mut c, map) = channel();
    header(&map).watched.store(1, Ordering::SeqCst);
    header(&map).guest_sleeps.store(sleeps::IDLE, Ordering::SeqCst);
    c.mark(1);
    c.wake();
    assert!(posted(&map), "nobody slept on the bell");
}

#[test]
fn who_is_about_to_look_is_woken_if_it_does_not() {
    let (mut c, map) = channel();
    for looks in [true, false] {
        header(&map).guest_sleeps.store(sleeps::SOON, Ordering::SeqCst);
        c.mark(1);
        c.wake();
        assert!(!posted(&map));
        if looks {
            map.get::<Bells>(at(layout::TO_GUEST)).take(|_| {});
        }
        assert_eq!(c.sleep(), Ok(true));
        assert_eq!(posted(&map), !looks);
    }
}

#[test]
fn a_hibernated_domain_is_called_by_what_its_programs_may_wait_for_only() {
    let (memory, doorbell) = make(SIZE).unwrap();
    let map = SharedMap::new(memory.as_fd(), at(SIZE)).unwrap();
    let bell = Arc::new(rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap());
    let rung = || rustix::io::read(&*bell, &mut [0; 8]).is_ok();
    let mut c = Channel::open(&memory, doorbell, Some(bell.clone()), SIZE).unwrap();
    header(&map).guest_epoch.store(header(&map).epoch.load(Ordering::SeqCst), Ordering::SeqCst);
    assert!(c.agreed());
    let asleep = Hibernated::new(&memory).unwrap();
    assert!(!asleep.has_news());

    assert_eq!(c.answer(&Entry::default(), false), Ok(true));
    c.wake();
    assert!(!rung() && !asleep.has_news(), "of a socket that was closed");
    assert_eq!(c.sleep(), Ok(true));
    assert!(!rung() && !asleep.has_news());

    assert_eq!(c.answer(&Entry::default(), true), Ok(true));
    c.wake();
    assert!(rung() && asleep.has_news());

    // It wakes, takes what there is, and sleeps again.
    header(&map).heard.store(header(&map).calls.load(Ordering::SeqCst), Ordering::SeqCst);
    let asleep = Hibernated::new(&memory).unwrap();
    assert!(!asleep.has_news());
    c.mark(1);
    c.wake();
    assert!(rung() && asleep.has_news());
}
