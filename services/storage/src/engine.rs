//! All clients of one process, on one thread: events, turns.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use doppel_abi_service::storage::SIZE;
use doppel_service::{Channel, Load, Pace};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};

use crate::client::Client;
use crate::files::own_descriptors;
use crate::nodes::Nodes;
use crate::volume::Volume;

/// Names a client of an engine: its place, and how many were there before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClientId(usize, u64);

const CONTROL: Token = Token(usize::MAX);
const EVENTS: usize = 64;

/// All clients of one process.
#[derive(Debug)]
pub struct Engine {
    poll: Poll,
    events: Events,
    clients: Vec<Option<(u64, Client)>>,
    count: u64,
    descriptors: Arc<OwnedFd>,
    pace: Pace,
    load: Load,
}

impl Engine {
    /// One without clients; before it is confined, as it opens what it works with.
    ///
    /// # Errors
    /// What the host says.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            poll: Poll::new()?,
            events: Events::with_capacity(EVENTS),
            clients: Vec::new(),
            count: 0,
            descriptors: Arc::new(own_descriptors()?),
            pace: Pace::new(Instant::now()),
            load: Load::open()?,
        })
    }

    /// It sleeps whenever it has nothing to do.
    pub fn poll_never(&mut self) {
        self.pace = Pace::without_polls(Instant::now());
    }

    /// [`Self::wait`] says when this socket is readable.
    ///
    /// # Errors
    /// What the host says.
    pub fn watch_control(&mut self, control: BorrowedFd<'_>) -> io::Result<()> {
        self.poll.registry().register(&mut SourceFd(&control.as_raw_fd()), CONTROL, Interest::READABLE)
    }

    /// Serves a domain: its channel, and what it knows of these volumes' files.
    ///
    /// # Errors
    /// What the host says.
    pub fn attach(
        &mut self,
        memory: &OwnedFd,
        doorbell: OwnedFd,
        nodes: &OwnedFd,
        volumes: Vec<Volume>,
    ) -> io::Result<ClientId> {
        let channel = Channel::open(memory, doorbell, None, SIZE)?;
        let nodes = Nodes::open(nodes, volumes, self.descriptors.clone())?;
        let place = self.clients.iter().position(Option::is_none).unwrap_or(self.clients.len());
        self.poll.registry().register(
            &mut SourceFd(&channel.doorbell().as_raw_fd()),
            Token(place),
            Interest::READABLE,
        )?;
        self.count += 1;
        if place == self.clients.len() {
            self.clients.push(None);
        }
        self.clients[place] = Some((self.count, Client::new(channel, nodes)));
        Ok(ClientId(place, self.count))
    }

    /// Serves it no more.
    pub fn detach(&mut self, id: ClientId) {
        if self.clients.get(id.0).and_then(Option::as_ref).is_some_and(|(count, _)| *count == id.1) {
            self.drop_client(id.0);
        }
    }

    fn drop_client(&mut self, place: usize) {
        if let Some((_, client)) = self.clients[place].take() {
            // The supervisor has the doorbell too, so that closing ours does not end the watch.
            let doorbell = client.channel.doorbell().as_raw_fd();
            let _ = self.poll.registry().deregister(&mut SourceFd(&doorbell));
        }
    }

    /// Waits for something to do. True: the supervisor has said something.
    ///
    /// # Errors
    /// What the host says.
    pub fn wait(&mut self) -> io::Result<bool> {
        let now = Instant::now();
        let busy = self.any_speaks();
        if busy {
            self.pace.works(now);
        }
        let stay =
            busy || {
                let load = &mut self.load;
                self.pace.polls(now, || load.is_crowded(now))
            } || !self.rest();
        let polled = self.poll.poll(&mut self.events, stay.then_some(Duration::ZERO));
        match polled {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(false),
            polled => polled?,
        }
        if !stay {
            self.pace.slept(now, Instant::now());
            self.clients.iter().flatten().for_each(|(_, client)| client.channel.stay_awake());
        }
        let mut told = false;
        for event in &self.events {
            match event.token() {
                CONTROL => told = true,
                Token(place) => {
                    if let Some(Some((_, client))) = self.clients.get(place) {
                        client.channel.rung();
                    }
                }
            }
        }
        Ok(told)
    }

    /// Works a turn of each client's requests.
    pub fn work(&mut self) {
        for place in 0..self.clients.len() {
            let Some((_, client)) = &mut self.clients[place] else { continue };
            if client.turn().is_err() {
                doppel_service::say(format_args!("a domain has broken the storage service's protocol"));
                self.drop_client(place);
            }
        }
    }

    /// Whether somebody has said something; who breaks the protocol is found at work.
    fn any_speaks(&mut self) -> bool {
        self.clients.iter_mut().flatten().any(|(_, client)| client.channel.speaks().unwrap_or(true))
    }

    /// Asks for all doorbells; false if there is something to do.
    fn rest(&mut self) -> bool {
        let silent =
            self.clients.iter_mut().flatten().all(|(_, client)| client.channel.sleep().unwrap_or(false));
        if !silent {
            self.clients.iter().flatten().for_each(|(_, client)| client.channel.stay_awake());
        }
        silent
    }
}
