//! A guest kernel's end of a channel in a few lines. The example `byzantine` is made of it too.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use doppel_abi_service::net::{Answer, Request, SIZE, SOCKETS, SocketHeader, down_buffer, up_buffer};
use doppel_abi_service::{Answers, Bells, ChannelHeader, Requests, layout};
use doppel_ring::{Consumer, Producer, Reader, Ticket, Writer};
use doppel_sys::shared::SharedMap;

use super::{ClientId, Counts, Engine, Ledger, Memberships, Published, Quota, Rules, Settings};

/// What a guest kernel does with a channel, without waiting.
pub(super) struct Guest {
    pub(super) map: SharedMap,
    pub(super) memory: OwnedFd,
    pub(super) doorbell: OwnedFd,
    pub(super) requests: Producer,
    pub(super) answers: Consumer,
    pub(super) id: ClientId,
    pub(super) addresses: (Ipv4Addr, Ipv6Addr),
    pub(super) counts: Counts,
    pub(super) tickets: u64,
}

pub(super) fn at(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}

impl Guest {
    pub(super) fn new(engine: &mut Engine, last: u8, rules: Rules, published: Vec<Published>) -> Self {
        Self::with_resolver(engine, last, rules, published, None)
    }

    pub(super) fn with_resolver(
        engine: &mut Engine,
        last: u8,
        rules: Rules,
        published: Vec<Published>,
        resolver: Option<SocketAddr>,
    ) -> Self {
        Self::with_quota(engine, last, rules, published, resolver, Quota::default())
    }

    pub(super) fn with_quota(
        engine: &mut Engine,
        last: u8,
        rules: Rules,
        published: Vec<Published>,
        resolver: Option<SocketAddr>,
        quota: Quota,
    ) -> Self {
        let (memory, doorbell) = doppel_service::make(SIZE).unwrap();
        let map = SharedMap::new(memory.as_fd(), at(SIZE)).unwrap();
        let counts = Ledger::new().unwrap().entry(last.into());
        let addresses =
            (Ipv4Addr::new(10, 88, 0, last), Ipv6Addr::new(0xfd88, 0xd0bb, 0xe1, 0, 0, 0, 0, last.into()));
        let settings = Settings {
            networks: Memberships::of("back"),
            internal: false,
            name: format!("d{last}"),
            ip4: addresses.0,
            ip6: addresses.1,
            served: Default::default(),
            rules,
            published,
            resolver,
            counts: counts.clone(),
            log: None,
            quota,
        };
        let id = engine.attach(&memory, doorbell.try_clone().unwrap(), settings).unwrap();
        let guest = Self {
            map,
            memory,
            doorbell,
            requests: Producer::default(),
            answers: Consumer::default(),
            id,
            addresses,
            counts,
            tickets: 0,
        };
        guest.begin();
        guest
    }

    pub(super) fn begin(&self) {
        let header: &ChannelHeader = self.map.get(0);
        self.map.get::<Requests>(at(layout::REQUESTS)).header.reset();
        self.map.get::<Answers>(at(layout::ANSWERS)).header.reset();
        header.guest_epoch.store(header.epoch.load(Ordering::Acquire), Ordering::Release);
        self.ring();
    }

    pub(super) fn ring(&self) {
        rustix::io::write(&self.doorbell, &1u64.to_ne_bytes()).unwrap();
    }

    pub(super) fn socket(&self, n: u32) -> &SocketHeader {
        self.map.get(at(SOCKETS) + n as usize * size_of::<SocketHeader>())
    }

    pub(super) fn ask(&mut self, request: Request) -> Ticket {
        self.tickets += 1;
        let ring = self.map.get::<Requests>(at(layout::REQUESTS)).ring();
        assert!(self.requests.push(&ring, &request.encode(Ticket(self.tickets))).unwrap());
        let _ = self.requests.publish(&ring);
        self.ring();
        Ticket(self.tickets)
    }

    pub(super) fn answer(&mut self) -> Option<Answer> {
        let ring = self.map.get::<Answers>(at(layout::ANSWERS)).ring();
        let entry = self.answers.pop(&ring).unwrap()?;
        let _ = self.answers.release(&ring);
        Some(Answer::decode(&entry).unwrap())
    }

    pub(super) fn mark(&self, n: u32) {
        self.map.get::<Bells>(at(layout::TO_SERVICE)).mark(n);
        self.ring();
    }
}

/// A connection of a guest, with its private indices.
pub(super) struct Connection {
    pub(super) n: u32,
    pub(super) up: Writer,
    pub(super) down: Reader,
}

impl Connection {
    pub(super) fn new(n: u32) -> Self {
        Self { n, up: Writer::default(), down: Reader::default() }
    }

    /// Sends what there is room for.
    pub(super) fn send(&mut self, g: &Guest, bytes: &[u8]) -> usize {
        let stream = g.socket(self.n).up();
        let span = self.up.span(&stream, 0).unwrap();
        let n = span.len.min(bytes.len());
        g.map.write(at(up_buffer(self.n)) + span.offset, &bytes[..n]);
        if self.up.advance(&stream, n) {
            g.mark(self.n);
        }
        if n == 0 {
            // As before a sleep: it asks to be marked when there is room.
            let _ = self.up.sleep(&stream).unwrap();
        }
        n
    }

    /// Receives what is there; `None` at the end.
    pub(super) fn receive(&mut self, g: &Guest) -> Option<Vec<u8>> {
        let stream = g.socket(self.n).down();
        let ended = self.down.closed(&stream);
        let span = self.down.span(&stream, 0).unwrap();
        if span.len == 0 {
            let _ = self.down.sleep(&stream).unwrap();
            return if ended { None } else { Some(Vec::new()) };
        }
        let mut bytes = vec![0; span.len];
        g.map.read(at(down_buffer(self.n)) + span.offset, &mut bytes);
        if self.down.advance(&stream, span.len) {
            g.mark(self.n);
        }
        Some(bytes)
    }

    pub(super) fn end(&self, g: &Guest) {
        if self.up.close(&g.socket(self.n).up()) {
            g.mark(self.n);
        }
    }
}

/// Turns the engine until `f` has something, for at most half a minute.
pub(super) fn until<T>(engine: &mut Engine, mut f: impl FnMut(&mut Engine) -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(t) = f(engine) {
            return t;
        }
        assert!(Instant::now() < end, "nothing came");
        engine.turn(Some(Duration::from_millis(1))).unwrap();
    }
}

pub(super) fn done(engine: &mut Engine, g: &mut Guest, ticket: Ticket) -> u16 {
    until(engine, |_| match g.answer()? {
        Answer::Done { ticket: t, error, .. } if t == ticket => Some(error),
        other => panic!("{other:?}"),
    })
}
