//! How a supervisor goes on with the domains of one that is no more.
//!
//! [`Manager::kept_in`] has taken over the service domains. What a domain has of the network is in its [`Part`], which was
//! written down with it; its channel and doorbell are taken from its own process, and of a hibernated one from the service
//! domain, as are listening sockets, which are told from all others by their numbers. When all have been resumed, the service
//! domains forget whomever else they serve.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use doppel_abi_service::net::SIZE;
use doppel_service::{Hibernated, check_bell, check_memory, socket_number};

use crate::manager::own;
use crate::manager::records::Part;
use crate::manager::shard::{Member, State};
use crate::manager::{Attachment, Manager, Port, Sleeper, locked, publish};
use crate::rules::ledger::Traffic;
use crate::service::serve::Descriptors;

/// How long a port may still be taken by a process that is just ending.
const PATIENCE: Duration = Duration::from_secs(2);

/// A domain's channel and doorbell.
pub type Channel = (OwnedFd, OwnedFd);

impl Attachment {
    /// What a successor has to know of it.
    #[must_use]
    pub fn part(&self) -> Option<Part> {
        let state = self.shard.lock();
        let member = state.members.get(&self.key)?;
        let sockets = member.sockets.iter().map(|socket| socket_number(socket).unwrap_or_default()).collect();
        Some(Part { key: self.key, shard: self.index, wanted: member.wanted.clone(), sockets })
    }
}

impl Manager {
    /// Gives a domain that runs the part that it has, with the channel from its process. `counted`: what was counted of it as
    /// far as is known, for the case that the service domain and its counts are gone. Ports that cannot be published any more
    /// are told of.
    ///
    /// # Errors
    /// If there can be no such domain, or what the host says.
    pub fn resume(&self, part: Part, channel: Channel, counted: Traffic) -> io::Result<Attachment> {
        Ok(self.take_up(part, Some(channel), counted)?.0)
    }

    /// The same of a hibernated domain. Its channel is with the service domain; if that is gone, it has a new one.
    ///
    /// # Errors
    /// As for [`Self::resume`].
    pub fn resume_asleep(&self, part: Part) -> io::Result<Sleeper> {
        let (attachment, same) = self.take_up(part, None, Traffic::default())?;
        let channel =
            if same { Hibernated::again(&attachment.memory)? } else { Hibernated::new(&attachment.memory)? };
        Ok(Sleeper { attachment, channel, same })
    }

    /// All domains that there are have been resumed: others are served no more.
    pub fn resumed(&self) {
        self.shards.iter().for_each(|shard| shard.lock().claimed());
    }

    fn take_up(
        &self,
        part: Part,
        channel: Option<Channel>,
        counted: Traffic,
    ) -> io::Result<(Attachment, bool)> {
        let Part { key, shard, wanted, sockets: numbers } = part;
        if let Some((memory, doorbell)) = &channel {
            check_memory(memory, SIZE)?;
            check_bell(doorbell)?;
        }
        let networks = wanted.networks();
        let names = networks.iter().map(|m| m.network.as_str());
        let index = locked(&self.book).enter_again(key, names, shard)?;
        let leave = |error| {
            locked(&self.book).leave(key);
            error
        };
        let mut state = self.shards[index].lock();
        let held = state.claim(key);
        let served = held.is_some();
        let taken = held.and_then(|held| {
            let taken = take(&state, &held, &numbers, channel.is_none());
            taken.inspect_err(|error| not_what_it_was(&state, error)).ok()
        });
        let (same, (channel, sockets)) = match (taken, channel) {
            (Some((sockets, None)), Some(channel)) => (true, (channel, Some(sockets))),
            (Some((sockets, Some(channel))), _) => (true, (channel, Some(sockets))),
            (_, Some(channel)) => (false, (channel, None)),
            (_, None) => (false, (doppel_service::make(SIZE).map_err(leave)?, None)),
        };
        let mut wanted = wanted;
        let sockets = sockets.unwrap_or_else(|| publish_again(&mut wanted.published));
        let (memory, doorbell) = (channel.0.into(), channel.1.into());
        let member = Member { wanted, memory, doorbell, sockets, process: None };
        own::write(&member.memory, &own::table(&member.wanted, key)).map_err(leave)?;
        let published = member.wanted.published.clone();
        let (memory, doorbell) = (member.memory.clone(), member.doorbell.clone());
        let counts = state.gear.ledger.entry(key);
        // Counts go with the last service domain that has them.
        let before = if state.goes_on_counting() { Traffic::default() } else { counted };
        if served && same {
            state.enter(key, member);
        } else {
            state.enlist(key, member);
        }
        drop(state);
        let shard = self.shards[index].clone();
        let book = self.book.clone();
        let attachment = Attachment { shard, index, book, key, memory, doorbell, published, counts, before };
        Ok((attachment, same))
    }
}

/// Descriptors of a domain's that its service domain has: the sockets with these numbers, and the channel if it is `wanted`.
fn take(
    state: &State,
    held: &Descriptors,
    numbers: &[u64],
    wanted: bool,
) -> io::Result<(Vec<OwnedFd>, Option<Channel>)> {
    let other = || io::Error::other("a descriptor of its is another one than was written down");
    if held.sockets.len() != numbers.len() {
        return Err(other());
    }
    let socket = |(held, number): (&i32, &u64)| {
        let socket = state.take(*held)?;
        if socket_number(&socket)? == *number { Ok(socket) } else { Err(other()) }
    };
    let sockets = held.sockets.iter().zip(numbers).map(socket).collect::<io::Result<_>>()?;
    let channel = wanted.then(|| {
        let (memory, doorbell) = (state.take(held.memory)?, state.take(held.doorbell)?);
        check_memory(&memory, SIZE)?;
        check_bell(&doorbell)?;
        Ok::<_, io::Error>((memory, doorbell))
    });
    Ok((sockets, channel.transpose()?))
}

fn not_what_it_was(state: &State, error: &io::Error) {
    doppel_service::say(format_args!("a network service is not what it was, and is replaced: {error}"));
    state.give_up();
}

/// Binds ports again whose sockets are gone; those that are another's by now are no more.
fn publish_again(ports: &mut Vec<Port>) -> Vec<OwnedFd> {
    let begun = Instant::now();
    let mut sockets = Vec::new();
    ports.retain_mut(|port| {
        loop {
            match publish(port) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && begun.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => {
                    doppel_service::say(format_args!("a published port is lost: {error}"));
                    return false;
                }
                Ok(socket) => {
                    sockets.push(socket);
                    return true;
                }
            }
        }
    });
    sockets
}
