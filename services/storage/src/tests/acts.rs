//! What a hostile guest kernel does with its channel, as bytes say: requests of all kinds, and whatever else can be written.
//!
//! The fuzz target `storage` is made of it too.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;

use doppel_abi_service::storage::{
    BUFFER, FILE_EVENTS, FileEvent, FileEvents, Operation, Request, SECOND, SIZE, SLOTS, SlotHeader, Step,
    VOLUMES, buffer, file_event, flags, header, text,
};
use doppel_abi_service::{Answers, Bells, ChannelHeader, Requests, layout};
use doppel_ring::{Consumer, Producer, Ticket};
use doppel_sys::shared::{SharedMap, offset};

/// Slots and nodes that are used mostly, so that acts meet.
const FEW: u16 = 6;
const NAMES: [&[u8]; 12] = [
    b"a",
    b"b",
    b"c",
    b"",
    b".",
    b"..",
    b"../x",
    b"/",
    b"a/b",
    b"a\0",
    b"user.x",
    b"system.posix_acl_access",
];
const MODES: [u64; 8] =
    [0o100_644, 0o040_755, 0o010_600, 0o140_600, 0o020_666, 0o060_666, 0o104_777, u64::MAX];
/// As much as files of a test may take of the host's disk.
const ROOM: u64 = (1 << 20) - 1;

/// A guest kernel without manners.
pub struct Hostile {
    map: SharedMap,
    doorbell: OwnedFd,
    requests: Producer,
    answers: Consumer,
    events: Consumer,
    tickets: u64,
    /// So many of 256 acts break the protocol.
    temper: u8,
}

fn byte(bytes: &mut impl Iterator<Item = u8>) -> u8 {
    bytes.next().unwrap_or(0)
}

fn word(bytes: &mut impl Iterator<Item = u8>) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|_| byte(bytes)))
}

/// A node's number: mostly one that is used.
fn node(bytes: &mut impl Iterator<Item = u8>) -> u64 {
    match byte(bytes) {
        n @ 0..80 => u64::from(n) % 3,
        n @ 80..240 => VOLUMES + u64::from(n) % 10,
        n @ 240..250 => VOLUMES - 1 + u64::from(n),
        _ => word(bytes),
    }
}

/// A number: mostly a small one, or near some border.
fn number(bytes: &mut impl Iterator<Item = u8>) -> u64 {
    match byte(bytes) {
        n @ 0..100 => u64::from(n) * 64,
        n @ 100..200 => BUFFER as u64 - 150 + u64::from(n),
        n @ 200..220 => u64::from(n) << 40,
        n @ 220..240 => u64::MAX - u64::from(n) + 220,
        _ => word(bytes),
    }
}

impl Hostile {
    /// The guest kernel of this channel, which begins as any other. Of 256 acts `temper` may break the protocol.
    ///
    /// # Panics
    /// If the host has no memory.
    #[must_use]
    pub fn new(memory: &OwnedFd, doorbell: OwnedFd, temper: u8) -> Self {
        let map = SharedMap::new(memory.as_fd(), offset(SIZE)).expect("memory for a channel");
        let (requests, answers, events) = Default::default();
        let hostile = Self { map, doorbell, requests, answers, events, tickets: 0, temper };
        let header: &ChannelHeader = hostile.map.get(0);
        header.guest_epoch.store(header.epoch.load(Ordering::SeqCst), Ordering::SeqCst);
        hostile
    }

    /// Does something.
    pub fn act(&mut self, bytes: &mut impl Iterator<Item = u8>) {
        match byte(bytes) {
            _ if byte(bytes) < self.temper => self.scribble(bytes),
            0..230 => self.ask(bytes),
            230..250 => self.hear(),
            // Nothing to write is as good.
            _ => {
                let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
            }
        }
    }

    /// Asks for something, if there is room.
    fn ask(&mut self, bytes: &mut impl Iterator<Item = u8>) {
        self.hear();
        let Some(mut request) = (1..29)
            .nth(usize::from(byte(bytes)) % 28)
            .and_then(|operation| Request::decode(&[operation, 0, 0, 0, 0, 0, 0, 0]).ok())
        else {
            return;
        };
        let slot = u16::from(byte(bytes));
        self.tickets += 1;
        request.slot = if slot < 250 { slot % FEW } else { slot % SLOTS };
        request.ticket = Ticket(if byte(bytes) < 240 { self.tickets } else { self.tickets / 2 });
        request.flags = match byte(bytes) {
            n @ 0..160 => u32::from(n) % 32,
            n @ 160..200 => flags::AGAIN | (u32::from(n) % 4),
            n @ 200..220 => flags::UNUSED | (u32::from(n) % 4),
            _ => word(bytes) as u32,
        };
        (request.node, request.other) = (node(bytes), node(bytes));
        let (first, second) = (usize::from(byte(bytes)), usize::from(byte(bytes)));
        let (first, second) = (NAMES[first % NAMES.len()], NAMES[second % NAMES.len()]);
        self.map.write(offset(text(request.slot)), first);
        self.map.write(offset(text(request.slot)) + SECOND, second);
        let named = byte(bytes) < 230;
        request.a = if named { first.len() as u64 } else { number(bytes) };
        request.b = match request.operation {
            Operation::Make => MODES[usize::from(byte(bytes)) % MODES.len()],
            Operation::Rename | Operation::Symlink if named => second.len() as u64,
            _ => number(bytes),
        };
        match request.operation {
            Operation::Read | Operation::Write | Operation::ReadDir | Operation::Seek => {
                request.a = number(bytes);
            }
            Operation::Allocate => (request.a, request.b) = (number(bytes) & ROOM, number(bytes) & ROOM),
            Operation::Batch => (request.a, request.b) = self.put_steps(request.slot, bytes),
            Operation::Watch => {
                (request.a, request.b) = (number(bytes) & u64::from(file_event::ALL), byte(bytes).into());
            }
            _ => {}
        }
        (request.c, request.d) = (u32::from(byte(bytes) / 128), u32::from(byte(bytes) / 128));
        let requests: &Requests = self.map.get(offset(layout::REQUESTS));
        if self.requests.push(&requests.ring(), &request.encode()) == Ok(true) {
            let _ = self.requests.publish(&requests.ring());
        }
    }

    /// Puts changes of names into a slot's buffer; how many, and their bytes, mostly.
    fn put_steps(&self, slot: u16, bytes: &mut impl Iterator<Item = u8>) -> (u64, u64) {
        let (mut out, count) = (Vec::new(), u64::from(byte(bytes) % 6));
        for _ in 0..count {
            let (first, second) = (usize::from(byte(bytes)), usize::from(byte(bytes)));
            let (first, second) = (NAMES[first % NAMES.len()], NAMES[second % NAMES.len()]);
            let operation =
                [Operation::Unlink, Operation::RmDir, Operation::Rename][usize::from(byte(bytes)) % 3];
            let step = Step {
                operation,
                flags: (u32::from(byte(bytes)) << 24) | (u32::from(byte(bytes)) % 4),
                node: node(bytes),
                other: node(bytes),
                first: first.len() as u16,
                second: second.len() as u16,
            };
            let end = out.len() + step.size();
            out.extend(step.encode());
            out.extend(first);
            out.extend(second);
            out.resize(end, byte(bytes));
        }
        // A length that is none, here and there.
        if byte(bytes) > 230 && out.len() > 24 {
            out[24] = byte(bytes);
        }
        self.map.write(offset(buffer(slot)), &out);
        let wrong = byte(bytes) > 240;
        if wrong { (number(bytes), number(bytes)) } else { (count, out.len() as u64) }
    }

    fn hear(&mut self) {
        let answers = self.map.get::<Answers>(offset(layout::ANSWERS)).ring();
        while let Ok(Some(_)) = self.answers.pop(&answers) {}
        let _ = self.answers.release(&answers);
        let events = self.map.get::<FileEvents>(offset(FILE_EVENTS)).ring();
        while let Ok(Some(_)) = FileEvent::take(&mut self.events, &events) {}
        let _ = self.events.release(&events);
    }

    /// Writes where it likes.
    fn scribble(&mut self, bytes: &mut impl Iterator<Item = u8>) {
        let slot = u16::from(byte(bytes)) % FEW;
        let value = word(bytes);
        let at = match byte(bytes) {
            n @ 0..60 => u64::from(n) * 8 % size_of::<ChannelHeader>() as u64,
            n @ 60..100 => layout::REQUESTS + u64::from(n) % 32 * 8,
            n @ 100..136 => layout::ANSWERS + u64::from(n) % 32 * 8,
            n @ 136..140 => FILE_EVENTS + u64::from(n) % 32 * 8,
            n @ 140..150 => layout::TO_SERVICE + u64::from(n) * 8 % size_of::<Bells>() as u64,
            n @ 150..200 => header(slot) + u64::from(n) * 8 % size_of::<SlotHeader>() as u64,
            n @ 200..230 => text(slot) + u64::from(n),
            n => buffer(slot) + u64::from(n),
        };
        // No request of many bytes of disk is made of it.
        self.map.write(offset(at), &(value & ROOM).to_le_bytes());
    }
}
