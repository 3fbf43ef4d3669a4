//! A stream that the network service executes: the kernel's ends of its two byte streams.

use core::sync::atomic::{AtomicBool, Ordering};

use doppel_abi_service::net::BUFFER;
use doppel_machine::network as channel;
use doppel_machine::sync::SpinLock;
use doppel_ring::{Reader, Span, Stream, Writer};

use super::ahead::Ahead;
use super::mark;
use crate::objects::net::consts::MsgFlags;
use crate::objects::vfs::io::Piece;
use crate::objects::vfs::{Input, Output};
use crate::{Errno, Result};

/// Most bytes copied under one lock.
const PIECE: usize = 32 << 10;

/// Fewer bytes are held back by TCP_CORK and MSG_MORE.
const HELD: usize = 32 << 10;

/// A stream.
pub struct Far {
    number: u32,
    /// TCP_CORK: the service is not told of a few bytes until it is taken off, or a thread waits ([`super::Network::release`]).
    corked: AtomicBool,
    /// It has not been told.
    held: AtomicBool,
    up: SpinLock<Writer>,
    down: SpinLock<Reader>,
    /// Locked under `down`.
    ahead: SpinLock<Ahead>,
    /// Where the urgent byte is that was not passed yet, and whether it was received (MSG_OOB).
    urgent: SpinLock<Option<(u32, bool)>>,
}

/// What a broken stream is to programs.
const BROKEN: Errno = Errno::ECONNRESET;

/// A span without its first bytes.
fn after(span: Span, at: usize) -> Span {
    Span { offset: span.offset + at, len: span.len - at }
}

impl Far {
    pub(super) fn new(number: u32) -> Self {
        let new = Self {
            number,
            corked: AtomicBool::new(false),
            held: AtomicBool::new(false),
            up: SpinLock::default(),
            down: SpinLock::default(),
            ahead: SpinLock::new(Ahead::new(number)),
            urgent: SpinLock::default(),
        };
        // Of one that was accepted more may have come than there was room for.
        if new.down.lock().offer(&channel::socket(number).down()) {
            mark(number);
        }
        new
    }

    /// Its number in the channel.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Bytes that can be sent now.
    pub fn room(&self) -> usize {
        let s = channel::socket(self.number).up();
        self.up.lock().room(&s).unwrap_or(0) as usize
    }

    /// Bytes that the service has not taken yet.
    pub fn unsent(&self) -> usize {
        BUFFER as usize - self.room()
    }

    /// Takes an error the service has told.
    pub fn take_error(&self) -> Option<Errno> {
        super::take_error(self.number)
    }

    /// Asks to be marked when there is room; false if there is some.
    pub fn wait_for_room(&self) -> bool {
        let s = channel::socket(self.number).up();
        self.up.lock().sleep(&s).unwrap_or(true)
    }

    /// Sets TCP_CORK.
    pub fn cork(&self, on: bool) {
        self.corked.store(on, Ordering::SeqCst);
        if !on && self.held.swap(false, Ordering::SeqCst) {
            mark(self.number);
        }
    }

    /// Sends what there is room for. By `flags` the last byte of `input` is urgent (MSG_OOB), or more is to come (MSG_MORE).
    pub fn send(&self, input: &mut Input<'_>, flags: MsgFlags) -> Result<usize> {
        let (urgent, more) = (flags.contains(MsgFlags::OOB), flags.contains(MsgFlags::MORE));
        let s = channel::socket(self.number).up();
        let mut total = 0;
        loop {
            let mut up = self.up.lock();
            let span = up.span(&s, 0).map_err(|_| BROKEN)?;
            let n = span.len.min(input.remaining()).min(PIECE);
            if n == 0 {
                return Ok(total);
            }
            // Straight from the program's memory. A fault there is fixed up with the lock held.
            let done = input.pieces(n, |at, piece| match piece {
                Piece::User(from, len) => {
                    channel::put_from_user(self.number, after(span, at), from, len).unwrap_or(0)
                }
                Piece::Kernel(bytes) => {
                    channel::put(self.number, after(span, at), bytes);
                    bytes.len()
                }
            })?;
            if urgent && done > 0 && input.remaining() == 0 {
                channel::socket(self.number).up_urgent.put(up.count().wrapping_add(done as u32 - 1));
            }
            let notify = up.advance(&s, done);
            drop(up);
            total += done;
            if self.held.swap(false, Ordering::SeqCst) || notify {
                if urgent { mark(self.number) } else { self.tell(more) }
            }
        }
    }

    /// Tells the service that there are bytes, unless they may wait for more.
    fn tell(&self, more: bool) {
        let holds = || more || self.corked.load(Ordering::SeqCst);
        if !holds() || self.unsent() >= HELD {
            return mark(self.number);
        }
        super::hold(self.number);
        self.held.store(true, Ordering::SeqCst);
        // Whoever has taken the cork off meanwhile found nothing held.
        if !holds() && self.held.swap(false, Ordering::SeqCst) {
            mark(self.number);
        }
    }

    /// Bytes that can be received now.
    pub fn available(&self) -> usize {
        let s = channel::socket(self.number).down();
        self.down.lock().waiting(&s).unwrap_or(0) as usize
    }

    /// Asks to be marked when bytes or the end come; false if they have. Whoever looks may want more than there is room for.
    pub fn wait_for_bytes(&self) -> bool {
        let s = channel::socket(self.number).down();
        let down = self.down.lock();
        let waits = down.sleep(&s).unwrap_or(true);
        if !waits && self.make_room(&down, &s, 0) && down.offer(&s) {
            drop(down);
            mark(self.number);
        }
        waits
    }

    /// Makes room ahead of the reader, who is about to give back `taken` bytes; true if there is more than there was.
    fn make_room(&self, down: &Reader, s: &Stream<'_>, taken: usize) -> bool {
        let (Ok(waiting), Ok(span)) = (down.waiting(s), down.span(s, 0)) else { return false };
        self.ahead.lock().reach((span.offset + taken) % BUFFER as usize, waiting)
    }

    /// Gives back bytes that were read; true: the service waits for that, mark the socket.
    fn give_back(&self, down: &mut Reader, s: &Stream<'_>, n: usize) -> bool {
        // First, or the service would wake to find as much as before.
        let more = n > 0 && self.make_room(down, s, n);
        down.advance(s, n) || more && down.offer(s)
    }

    /// Whether nothing comes after the bytes that are there.
    pub fn ended(&self) -> bool {
        let s = channel::socket(self.number).down();
        self.down.lock().closed(&s)
    }

    /// Takes news of an urgent byte; true if there is another one.
    pub fn urged(&self) -> bool {
        let word = &channel::socket(self.number).down_urgent;
        let Some(count) = word.get() else { return false };
        word.took(count);
        *self.urgent.lock() = Some((count, false));
        true
    }

    /// How many bytes come before the urgent one.
    pub fn before_mark(&self) -> Option<usize> {
        let (count, _) = (*self.urgent.lock())?;
        let before = count.wrapping_sub(self.down.lock().count());
        // A service that lies about it has said nothing.
        (before <= BUFFER).then_some(before as usize)
    }

    /// Whether there is an urgent byte that was not received.
    pub fn has_urgent(&self) -> bool {
        matches!(*self.urgent.lock(), Some((_, false)))
    }

    /// Receives the urgent byte; none if there is none. With `peek` it stays.
    pub fn receive_urgent(&self, peek: bool) -> Option<u8> {
        let before = self.before_mark()?;
        let mut urgent = self.urgent.lock();
        let (count, received) = (*urgent)?;
        if received {
            return None;
        }
        let s = channel::socket(self.number).down();
        let span = self.down.lock().span(&s, before as u32).ok().filter(|span| span.len > 0)?;
        let mut byte = [0];
        channel::get(self.number, span, &mut byte);
        *urgent = Some((count, !peek));
        Some(byte[0])
    }

    /// Reading goes on at the mark: there is no urgent byte any more. It is left out if it is not `inline`.
    pub fn pass_mark(&self, inline: bool) {
        *self.urgent.lock() = None;
        if inline {
            return;
        }
        let s = channel::socket(self.number).down();
        let mut down = self.down.lock();
        let notify = down.waiting(&s).is_ok_and(|n| n > 0) && self.give_back(&mut down, &s, 1);
        drop(down);
        if notify {
            mark(self.number);
        }
    }

    /// Receives what is there, at most `most` bytes; with `out` none they are dropped, with `peek` they stay.
    pub fn receive(&self, out: Option<&mut Output<'_>>, most: usize, peek: bool) -> Result<usize> {
        let s = channel::socket(self.number).down();
        let Some(out) = out else {
            let mut down = self.down.lock();
            let n = (down.waiting(&s).map_err(|_| BROKEN)? as usize).min(most);
            let notify = self.give_back(&mut down, &s, n);
            drop(down);
            if notify {
                mark(self.number);
            }
            return Ok(n);
        };
        let mut total = 0;
        while total < most && out.remaining() > 0 {
            let skip = if peek { total } else { 0 };
            let mut down = self.down.lock();
            let span = down.span(&s, u32::try_from(skip).unwrap_or(u32::MAX)).map_err(|_| BROKEN)?;
            let n = span.len.min(most - total).min(PIECE);
            // Straight to the program's memory; what it has no room for stays.
            let done = out.pieces(n, |at, piece| match piece {
                Piece::User(to, len) => {
                    channel::get_to_user(self.number, after(span, at), to, len).unwrap_or(0)
                }
                Piece::Kernel(bytes) => {
                    channel::get(self.number, after(span, at), bytes);
                    bytes.len()
                }
            })?;
            if done == 0 {
                break;
            }
            let notify = !peek && self.give_back(&mut down, &s, done);
            drop(down);
            if notify {
                mark(self.number);
            }
            total += done;
        }
        Ok(total)
    }

    /// Nothing more will be sent.
    pub fn end(&self) {
        let s = channel::socket(self.number).up();
        let notify = self.up.lock().close(&s);
        if self.held.swap(false, Ordering::SeqCst) || notify {
            mark(self.number);
        }
    }

    /// Nothing more will be received.
    pub fn hang_up(&self) {
        let s = channel::socket(self.number).down();
        if self.down.lock().hang_up(&s) {
            mark(self.number);
        }
    }
}
