//! The guest kernel's end of the channel (`common/abi/service`, docs/services.md): its rings, and who has which socket number.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use doppel_abi_service::net::{
    ACCEPTED, Answer, End, Request, SIZE, SOCKETS, SocketHeader, down_buffer, up_buffer,
};
use doppel_abi_service::{Answers, Bells, ChannelHeader, ENTRIES, Requests, layout, sleeps};
use doppel_ring::{ClientEnd, Numbers, Reader, Span, Stream, Writer};
use doppel_sys::shared::{SharedLayout, SharedMap, offset};

/// A request under way, and what its answer concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    /// This socket is to be connected.
    Connect(u32),
    /// This datagram socket is to have a peer.
    Peer(u32),
    /// Nothing.
    Other,
    /// The number is free then.
    Close(u32),
}

/// What the service has said.
#[derive(Debug, Default)]
pub(super) struct ServiceNews {
    /// The service is another one: whatever it had been told is gone.
    pub anew: bool,
    /// Connections that are made (0), or why not.
    pub connected: Vec<(u32, u16)>,
    /// Datagram sockets whose peer cannot be reached, and why.
    pub refused: Vec<(u32, u16)>,
    /// Connections that came: number, peer, the domain's port.
    pub accepted: Vec<(u32, SocketAddr, u16)>,
    /// Sockets that want a look.
    pub marked: Vec<u32>,
}

/// The end.
#[derive(Debug)]
pub(super) struct Channel {
    map: Arc<SharedMap>,
    doorbell: OwnedFd,
    rings: ClientEnd<Pending>,
    numbers: Numbers,
}

/// An address as the channel has it.
pub(super) fn end(a: SocketAddr) -> End {
    let ip = match a.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    End { ip: ip.octets(), port: a.port() }
}

/// An address from the channel.
pub(super) fn address(end: &End) -> SocketAddr {
    SocketAddr::new(Ipv6Addr::from(end.ip).to_canonical(), end.port)
}

/// Maps a channel.
pub(super) fn map(memory: &OwnedFd) -> io::Result<Arc<SharedMap>> {
    Ok(Arc::new(SharedMap::new(memory.as_fd(), offset(SIZE))?))
}

/// Its first page.
pub(super) fn header(map: &SharedMap) -> &ChannelHeader {
    map.get(offset(layout::HEADER))
}

impl Channel {
    pub fn new(map: Arc<SharedMap>, doorbell: OwnedFd) -> Self {
        Self { map, doorbell, rings: ClientEnd::default(), numbers: Numbers::new(ACCEPTED) }
    }

    /// Whether a service has begun.
    pub fn is_there(&self) -> bool {
        self.rings.epoch() != 0
    }

    fn get<T: SharedLayout>(&self, at: u64) -> &T {
        self.map.get(offset(at))
    }

    /// What both sides know of a socket.
    pub fn socket(&self, n: u32) -> &SocketHeader {
        self.get(SOCKETS + u64::from(n) * size_of::<SocketHeader>() as u64)
    }

    /// Takes all that the service has said.
    pub fn hear(&mut self) -> ServiceNews {
        let mut news = ServiceNews::default();
        let epoch = header(&self.map).epoch.load(Ordering::Acquire);
        if epoch != self.rings.epoch() {
            self.begin(epoch);
            news.anew = true;
        }
        if !self.is_there() {
            return news;
        }
        let map = self.map.clone();
        let ring = map.get::<Answers>(offset(layout::ANSWERS)).ring();
        let numbers = &mut self.numbers;
        let room = self.rings.hear(&ring, ENTRIES, |rings, entry| match Answer::decode(entry) {
            Ok(Answer::Done { ticket, error, .. }) => match rings.complete(ticket) {
                Some(Pending::Connect(n)) => news.connected.push((n, error)),
                Some(Pending::Peer(n)) if error != 0 => news.refused.push((n, error)),
                Some(Pending::Close(n)) => numbers.give_back(n),
                Some(Pending::Peer(_) | Pending::Other) | None => {}
            },
            Ok(Answer::Accepted { socket, peer, port, .. }) => {
                news.accepted.push((socket, address(&peer), port));
            }
            Err(_) => {}
        });
        self.get::<Bells>(layout::TO_GUEST).take(|n| news.marked.push(n));
        if self.rings.flush(&map.get::<Requests>(offset(layout::REQUESTS)).ring()) | room {
            self.ring();
        }
        news
    }

    /// Asks to be told of the next news; true if there are some now.
    pub fn sleep(&self) -> bool {
        let header = header(&self.map);
        header.guest_sleeps.store(sleeps::IDLE, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        header.epoch.load(Ordering::Acquire) != self.rings.epoch()
            || (self.is_there()
                && (self.rings.has_answers(&self.get::<Answers>(layout::ANSWERS).ring())
                    || self.get::<Bells>(layout::TO_GUEST).any()))
    }

    /// Begins an epoch: what was under way is not, and will never be.
    fn begin(&mut self, epoch: u32) {
        self.rings.begin(epoch, true);
        self.numbers = Numbers::new(ACCEPTED);
        self.get::<Requests>(layout::REQUESTS).header.reset();
        self.get::<Answers>(layout::ANSWERS).header.reset();
        for bells in [layout::TO_GUEST, layout::TO_SERVICE] {
            self.get::<Bells>(bells).take(|_| {});
        }
        header(&self.map).guest_epoch.store(epoch, Ordering::Release);
        self.ring();
    }

    /// Queues a request.
    pub fn ask(&mut self, pending: Pending, request: Request) {
        let map = self.map.clone();
        let ring = map.get::<Requests>(offset(layout::REQUESTS)).ring();
        self.rings.ask(&ring, pending, |ticket| request.encode(ticket));
        self.ring();
    }

    /// Has the service look, if it sleeps.
    fn ring(&self) {
        fence(Ordering::SeqCst);
        let sleeps = &header(&self.map).service_sleeps;
        if sleeps.load(Ordering::Relaxed) != 0 && sleeps.swap(0, Ordering::AcqRel) != 0 {
            // A counter at its maximum has rung already.
            let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
        }
    }

    /// Has the service look at a socket.
    pub fn mark(&self, n: u32) {
        self.get::<Bells>(layout::TO_SERVICE).mark(n);
        self.ring();
    }

    /// A number nobody uses, for a socket that is made here.
    pub fn number(&mut self) -> Option<u32> {
        let n = self.numbers.take()?;
        self.socket(n).reset();
        Some(n)
    }

    /// This number is used no more.
    pub fn give_back(&mut self, n: u32) {
        self.numbers.give_back(n);
    }

    /// Takes an error that the service has told of a socket; 0: none.
    pub fn take_error(&self, n: u32) -> u16 {
        u16::try_from(self.socket(n).error.swap(0, Ordering::AcqRel)).unwrap_or(u16::MAX)
    }

    /// Copies bytes to where they go up.
    pub fn put(&self, n: u32, span: Span, bytes: &[u8]) {
        self.map.write(offset(up_buffer(n)) + span.offset, bytes);
    }

    /// Copies bytes that came down.
    pub fn get_bytes(&self, n: u32, span: Span, bytes: &mut [u8]) {
        self.map.read(offset(down_buffer(n)) + span.offset, bytes);
    }

    /// Puts bytes `skip` bytes after the next, which have room there.
    pub fn put_all(&self, n: u32, up: &Writer, skip: usize, mut bytes: &[u8]) {
        let stream = self.socket(n).up();
        let mut skip = u32::try_from(skip).unwrap_or(u32::MAX);
        while let Ok(span) = up.span(&stream, skip)
            && !bytes.is_empty()
            && span.len > 0
        {
            let (now, rest) = bytes.split_at(span.len.min(bytes.len()));
            self.put(n, span, now);
            skip += u32::try_from(now.len()).unwrap_or(u32::MAX);
            bytes = rest;
        }
    }

    /// Copies bytes from `skip` bytes after the next, which are there.
    pub fn get_all(&self, n: u32, down: &Reader, stream: &Stream<'_>, skip: usize, to: &mut [u8]) {
        let mut done = 0;
        while let Ok(span) = down.span(stream, u32::try_from(skip + done).unwrap_or(u32::MAX))
            && done < to.len()
            && span.len > 0
        {
            let take = span.len.min(to.len() - done);
            self.get_bytes(n, span, &mut to[done..done + take]);
            done += take;
        }
    }
}
