//! A stream that the network service executes: the kernel's ends of its two byte streams.

use core::sync::atomic::{AtomicBool, Ordering};

use doppel_abi_service::net::BUFFER;
use doppel_machine::network as channel;
use doppel_machine::sync::SpinLock;
use doppel_ring::{Reader, Span, Writer};

use super::mark;
use crate::fs::io::Piece;
use crate::fs::{Input, Output};
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
}

/// What a broken stream is to programs.
const BROKEN: Errno = Errno::ECONNRESET;

/// A span without its first bytes.
fn after(span: Span, at: usize) -> Span {
    Span { offset: span.offset + at, len: span.len - at }
}

impl Far {
    pub(super) fn new(number: u32) -> Self {
        Self {
            number,
            corked: AtomicBool::new(false),
            held: AtomicBool::new(false),
            up: SpinLock::default(),
            down: SpinLock::default(),
        }
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

    /// Sends what there is room for; with `more`, more is to come.
    pub fn send(&self, input: &mut Input<'_>, more: bool) -> Result<usize> {
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
            let notify = up.advance(&s, done);
            drop(up);
            total += done;
            if self.held.swap(false, Ordering::SeqCst) || notify {
                self.tell(more);
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

    /// Asks to be marked when bytes or the end come; false if they have.
    pub fn wait_for_bytes(&self) -> bool {
        let s = channel::socket(self.number).down();
        self.down.lock().sleep(&s).unwrap_or(true)
    }

    /// Whether nothing comes after the bytes that are there.
    pub fn ended(&self) -> bool {
        let s = channel::socket(self.number).down();
        self.down.lock().closed(&s)
    }

    /// Receives what is there, at most `most` bytes; with `out` none they are dropped, with `peek` they stay.
    pub fn receive(&self, out: Option<&mut Output<'_>>, most: usize, peek: bool) -> Result<usize> {
        let s = channel::socket(self.number).down();
        let Some(out) = out else {
            let mut down = self.down.lock();
            let n = (down.waiting(&s).map_err(|_| BROKEN)? as usize).min(most);
            let notify = down.advance(&s, n);
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
            let notify = !peek && down.advance(&s, done);
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
