//! What happens to domains, as the fleet tells it: to whoever asked for it, and to the supervisor.

use doppel_domain::{Ended, Error, Event, Key};

use super::protocol::{Exit, Fault, Message, Notification, Reply, Usage};
use super::serve::{TOOL_ERROR, exit_of, failed, gone, refused, stages};
use super::{Domain, Keeper};
use crate::time;

/// Whose event it is.
fn key_of(event: &Event) -> Key {
    match event {
        Event::Started { key, .. }
        | Event::Failed { key, .. }
        | Event::Frozen { key, .. }
        | Event::KeptDisk { key, .. }
        | Event::FrozeItself { key, .. }
        | Event::Memory { key, .. }
        | Event::Limited { key, .. }
        | Event::Paused { key, .. } => *key,
        Event::Unpaused(key)
        | Event::Held(key)
        | Event::FirstOutput(key)
        | Event::InputRoom(key)
        | Event::Session(key, ..) => *key,
        Event::Ended(ended) => ended.key,
    }
}

/// An answer without contents, or why not.
fn done(result: Result<(), Error>) -> Reply {
    result.map_or_else(|e| failed(&e), |()| Reply::Done)
}

impl Keeper {
    pub(super) fn happened(&mut self, event: Event) {
        let key = key_of(&event);
        if let Event::Frozen { result, .. } = &event
            && let Some(n) = self.freezes.remove(&key)
        {
            // Its domain may have ended by it, and be forgotten already.
            let said = match result {
                Ok(r) => Reply::Frozen {
                    bytes: r.bytes,
                    written: r.written,
                    stop_us: r.stop_us,
                    pause_us: r.pause_us,
                    due_in_ms: r.due_in_ms,
                },
                Err(error) => failed(error),
            };
            self.say(&Message::Reply { n, reply: said });
            return;
        }
        if matches!(event, Event::Started { .. } | Event::Ended(_)) {
            self.spares.stir();
        }
        let spare = self.spares.note(key, &event);
        let id = self.keys.get(&key).filter(|id| !spare && self.domains.contains_key(*id)).cloned();
        match id {
            Some(id) => self.happened_to(key, id, event),
            // Nobody is to be told how it ended.
            None if matches!(event, Event::Ended(_)) => self.fleet.bury(key),
            None => {}
        }
    }

    fn happened_to(&mut self, key: Key, id: String, event: Event) {
        let Some(domain) = self.domains.get_mut(&id) else { return };
        match event {
            Event::Started { warnings, .. } => {
                let times = self.fleet.get(key).map(|d| stages(d.start_times())).unwrap_or_default();
                self.runs(key, &id, warnings, times);
            }
            Event::Failed { error, .. } => {
                let (refusal, reason) = (failed(&error), error.to_string());
                self.start_failed(key, id, refusal, &reason);
            }
            Event::InputRoom(_) => self.feed(&id),
            // Whoever asked for it has gone, and sees what came of it in the store.
            Event::Frozen { .. } => {}
            Event::KeptDisk { call, result, .. } => {
                let said = result.map_or_else(|e| failed(&e), |kept| Reply::KeptDisk { kept });
                // Whoever asked may have gone, and what is kept goes with them.
                let waits = domain.keeping.iter().position(|n| *n == call);
                let call = waits.map(|place| domain.keeping.remove(place));
                self.reply(call, said);
            }
            Event::FrozeItself { result, .. } => {
                let failed = result.err().map(|e| e.to_string());
                self.say(&Message::Notification(Notification::FrozeItself { id, failed }));
            }
            Event::Paused { result, .. } => {
                domain.paused = result.is_ok();
                let call = domain.pausing.take();
                self.reply(call, done(result));
            }
            Event::Unpaused(_) => {
                domain.paused = false;
                let call = domain.pausing.take();
                self.reply(call, Reply::Done);
            }
            Event::Limited { result, .. } => {
                let Some((call, limits)) = domain.limiting.take() else { return };
                if result.is_ok() {
                    domain.limits = limits;
                    domain.storage.iter().for_each(|storage| storage.limit(&domain.limits));
                    self.write_note(key);
                }
                self.reply(call, done(result));
            }
            Event::Memory { result, .. } => {
                for n in std::mem::take(&mut domain.counting) {
                    let said = match &result {
                        Ok((private, shared)) => {
                            Reply::Memory { private_bytes: *private, shared_bytes: *shared }
                        }
                        Err(e) => failed(e),
                    };
                    self.say(&Message::Reply { n, reply: said });
                }
            }
            Event::Session(_, session, event) => self.exec_happened(session, event),
            Event::Held(_) | Event::FirstOutput(_) => {}
            Event::Ended(ended) => self.domain_ended(id, *ended),
        }
    }

    /// A domain could not be started.
    fn start_failed(&mut self, key: Key, id: String, refusal: Reply, reason: &str) {
        let Some(domain) = self.domains.get_mut(&id) else { return };
        let (call, run) = (domain.starting.take(), domain.run);
        if domain.woke
            && let Some(attachment) = domain.network.take()
        {
            self.keep_network(&id, attachment, true);
        }
        if call.is_some() {
            self.domains.remove(&id);
            self.keys.remove(&key);
            self.fleet.bury(key);
            self.reply(call, refusal);
        } else {
            // Whoever asked has gone; its successor is told as of an end.
            let reason = Some(format!("could not be started: {reason}"));
            self.ended(Exit { id, run, code: TOOL_ERROR, reason, at: time::now(), ..Exit::default() });
        }
    }

    /// Tells of domains whose storage service has begun by now, and ends those that it will not serve, which would wait for ever.
    pub(super) fn look_who_is_served(&mut self) {
        self.storage.heard();
        let (mut run, mut fail) = (Vec::new(), Vec::new());
        for (id, domain) in &mut self.domains {
            let Some(storage) = domain.storage.as_ref().filter(|_| domain.failed.is_none()) else { continue };
            if let Some(why) = storage.failure() {
                fail.push((id.clone(), why));
            } else if storage.has_begun()
                && let Some((warnings, stages)) = domain.unserved.take()
            {
                run.push((domain.key, id.clone(), warnings, stages));
            }
        }
        for (key, id, warnings, stages) in run {
            self.started(key, &id, warnings, stages);
        }
        for (id, why) in fail {
            tracing::error!("domain {id} is ended: {why}");
            let Some(domain) = self.domains.get_mut(&id) else { continue };
            domain.failed = Some(why);
            if let Err(error) = self.fleet.kill(domain.key) {
                tracing::error!("domain {id}: {error}");
            }
        }
    }

    /// A domain has ended: those who wait for an answer get one, and its end is written down and told.
    fn domain_ended(&mut self, id: String, ended: Ended) {
        // A program that has ended by itself has begun, though we may not have heard yet that its files were served.
        if matches!(ended.outcome, doppel_domain::Outcome::Exited(_))
            && let Some((warnings, stages)) =
                self.domains.get_mut(&id).and_then(|domain| domain.unserved.take())
        {
            self.started(ended.key, &id, warnings, stages);
        }
        let Some(domain) = self.domains.get_mut(&id) else { return };
        let mut usage = ended.usage.map(Usage::from).unwrap_or_default();
        domain.count(&mut usage, ended.calls);
        let asleep = ended.asleep;
        if let Some(why) = domain.failed.clone().filter(|_| domain.started_at.is_none()) {
            return self.start_failed(ended.key, id, refused(Fault::Host, why.clone()), &why);
        }
        // A freeze that ended it is answered when its report is there.
        let freezing = if asleep { None } else { self.freezes.remove(&ended.key) };
        let calls: Vec<u64> = freezing.into_iter().chain(domain.take_calls()).collect();
        let (code, mut reason, out_of_memory) = exit_of(&ended.outcome, domain.killed);
        if code == TOOL_ERROR {
            reason = domain.failed.take().or(reason);
        }
        let run = domain.run;
        for n in calls {
            self.say(&Message::Reply { n, reply: gone(&id) });
        }
        let at = time::now();
        self.ended(Exit { id, run, code, reason, out_of_memory, at, asleep, lost: false, usage });
    }
}

impl Domain {
    /// Calls that wait for something of a domain that has ended; its input is dropped.
    fn take_calls(&mut self) -> Vec<u64> {
        let limiting = self.limiting.take().and_then(|(call, _)| call);
        let calls = [self.starting.take(), self.pausing.take(), limiting];
        let input = std::mem::take(&mut self.input);
        let pieces = input.queue.iter().filter_map(|p| p.call);
        let more = std::mem::take(&mut self.counting).into_iter().chain(std::mem::take(&mut self.keeping));
        calls.into_iter().flatten().chain(pieces).chain(more).collect()
    }
}
