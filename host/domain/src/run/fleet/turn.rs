//! What happens to domains: waited for, looked at, told as events.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::{BATCH, Done, Ended, Event, Fleet, OURS, PROCESS, SessionEvent, SessionKey};
use crate::io::console::End;
use crate::run::key::Key;
use crate::session::SessionEnd;
use crate::{Domain, Error};

impl Fleet {
    /// Waits at most `timeout` (none: as long as it takes) until something happens, moves what there is to move,
    /// and tells what has become of domains; often nothing.
    ///
    /// # Errors
    /// If the host fails us.
    pub fn turn(&mut self, timeout: Option<Duration>) -> Result<Vec<Event>, Error> {
        let wait = if self.is_busy() { Some(Duration::ZERO) } else { timeout };
        self.wait(wait)?;
        let mut events = Vec::new();
        while let Ok(done) = self.results.try_recv() {
            self.done(done, &mut events);
        }
        for _ in 0..self.ready.len() {
            let Some(key) = self.ready.pop_front() else { break };
            self.look(key, &mut events);
        }
        Ok(events)
    }

    /// Waits for the host, and notes which domains are to be looked at.
    pub(super) fn wait(&mut self, timeout: Option<Duration>) -> Result<(), Error> {
        let mut buf =
            [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; BATCH];
        let timeout = timeout.and_then(|t| Timespec::try_from(t).ok());
        let n = match epoll::wait(&self.epoll, &mut buf, timeout.as_ref()) {
            Ok(n) => n,
            Err(Errno::INTR) => 0,
            Err(e) => return Err(Error::os("wait for domains")(e)),
        };
        for event in &buf[..n] {
            let data = event.data.u64();
            match (data >> 2, data & 3) {
                (0, OURS) => {
                    for key in std::mem::take(&mut self.blocked) {
                        self.mark(key);
                    }
                }
                // Results are looked for anyway.
                (0, _) => {}
                (key, what) => {
                    if what == PROCESS
                        && let Some(live) = self.live.get_mut(&key)
                    {
                        live.domain.console.died();
                    }
                    self.mark(key);
                }
            }
        }
        Ok(())
    }

    /// Notes that a domain is to be looked at.
    pub(crate) fn mark(&mut self, key: u64) {
        if let Some(live) = self.live.get_mut(&key)
            && !live.queued
        {
            live.queued = true;
            self.ready.push_back(key);
        }
    }

    pub(super) fn done(&mut self, done: Done, events: &mut Vec<Event>) {
        match done {
            Done::Started(key, result, warnings) => {
                let Some((output, killed)) = self.starting.remove(&key.0) else { return };
                let enlisted = result.and_then(|domain| {
                    if killed {
                        domain.kill()?;
                    }
                    self.enlist(key, *domain, output)
                });
                events.push(match enlisted {
                    Ok(()) => Event::Started { key, warnings },
                    Err(error) => Event::Failed { key, error },
                });
            }
            Done::Asked(key, result) => self.froze_itself(key, result, events),
            Done::Limited(key, result) => {
                let result = result.and_then(|limits| {
                    let Some(live) = self.live.get(&key.0) else { return Ok(()) };
                    live.domain.limited(&limits);
                    self.set_memory(key, limits.memory_bytes, limits.memory_target_bytes)
                });
                events.push(Event::Limited { key, result });
            }
            Done::Other(event) => events.push(event),
            // Its end is seen where all ends are.
            Done::Killed => {}
            Done::Settled(key, result) => {
                // One that does not stop goes on; one that cannot go on is of no use.
                if result.is_err()
                    && let Some(live) = self.live.get(&key.0)
                    && live.domain.core.stands_still()
                {
                    let _ = live.domain.kill();
                }
            }
        }
    }

    /// Does what there is to do for one domain.
    pub(super) fn look(&mut self, key: u64, events: &mut Vec<Event>) {
        let Some(live) = self.live.get_mut(&key) else { return };
        live.queued = false;
        let step = live.domain.step();
        let again = live.look_at_sessions(Key(key), events);
        if live.domain.first_output().is_some() && !live.said_first {
            live.said_first = true;
            events.push(Event::FirstOutput(Key(key)));
        }
        if let Some(end) = step.end {
            self.end(key, end, events);
            return;
        }
        if step.held && !live.said_held {
            live.said_held = true;
            events.push(Event::Held(Key(key)));
        }
        let Domain { console, core, .. } = &mut live.domain;
        if console.has_room_again(&core.map) {
            events.push(Event::InputRoom(Key(key)));
        }
        let ours = console.is_ours().then(|| console.blocked());
        if step.asked {
            self.freeze_itself(Key(key));
        }
        if step.more || again {
            self.mark(key);
        }
        if let Some((out, err)) = ours
            && (out || err)
        {
            self.blocked.insert(key);
            self.await_ours(out, err);
        }
    }

    /// Watches our standard output and error for room.
    pub(super) fn await_ours(&self, out: bool, err: bool) {
        let (stdout, stderr) = (std::io::stdout(), std::io::stderr());
        for (wanted, fd) in [(out, stdout.as_fd()), (err, stderr.as_fd())] {
            let flags = epoll::EventFlags::OUT | epoll::EventFlags::ONESHOT;
            let data = epoll::EventData::new_u64(OURS);
            // It is there already, or it is a file, which never blocks.
            if wanted && epoll::modify(&self.epoll, fd, data, flags).is_err() {
                let _ = epoll::add(&self.epoll, fd, data, flags);
            }
        }
    }

    pub(super) fn end(&mut self, key: u64, end: End, events: &mut Vec<Event>) {
        let Some(mut live) = self.live.remove(&key) else { return };
        let domain = &mut live.domain;
        self.blocked.remove(&key);
        self.forget(domain);
        for (number, mut session) in std::mem::take(&mut live.sessions) {
            session.over = true;
            if session.told {
                continue;
            }
            let end = session.step().end.unwrap_or(SessionEnd::DomainEnded);
            let ended = SessionEvent::Ended(end, session.take_captured());
            events.push(Event::Session(Key(key), SessionKey(number), ended));
        }
        if end == End::Died {
            // It is dead, so this does not wait; what it says is only for the words.
            let _ = domain.reap();
        }
        events.push(Event::Ended(Box::new(Ended {
            key: Key(key),
            name: domain.name(),
            outcome: domain.outcome(end),
            asleep: domain.is_asleep(),
            first_output: domain.first_output(),
            output_bytes: domain.output_bytes(),
            usage: self.count_usage.then(|| domain.usage()),
            calls: domain.calls(),
            captured: domain.console.take_captured(),
        })));
        if live.domain.core.record.is_some() {
            self.ended.insert(key, live.domain);
        } else {
            self.reaper.take(live.domain);
        }
    }

    /// How a domain ended that is written down ([`crate::Keep`]) is safe elsewhere: it is taken apart now. Until then a
    /// successor would find it and see its end.
    pub fn bury(&mut self, key: Key) {
        if let Some(domain) = self.ended.remove(&key.0) {
            self.reaper.take(domain);
        }
    }

    /// Lets a domain go on whose former process had it stop for a moment.
    pub(crate) fn settle(&self, key: Key) {
        self.work(key, move |core| Done::Settled(key, core.settle()));
    }

    /// Stops watching a domain, whose processes may have its doorbell open for a while yet.
    pub(super) fn forget(&self, domain: &Domain) {
        for fd in [domain.doorbell.as_fd(), domain.core.child.pidfd.as_fd()] {
            // It fails only if it is not watched.
            let _ = epoll::delete(&self.epoll, fd);
        }
    }
}
