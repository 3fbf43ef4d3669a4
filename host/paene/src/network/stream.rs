//! A connection: the domain's kernel at one end of it, and at the other smoltcp in the far end's place, whose bytes are the
//! channel's.
//!
//! Each has a stack of its own, which has the far end's address and one socket: no connection is looked for among others,
//! and none can hold up another.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::SocketAddr;

use doppel_ring::{Reader, Writer};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Checksum, ChecksumCapabilities, Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{HardwareAddress, IpCidr};

use super::channel::Channel;
use super::device::MTU;
use super::tunnel::Tunnel;

/// Bytes under way each way.
const WINDOW: usize = 256 << 10;
/// Rounds of a turn: bytes to and from the channel, then packets.
const ROUNDS: usize = 8;

/// A connection.
pub(super) struct Connection {
    number: u32,
    up: Writer,
    down: Reader,
    stack: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    calls: Option<Duration>,
    /// The domain's kernel has answered; who called has been told so.
    met: bool,
    told: bool,
    /// The program's last byte has come; some before it may wait for room in the channel, also when the connection is over.
    all_sent: bool,
    /// The program's end has been told to the channel.
    up_ended: bool,
    /// The channel's end has been told to the program.
    down_ended: bool,
}

/// What became of one in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It wants one by then, if nothing comes before.
    Until(Option<Instant>),
    /// It is over; `reset`: before its time.
    Over { reset: bool },
    /// The domain does not take it.
    Refused,
}

/// The device in a turn: at most one packet comes in.
struct Wire<'t> {
    tunnel: &'t Tunnel,
    packet: Option<&'t [u8]>,
}

struct Incoming<'t>(&'t [u8]);
struct Outgoing<'t>(&'t Tunnel);

impl RxToken for Incoming<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

impl TxToken for Outgoing<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        self.0.send(len, f)
    }
}

impl Device for Wire<'_> {
    type RxToken<'a>
        = Incoming<'a>
    where
        Self: 'a;
    type TxToken<'a>
        = Outgoing<'a>
    where
        Self: 'a;

    fn receive(&mut self, _: Instant) -> Option<(Incoming<'_>, Outgoing<'_>)> {
        Some((Incoming(self.packet.take()?), Outgoing(self.tunnel)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Outgoing<'_>> {
        Some(Outgoing(self.tunnel))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut caps = DeviceCapabilities::default();
        caps.medium = Medium::Ip;
        caps.max_transmission_unit = MTU;
        // The packets never leave this host.
        caps.checksum = ChecksumCapabilities::ignored();
        caps.checksum.ipv4 = Checksum::Tx;
        caps
    }
}

impl Connection {
    fn new(number: u32, far: SocketAddr, tunnel: &Tunnel, now: Instant) -> Self {
        let mut config = Config::new(HardwareAddress::Ip);
        config.random_seed = RandomState::new().build_hasher().finish();
        let mut stack = Interface::new(config, &mut Wire { tunnel, packet: None }, now);
        let all = if far.is_ipv4() { 32 } else { 128 };
        stack.update_ip_addrs(|addresses| {
            let _ = addresses.push(IpCidr::new(far.ip().into(), all));
        });
        let buffer = || SocketBuffer::new(vec![0; WINDOW]);
        let mut socket = Socket::new(buffer(), buffer());
        // Whoever sends has waited already, if he wants to.
        socket.set_nagle_enabled(false);
        let mut sockets = SocketSet::new(Vec::with_capacity(1));
        let handle = sockets.add(socket);
        let (up, down) = (Writer::default(), Reader::default());
        Self {
            number,
            up,
            down,
            stack,
            sockets,
            handle,
            calls: None,
            met: false,
            told: false,
            all_sent: false,
            up_ended: false,
            down_ended: false,
        }
    }

    /// One that a program opens, to `far`: its first packet comes next.
    pub fn opened(number: u32, far: SocketAddr, tunnel: &Tunnel, now: Instant) -> Option<Self> {
        let mut c = Self::new(number, far, tunnel, now);
        c.socket().listen(far).ok()?;
        Some(c)
    }

    /// One from `far`, which has called the domain at `own`; if nobody listens there, the next is made `after` a while.
    pub fn called(
        number: u32,
        far: SocketAddr,
        own: SocketAddr,
        after: Duration,
        tunnel: &Tunnel,
        now: Instant,
    ) -> Option<Self> {
        let mut c = Self::new(number, far, tunnel, now);
        let socket = c.sockets.get_mut::<Socket<'_>>(c.handle);
        socket.connect(c.stack.context(), own, far).ok()?;
        c.calls = Some(after);
        Some(c)
    }

    fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    /// If somebody has called: when to do so again where nobody listens.
    pub fn calls(&self) -> Option<Duration> {
        self.calls
    }

    /// Its number in the channel.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Whether its domain has taken it by now, the first time this is asked.
    pub fn taken(&mut self) -> bool {
        self.met && !std::mem::replace(&mut self.told, self.met)
    }

    /// Ends it at once: the program sees a reset.
    pub fn cut(&mut self, tunnel: &Tunnel, now: Instant) {
        self.socket().abort();
        self.stack.poll(now, &mut Wire { tunnel, packet: None }, &mut self.sockets);
    }

    /// Takes a packet, and moves what can be moved.
    pub fn turn(&mut self, channel: &Channel, tunnel: &Tunnel, packet: Option<&[u8]>, now: Instant) -> Turn {
        let mut wire = Wire { tunnel, packet };
        for _ in 0..ROUNDS {
            self.stack.poll(now, &mut wire, &mut self.sockets);
            if channel.take_error(self.number) != 0 {
                self.cut(tunnel, now);
                return Turn::Over { reset: true };
            }
            let state = self.socket().state();
            self.met |= !matches!(state, State::Listen | State::SynSent | State::SynReceived | State::Closed);
            if !self.met {
                break;
            }
            self.all_sent |=
                matches!(state, State::CloseWait | State::Closing | State::LastAck | State::TimeWait);
            let up = self.move_up(channel);
            let down = self.move_down(channel);
            if !(up || down) {
                break;
            }
        }
        let ended = self.up_ended && self.down_ended;
        match self.socket().state() {
            State::Closed if !self.met => Turn::Refused,
            // The other end knows, but has not taken all that the program sent.
            State::Closed | State::TimeWait if self.all_sent && !self.up_ended => Turn::Until(None),
            State::Closed => Turn::Over { reset: !ended },
            State::TimeWait => Turn::Over { reset: false },
            _ => Turn::Until(self.stack.poll_at(now, &self.sockets)),
        }
    }

    /// Bytes from the program to the channel; whether there were some.
    fn move_up(&mut self, channel: &Channel) -> bool {
        let Self { number, up, sockets, handle, all_sent, up_ended, .. } = self;
        let socket = sockets.get_mut::<Socket<'_>>(*handle);
        let stream = channel.socket(*number).up();
        let mut some = false;
        while socket.can_recv() {
            let Ok(span) = up.span(&stream, 0) else { break };
            if span.len == 0 {
                if up.sleep(&stream).unwrap_or(true) {
                    break;
                }
                if up.hung_up(&stream) {
                    // Nobody wants it.
                    let _ = socket.recv(|bytes| (bytes.len(), ()));
                }
                continue;
            }
            let moved = socket.recv(|bytes| {
                let n = bytes.len().min(span.len);
                channel.put(*number, span, &bytes[..n]);
                (n, n)
            });
            let Ok(n) = moved else { break };
            some |= n > 0;
            if up.advance(&stream, n) {
                channel.mark(*number);
            }
        }
        if *all_sent && !socket.can_recv() && !*up_ended {
            *up_ended = true;
            if up.close(&stream) {
                channel.mark(*number);
            }
        }
        some
    }

    /// Bytes from the channel to the program; whether there were some.
    fn move_down(&mut self, channel: &Channel) -> bool {
        let Self { number, down, sockets, handle, down_ended, .. } = self;
        let socket = sockets.get_mut::<Socket<'_>>(*handle);
        let stream = channel.socket(*number).down();
        let mut some = false;
        while socket.can_send() {
            let closed = down.closed(&stream);
            let Ok(span) = down.span(&stream, 0) else { break };
            if span.len == 0 {
                if closed {
                    *down_ended = true;
                    socket.close();
                    return true;
                }
                if down.sleep(&stream).unwrap_or(true) {
                    break;
                }
                continue;
            }
            let moved = socket.send(|room| {
                let n = room.len().min(span.len);
                channel.get_bytes(*number, span, &mut room[..n]);
                (n, n)
            });
            let Ok(n) = moved else { break };
            some |= n > 0;
            if down.advance(&stream, n) {
                channel.mark(*number);
            }
        }
        some
    }
}
