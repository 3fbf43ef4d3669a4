//! A datagram socket that the network service executes: the kernel's ends of its two buffers.

use alloc::vec::Vec;

use doppel_abi_service::net::{BUFFER, DatagramHeader, End};
use doppel_machine::network as channel;
use doppel_machine::sync::SpinLock;
use doppel_ring::{Reader, Writer};

use super::ahead::Ahead;
use super::mark;
use crate::Errno;
use crate::objects::net::socket::Marks;

/// A datagram socket.
pub struct Grams {
    number: u32,
    up: SpinLock<Writer>,
    down: SpinLock<Reader>,
    /// Locked under `down`.
    ahead: SpinLock<Ahead>,
}

impl Grams {
    /// The socket with this number, whose buffers are new.
    pub fn new(number: u32) -> Self {
        let ahead = SpinLock::new(Ahead::new(number));
        Self { number, up: SpinLock::default(), down: SpinLock::default(), ahead }
    }

    /// Its number in the channel.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Begins anew with empty buffers, for another service domain.
    pub fn restart(&self) {
        let (mut up, mut down) = (self.up.lock(), self.down.lock());
        channel::socket(self.number).reset();
        (*up, *down) = (Writer::default(), Reader::default());
        *self.ahead.lock() = Ahead::new(self.number);
    }

    /// Takes an error the service has told.
    pub fn take_error(&self) -> Option<Errno> {
        super::take_error(self.number)
    }

    /// Whether a datagram of this length can be sent now.
    pub fn fits(&self, len: usize) -> bool {
        let s = channel::socket(self.number).up();
        self.up.lock().room(&s).unwrap_or(0) as usize >= DatagramHeader::room(len)
    }

    /// Asks to be marked when there is more room, then looks again.
    pub fn fits_or_tell(&self, len: usize) -> bool {
        if self.fits(len) {
            return true;
        }
        let s = channel::socket(self.number).up();
        // Whether there is any room is not the question.
        let _ = self.up.lock().sleep(&s);
        self.fits(len)
    }

    /// Sends a datagram; false if there is no room for it. It is no longer than datagrams are.
    pub fn send(&self, to: End, marks: Marks, data: &[u8]) -> bool {
        let Ok(len) = u16::try_from(data.len()) else { return false };
        let room = DatagramHeader::room(data.len());
        let s = channel::socket(self.number).up();
        let byte = |v: i32| u8::try_from(v).unwrap_or(0);
        let (hops, class) = (byte(marks.hops), byte(marks.class));
        let head = DatagramHeader { peer: to, len, hops, class, port: 0 }.encode();
        let mut up = self.up.lock();
        if (up.room(&s).unwrap_or(0) as usize) < room {
            return false;
        }
        let mut skip = 0;
        for mut part in [&head[..], data] {
            while let Ok(span) = up.span(&s, skip)
                && !part.is_empty()
                && span.len > 0
            {
                let (now, rest) = part.split_at(span.len.min(part.len()));
                channel::put(self.number, span, now);
                skip += now.len() as u32;
                part = rest;
            }
        }
        let notify = up.advance(&s, room);
        drop(up);
        if notify {
            mark(self.number);
        }
        true
    }

    /// The next datagram or record, with its header.
    pub fn next(&self) -> Option<(DatagramHeader, Vec<u8>)> {
        let s = channel::socket(self.number).down();
        let mut down = self.down.lock();
        let waiting = down.waiting(&s).unwrap_or(0) as usize;
        if waiting == 0 {
            return None;
        }
        let take = |down: &Reader, skip: usize, to: &mut [u8]| {
            let mut done = 0;
            while let Ok(span) = down.span(&s, (skip + done) as u32)
                && done < to.len()
                && span.len > 0
            {
                let n = span.len.min(to.len() - done);
                channel::get(self.number, span, &mut to[done..done + n]);
                done += n;
            }
        };
        let mut head = [0; DatagramHeader::SIZE];
        take(&down, 0, &mut head);
        let head = DatagramHeader::decode(&head);
        let room = DatagramHeader::room(head.len.into());
        // A service that writes what is no datagram loses what it wrote.
        let sound = room <= waiting;
        let mut data = alloc::vec![0; if sound { head.len.into() } else { 0 }];
        take(&down, DatagramHeader::SIZE, &mut data);
        let room = room.min(waiting);
        if let Ok(span) = down.span(&s, 0) {
            self.ahead.lock().reach((span.offset + room) % BUFFER as usize, waiting as u32);
        }
        let notify = down.advance(&s, room);
        drop(down);
        if notify {
            mark(self.number);
        }
        sound.then_some((head, data))
    }

    /// Asks to be marked when a datagram comes; false if one has.
    pub fn wait_for_more(&self) -> bool {
        let s = channel::socket(self.number).down();
        self.down.lock().sleep(&s).unwrap_or(true)
    }
}
