//! Domains whose guest kernels do what they like: nothing outside their volumes changes, and a neighbour is served.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use doppel_abi_service::storage::{Operation, Request};

use super::acts::Hostile;
use super::guest::{Guest, channel};
use crate::{Engine, Volume, node_memory};

/// Numbers without an end, by xorshift.
struct Dice(u64);

impl Iterator for Dice {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Some((self.0 >> 32) as u8)
    }
}

fn attach(engine: &Engine, volumes: Vec<Volume>) -> (OwnedFd, OwnedFd) {
    let (memory, doorbell) = channel();
    engine.attach(&memory, doorbell.try_clone().unwrap(), &node_memory().unwrap(), volumes).unwrap();
    (memory, doorbell)
}

#[test]
fn whatever_a_domain_does_is_its_own_harm() {
    let dir = tempfile::tempdir().unwrap();
    let (root, fixed) = (dir.path().join("volume"), dir.path().join("fixed"));
    for made in [&root, &fixed] {
        std::fs::create_dir(made).unwrap();
    }
    std::fs::write(fixed.join("a"), "fixed").unwrap();
    std::fs::write(dir.path().join("x"), "outside").unwrap();
    let end = Instant::now() + Duration::from_secs(2);
    for (round, temper) in (1..).zip([0, 1, 8, 64, 255].into_iter().cycle()) {
        let engine = Engine::new(1, false).unwrap();
        let volumes = || {
            [(&root, false), (&fixed, true), (&root, false)].map(|(p, only)| Volume::open(p, only).unwrap())
        };
        let mut hostile: Vec<_> = (0..2)
            .map(|_| {
                let (memory, doorbell) = attach(&engine, volumes().into());
                Hostile::new(&memory, doorbell, temper)
            })
            .collect();
        let mut dice = Dice(round * 0x9e37_79b9);
        for act in 0..600 {
            hostile.iter_mut().for_each(|one| one.act(&mut dice));
            if act % 3 == 0 {
                engine.turn().unwrap();
            }
        }
        let (memory, doorbell) = attach(&engine, vec![Volume::open(dir.path(), true).unwrap()]);
        let mut neighbour = Guest::new(memory.as_fd(), doorbell.as_fd());
        neighbour.ask(0, Request::new(Operation::ReadDir, 0));
        for _ in 0..100 {
            engine.turn().unwrap();
        }
        neighbour.answered(0).expect("it is heard").unwrap();
        if Instant::now() >= end {
            break;
        }
    }
    assert_eq!(std::fs::read(dir.path().join("x")).unwrap(), b"outside");
    assert_eq!(std::fs::read(fixed.join("a")).unwrap(), b"fixed");
    assert_eq!(std::fs::read_dir(&fixed).unwrap().count(), 1);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
}
