//! Clones made ready before they are wanted.
//!
//! All that starting a clone takes (its processes, confined and with the frozen memory mapped, its identity and
//! control group) is done ahead; a held clone waits for one futex. It has run no instruction of its program: the
//! generation protocol, with the arguments and host name given by [`Fleet::go`], comes first after that.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use doppel_freezer::FrozenImage;

use crate::{DomainConfig, Event, Fleet, Key, Output, Resume, Start};

/// Held clones of one frozen image in a fleet, kept at a number.
#[derive(Debug)]
pub struct Pool {
    image: Arc<FrozenImage>,
    config: DomainConfig,
    size: usize,
    made: u32,
    /// Not ready yet: their numbers.
    coming: HashMap<Key, u32>,
    /// Ready, by number.
    ready: BTreeMap<u32, Key>,
}

impl Pool {
    /// A pool of `size` clones, none of them made yet; all like `config`, so without a name in it.
    #[must_use]
    pub fn new(image: Arc<FrozenImage>, config: DomainConfig, size: usize) -> Self {
        Self { image, config, size, made: 0, coming: HashMap::new(), ready: BTreeMap::new() }
    }

    /// Starts to make up for the clones that were taken; their output will go nowhere but to memory, until
    /// [`Fleet::redirect`] says otherwise.
    pub fn fill(&mut self, fleet: &mut Fleet) {
        while self.ready.len() + self.coming.len() < self.size {
            self.made += 1;
            let resume = Resume { image: self.image.clone(), index: self.made, wake: false, hold: true };
            let key = fleet.start(Start::Resume(resume, Box::new(self.config.clone())), Output::Kept);
            self.coming.insert(key, self.made);
        }
    }

    /// Takes note of what happened in the fleet. Clones that could not be made are given up: who fills the pool
    /// again at once should know why they failed.
    pub fn note(&mut self, event: &Event) {
        match event {
            Event::Held(key) => {
                if let Some(index) = self.coming.remove(key) {
                    self.ready.insert(index, *key);
                }
            }
            Event::Failed { key, .. } => {
                self.coming.remove(key);
            }
            Event::Ended(ended) => {
                self.coming.remove(&ended.key);
                self.ready.retain(|_, key| *key != ended.key);
            }
            _ => {}
        }
    }

    /// Whether as many are ready as there should be.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.ready.len() >= self.size
    }

    /// A ready clone and its number, the least; none if all have been taken.
    pub fn take(&mut self) -> Option<(Key, u32)> {
        self.ready.pop_first().map(|(index, key)| (key, index))
    }
}
