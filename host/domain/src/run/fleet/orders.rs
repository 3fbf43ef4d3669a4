//! What a caller asks of a domain that runs; what may take long is done by a worker.

use std::path::PathBuf;
use std::time::Duration;

use doppel_spec::Resources;

use super::{Asked, Done, EAGAIN, Event, Fleet, REST, Start, ring};
use crate::lock::lock;
use crate::paging::pager;
use crate::run::key::Key;
use crate::run::state::Core;
use crate::run::workers;
use crate::{DomainConfig, Error, Output};

impl Fleet {
    /// Lets a clone go that is held, as `wanted` says.
    ///
    /// # Errors
    /// If the arguments are too long.
    pub fn go(&mut self, key: Key, wanted: &DomainConfig) -> Result<(), Error> {
        match self.live.get_mut(&key.0) {
            Some(live) => live.domain.go(wanted),
            None => Err(Error::Ended("the clone has ended before it was let go".into())),
        }
    }

    /// Whether [`Self::go_as`] can make this domain of it.
    #[must_use]
    pub fn suits(&self, key: Key, wanted: &Start) -> bool {
        let Some(domain) = self.get(key) else { return false };
        match wanted {
            Start::Boot(config) => domain.suits(config),
            Start::Clone { image, index, config, .. } => domain.suits_clone(image, *index, config),
            Start::Resume(..) | Start::Wake(..) => false,
        }
    }

    /// Lets a domain go that is held, as the one that is wanted; its output goes there from now on.
    ///
    /// # Errors
    /// What is wrong with it; what is held is of no more use then.
    pub fn go_as(&mut self, key: Key, wanted: &DomainConfig, output: Output) -> Result<(), Error> {
        let Some(live) = self.live.get_mut(&key.0) else {
            return Err(Error::Ended("it has ended before it was let go".into()));
        };
        live.domain.set_output(output);
        live.domain.become_one(wanted)
    }

    /// Kills a domain; [`Event::Ended`] follows. One that is being started is killed when it has.
    ///
    /// # Errors
    /// What the host says.
    pub fn kill(&mut self, key: Key) -> Result<(), Error> {
        self.kill_within(key, Duration::ZERO)
    }

    /// The same, of one that has a layer to write when it has done so, or after this long.
    ///
    /// # Errors
    /// What the host says.
    pub fn kill_within(&mut self, key: Key, grace: Duration) -> Result<(), Error> {
        if let Some(starting) = self.starting.get_mut(&key.0) {
            starting.1 = true;
        }
        let Some(live) = self.live.get(&key.0) else { return Ok(()) };
        if grace.is_zero() || !live.domain.core.writes_at_its_end() {
            return live.domain.kill();
        }
        self.work(key, move |core| {
            core.shut_down(grace);
            Done::Killed
        });
        Ok(())
    }

    /// Writes its memory to the frozen image `to`, in the background, and ends it if `stop`; [`Event::Frozen`] follows. One that is to be
    /// `whole` refers to no other.
    pub fn freeze(&self, key: Key, to: PathBuf, stop: bool, whole: bool) {
        self.work(key, move |core| Done::Other(Event::Frozen { key, result: core.freeze(&to, stop, whole) }));
    }

    /// Keeps what is on a disk that it writes, as long as this file is there, in the background; [`Event::KeptDisk`] follows, with `call`.
    pub fn keep_disk(&self, key: Key, call: u64, disk: String, needed_by: PathBuf) {
        self.work(key, move |core| {
            Done::Other(Event::KeptDisk { key, call, result: core.keep_disk(&disk, &needed_by) })
        });
    }

    /// Hibernates it, unless it has something to do by itself before `least` is over; [`Event::Frozen`] follows.
    pub fn hibernate(&self, key: Key, to: PathBuf, least: Duration) {
        self.work(key, move |core| Done::Other(Event::Frozen { key, result: core.hibernate(&to, least) }));
    }

    /// Has it stand still until [`Self::unpause`]; [`Event::Paused`] follows.
    pub fn pause(&self, key: Key) {
        self.work(key, move |core| Done::Other(Event::Paused { key, result: core.pause() }));
    }

    /// Lets a paused domain go on; [`Event::Unpaused`] follows. One that is stopped for something else just now, which
    /// it can draw out, is waited for.
    pub fn unpause(&self, key: Key) {
        self.work(key, move |core| {
            core.unpause();
            Done::Other(Event::Unpaused(key))
        });
    }

    /// Counts its memory; [`Event::Memory`] follows.
    pub fn count_memory(&self, key: Key) {
        self.work(key, move |core| {
            let counted = core.counted_memory().filter(|_| lock(&core.share).is_none());
            let result = match counted {
                Some(private) => Ok((private, 0)),
                None => core.stats().map(|s| (s.private_bytes, s.shared_bytes)),
            };
            Done::Other(Event::Memory { key, result })
        });
    }

    /// Changes limits while it runs; [`Event::Limited`] follows. The host takes memory back first if it is to have less.
    pub fn set_limits(&self, key: Key, wanted: Resources) {
        self.work(key, move |core| Done::Limited(key, core.limit(&wanted).map(|()| Box::new(wanted))));
    }

    /// Changes the memory a domain's programs may have and the balloon's target, in bytes.
    ///
    /// # Errors
    /// If a value is below [`crate::LEAST_MEMORY`].
    pub fn set_memory(&self, key: Key, limit: Option<u64>, target: Option<u64>) -> Result<(), Error> {
        let Some(live) = self.live.get(&key.0) else { return Ok(()) };
        live.domain.core.set_memory(limit, target)?;
        pager::look_after(&live.domain.core);
        Ok(())
    }

    /// Does something with a domain that may take long, on another thread. One that has ended is nobody to work with.
    pub(super) fn work(&self, key: Key, job: impl FnOnce(&Core) -> Done + Send + 'static) {
        if let Some(job) = self.job(key, job) {
            workers::run(job);
        }
    }

    pub(super) fn job(
        &self,
        key: Key,
        job: impl FnOnce(&Core) -> Done + Send + 'static,
    ) -> Option<workers::Job> {
        let live = self.live.get(&key.0)?;
        let (guest, sender, wake) = (live.domain.core.receive(), self.sender.clone(), self.wake.clone());
        Some(Box::new(move || {
            // The domain's end waits for the guest: its frozen image may have no name yet.
            let done = job(&guest);
            drop(guest);
            // Without a fleet nobody wants to know.
            let _ = sender.send(done);
            ring(&wake);
        }))
    }

    /// Serves a program of a domain that has asked for it to be frozen.
    pub(super) fn freeze_itself(&mut self, key: Key) {
        let Some(live) = self.live.get_mut(&key.0) else { return };
        if live.asked.under_way {
            live.asked.again = true;
            return;
        }
        if live.domain.core.born.freeze_to.is_none() {
            // It may not, and is told so.
            live.domain.core.freeze_itself();
            return;
        }
        live.asked = Asked { under_way: true, again: false, rest: live.asked.rest };
        let (rest, core) = (live.asked.rest, live.domain.core.clone());
        let job = self.job(key, move |core| {
            // One that ends is not waited for.
            core.look_until(rest, || core.is_dead());
            Done::Asked(key, core.freeze_itself())
        });
        // The threads that are kept for the owner's wishes are not for its own.
        if let Some(Err(_)) = job.map(workers::try_run) {
            core.refuse_freeze(EAGAIN);
            if let Some(live) = self.live.get_mut(&key.0) {
                live.asked.under_way = false;
            }
        }
    }

    /// It was served.
    pub(super) fn froze_itself(
        &mut self,
        key: Key,
        result: Option<Result<(), Error>>,
        events: &mut Vec<Event>,
    ) {
        if let Some(live) = self.live.get_mut(&key.0) {
            let failed = !matches!(result, Some(Ok(())));
            let rest = if failed { (live.asked.rest * 2).clamp(REST[0], REST[1]) } else { Duration::ZERO };
            let again = live.asked.again;
            live.asked = Asked { rest, ..Asked::default() };
            if again {
                self.freeze_itself(key);
            }
        }
        events.extend(result.map(|result| Event::FrozeItself { key, result }));
    }
}
