//! A guest kernel's end of a channel in a few lines: it asks in slots, waits, and asks again whoever follows a service that died.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use doppel_abi_service::storage::{
    Answer, Attributes, BUFFER, Changes, DirectoryEntry, FILE_EVENTS, FileEvent, FileEvents, Operation,
    Request, SECOND, SIZE, SLOTS, Step, buffer, flags, header, set, shown, text,
};
use doppel_abi_service::{Answers, Bells, ChannelHeader, Requests, layout, sleeps};
use doppel_ring::{Consumer, Producer, Ticket};
use doppel_sys::shared::{SharedMap, offset};
use rustix::thread::futex;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a guest kernel does with a channel.
pub struct Guest {
    pub map: SharedMap,
    pub doorbell: OwnedFd,
    epoch: u32,
    requests: Producer,
    answers: Consumer,
    events: Consumer,
    tickets: u64,
    /// What is under way, by slot.
    asked: Vec<Option<Request>>,
    done: Vec<Option<Answer>>,
    /// Services that came after another.
    pub successors: u32,
}

/// An errno.
pub type Errno = u16;

impl Guest {
    pub fn new(memory: BorrowedFd<'_>, doorbell: BorrowedFd<'_>) -> Self {
        Self {
            map: SharedMap::new(memory, offset(SIZE)).unwrap(),
            doorbell: doorbell.try_clone_to_owned().unwrap(),
            epoch: 0,
            requests: Producer::default(),
            answers: Consumer::default(),
            events: Consumer::default(),
            tickets: 0,
            asked: vec![None; SLOTS.into()],
            done: vec![None; SLOTS.into()],
            successors: 0,
        }
    }

    pub fn header(&self) -> &ChannelHeader {
        self.map.get(0)
    }

    fn ring(&self) {
        let _ = rustix::io::write(&self.doorbell, &1u64.to_ne_bytes());
    }

    /// Begins the service's epoch, if it is another one.
    fn begin(&mut self) {
        let epoch = self.header().epoch.load(Ordering::SeqCst);
        if epoch == self.epoch || epoch == 0 {
            return;
        }
        self.successors += u32::from(self.epoch != 0);
        self.epoch = epoch;
        (self.requests, self.answers) = (Producer::default(), Consumer::default());
        self.events = Consumer::default();
        self.map.get::<FileEvents>(offset(FILE_EVENTS)).header.reset();
        self.map.get::<Requests>(offset(layout::REQUESTS)).header.reset();
        self.map.get::<Answers>(offset(layout::ANSWERS)).header.reset();
        self.header().guest_epoch.store(epoch, Ordering::SeqCst);
        for request in self.asked.clone().into_iter().flatten() {
            self.push(&Request { flags: request.flags | flags::AGAIN, ..request });
        }
        self.ring();
    }

    fn push(&mut self, request: &Request) {
        let requests: &Requests = self.map.get(offset(layout::REQUESTS));
        assert!(self.requests.push(&requests.ring(), &request.encode()).unwrap());
        let _ = self.requests.publish(&requests.ring());
        std::sync::atomic::fence(Ordering::SeqCst);
        if self.header().service_sleeps.load(Ordering::Relaxed) != 0 {
            self.header().service_sleeps.store(0, Ordering::Relaxed);
            self.ring();
        }
    }

    /// Asks in a slot. Names and data are there already.
    pub fn ask(&mut self, slot: u16, request: Request) {
        self.begin();
        self.tickets += 1;
        let request = Request { slot, ticket: Ticket(self.tickets), ..request };
        if request.operation.is_answered() {
            self.asked[usize::from(slot)] = Some(request);
        }
        self.push(&request);
    }

    /// Takes what was answered.
    pub fn hear(&mut self) {
        self.begin();
        let answers = self.map.get::<Answers>(offset(layout::ANSWERS)).ring();
        while let Some(entry) = self.answers.pop(&answers).unwrap() {
            let answer = Answer::decode(&entry).unwrap();
            let slot = usize::from(answer.slot);
            let asked = self.asked[slot].take().expect("an answer to nobody's request");
            assert_eq!(asked.ticket, answer.ticket);
            assert!(self.done[slot].replace(answer).is_none());
        }
        let _ = self.answers.release(&answers);
    }

    /// The answer in a slot, if it has come.
    pub fn answered(&mut self, slot: u16) -> Option<Result<Answer, Errno>> {
        self.hear();
        let answer = self.done[usize::from(slot)].take()?;
        Some(if answer.error == 0 { Ok(answer) } else { Err(answer.error) })
    }

    /// The events that are there.
    pub fn events(&mut self) -> Vec<FileEvent> {
        self.begin();
        self.map.get::<Bells>(offset(layout::TO_GUEST)).take(|_| {});
        let ring = self.map.get::<FileEvents>(offset(FILE_EVENTS)).ring();
        let taken = std::iter::from_fn(|| FileEvent::take(&mut self.events, &ring).unwrap()).collect();
        if self.events.release(&ring) {
            self.ring();
        }
        taken
    }

    /// Watches a file for these events, by the request of this number.
    pub fn watch(&mut self, node: u64, events: u32, number: u64) -> Result<(), Errno> {
        self.call(Request { a: events.into(), b: number, ..Request::new(Operation::Watch, node) }).map(drop)
    }

    /// Watches it no more.
    pub fn unwatch(&mut self, node: u64, number: u64) {
        self.ask(0, Request { b: number, ..Request::new(Operation::Unwatch, node) });
    }

    /// Waits for the answer in a slot.
    pub fn wait(&mut self, slot: u16) -> Result<Answer, Errno> {
        let begun = Instant::now();
        loop {
            for _ in 0..64 {
                if let Some(answer) = self.answered(slot) {
                    return answer;
                }
                std::hint::spin_loop();
            }
            assert!(begun.elapsed() < PATIENCE, "no answer to {:?}", self.asked[usize::from(slot)]);
            let bell = self.header().bell.load(Ordering::SeqCst);
            self.header().watched.store(1, Ordering::SeqCst);
            self.header().guest_sleeps.store(sleeps::IDLE, Ordering::SeqCst);
            if let Some(answer) = self.answered(slot) {
                return answer;
            }
            let time = rustix::thread::Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
            let _ = futex::wait(&self.header().bell, futex::Flags::empty(), bell, Some(&time));
            self.header().guest_sleeps.store(sleeps::NOT, Ordering::SeqCst);
        }
    }

    pub fn call(&mut self, request: Request) -> Result<Answer, Errno> {
        self.ask(0, request);
        self.wait(0)
    }

    /// Asks once more for what was answered last, which this asked in slot 0: the service died before it could say that it was done.
    pub fn call_again(&mut self, request: Request) -> Result<Answer, Errno> {
        self.map.write(offset(header(0)) + 8, &0u64.to_le_bytes());
        let request =
            Request { flags: request.flags | flags::AGAIN, ticket: Ticket(self.tickets), ..request };
        self.asked[0] = Some(request);
        self.push(&request);
        self.wait(0)
    }

    pub fn put_name(&self, slot: u16, name: &[u8]) -> u64 {
        self.map.write(offset(text(slot)), name);
        name.len() as u64
    }

    pub fn put_second(&self, slot: u16, name: &[u8]) -> u64 {
        self.map.write(offset(text(slot)) + SECOND, name);
        name.len() as u64
    }

    pub fn put_data(&self, slot: u16, data: &[u8]) -> u64 {
        self.map.write(offset(buffer(slot)), data);
        data.len() as u64
    }

    pub fn data(&self, slot: u16, len: u64) -> Vec<u8> {
        let mut bytes = vec![0; offset(len)];
        self.map.read(offset(buffer(slot)), &mut bytes);
        bytes
    }

    pub fn text(&self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.map.read(offset(text(0)), &mut bytes);
        bytes
    }

    /// The attributes that the last answer in a slot came with.
    pub fn shown_in(&self, slot: u16) -> Attributes {
        let mut bytes = [0; Attributes::BYTES];
        self.map.read(offset(shown(slot)), &mut bytes);
        Attributes::decode(&bytes)
    }

    /// The attributes that the last answer in slot 0 came with.
    pub fn shown(&self) -> Attributes {
        self.shown_in(0)
    }

    /// With a name in the first half.
    pub fn named(&mut self, request: Request, name: &[u8]) -> Result<Answer, Errno> {
        let a = self.put_name(0, name);
        self.call(Request { a, ..request })
    }

    pub fn lookup(&mut self, dir: u64, name: &str) -> Result<u64, Errno> {
        self.named(Request::new(Operation::Lookup, dir), name.as_bytes()).map(|a| a.node)
    }

    pub fn attributes(&mut self, node: u64) -> Result<Attributes, Errno> {
        self.call(Request::new(Operation::GetAttr, node)).map(|_| self.shown())
    }

    /// Makes a file of this mode, with its type, of root.
    pub fn make(&mut self, dir: u64, name: &str, mode: u32) -> Result<u64, Errno> {
        let request = Request { b: mode.into(), ..Request::new(Operation::Make, dir) };
        self.named(request, name.as_bytes()).map(|a| a.node)
    }

    pub fn create(&mut self, dir: u64, name: &str) -> Result<u64, Errno> {
        self.make(dir, name, 0o100_644)
    }

    pub fn symlink(&mut self, dir: u64, name: &str, target: &[u8]) -> Result<u64, Errno> {
        let b = self.put_second(0, target);
        self.named(Request { b, ..Request::new(Operation::Symlink, dir) }, name.as_bytes()).map(|a| a.node)
    }

    pub fn read_link(&mut self, node: u64) -> Result<Vec<u8>, Errno> {
        let answer = self.call(Request::new(Operation::ReadLink, node))?;
        Ok(self.text(offset(answer.value)))
    }

    pub fn unlink(&mut self, dir: u64, name: &str) -> Result<(), Errno> {
        self.named(Request::new(Operation::Unlink, dir), name.as_bytes()).map(drop)
    }

    pub fn rmdir(&mut self, dir: u64, name: &str) -> Result<(), Errno> {
        self.named(Request::new(Operation::RmDir, dir), name.as_bytes()).map(drop)
    }

    pub fn rename(&mut self, from: u64, old: &str, to: u64, new: &str, how: u32) -> Result<(), Errno> {
        let b = self.put_second(0, new.as_bytes());
        let request = Request { other: to, b, flags: how, ..Request::new(Operation::Rename, from) };
        self.named(request, old.as_bytes()).map(drop)
    }

    /// Puts changes of names into a slot's buffer, each with its names; the request for them, of this volume.
    pub fn batch(&mut self, slot: u16, volume: u64, steps: &[(Step, &str, &str)]) -> Request {
        let mut bytes = Vec::new();
        for (step, first, second) in steps {
            let step = Step { first: first.len() as u16, second: second.len() as u16, ..*step };
            let end = bytes.len() + step.size();
            bytes.extend(step.encode());
            bytes.extend(first.as_bytes());
            bytes.extend(second.as_bytes());
            bytes.resize(end, 0);
        }
        let b = self.put_data(slot, &bytes);
        Request { a: steps.len() as u64, b, ..Request::new(Operation::Batch, volume) }
    }

    pub fn link(&mut self, node: u64, dir: u64, name: &str) -> Result<(), Errno> {
        let request = Request { other: dir, ..Request::new(Operation::Link, node) };
        self.named(request, name.as_bytes()).map(drop)
    }

    pub fn read(&mut self, node: u64, at: u64, len: u64) -> Result<Vec<u8>, Errno> {
        let answer = self.call(Request { a: at, b: len, ..Request::new(Operation::Read, node) })?;
        Ok(self.data(0, answer.value))
    }

    pub fn write(&mut self, node: u64, at: u64, data: &[u8]) -> Result<u64, Errno> {
        let b = self.put_data(0, data);
        self.call(Request { a: at, b, ..Request::new(Operation::Write, node) }).map(|a| a.value)
    }

    /// Where it ends then.
    pub fn append(&mut self, node: u64, data: &[u8]) -> Result<u64, Errno> {
        let b = self.put_data(0, data);
        let request = Request { b, flags: flags::APPEND, ..Request::new(Operation::Write, node) };
        self.call(request).map(|a| a.node)
    }

    pub fn sync(&mut self, node: u64, how: u32) -> Result<(), Errno> {
        self.call(Request { flags: how, ..Request::new(Operation::Sync, node) }).map(drop)
    }

    pub fn change(&mut self, node: u64, which: u32, changes: Changes) -> Result<Attributes, Errno> {
        self.map.write(offset(text(0)), &changes.encode());
        self.call(Request { flags: which, ..Request::new(Operation::SetAttr, node) }).map(|_| self.shown())
    }

    pub fn truncate(&mut self, node: u64, size: u64) -> Result<Attributes, Errno> {
        self.change(node, set::SIZE, Changes { size, ..Changes::default() })
    }

    pub fn allocate(&mut self, node: u64, mode: u32, at: u64, len: u64) -> Result<(), Errno> {
        let request = Request { flags: mode, a: at, b: len, ..Request::new(Operation::Allocate, node) };
        self.call(request).map(drop)
    }

    pub fn seek(&mut self, node: u64, whence: u32, at: u64) -> Result<u64, Errno> {
        self.call(Request { flags: whence, a: at, ..Request::new(Operation::Seek, node) }).map(|a| a.value)
    }

    pub fn tmpfile(&mut self, dir: u64) -> Result<u64, Errno> {
        self.call(Request { b: 0o600, ..Request::new(Operation::TmpFile, dir) }).map(|a| a.node)
    }

    /// Locks a range, or what else `how` says.
    pub fn lock(&mut self, node: u64, range: (u64, u64), how: u32) -> Result<Answer, Errno> {
        self.call(Request { a: range.0, b: range.1, flags: how, ..Request::new(Operation::Lock, node) })
    }

    pub fn forget(&mut self, node: u64, times: u64) {
        self.ask(0, Request { a: times, ..Request::new(Operation::Forget, node) });
    }

    /// Some entries from a position on.
    pub fn entries(&mut self, dir: u64, at: u64) -> Result<Vec<(DirectoryEntry, Vec<u8>)>, Errno> {
        let answer = self.call(Request { a: at, ..Request::new(Operation::ReadDir, dir) })?;
        assert!(answer.value <= BUFFER as u64);
        let bytes = self.data(0, answer.value);
        let (mut rest, mut found) = (bytes.as_slice(), Vec::new());
        while let Some((head, after)) = rest.split_first_chunk() {
            let head = DirectoryEntry::decode(head);
            let (name, after) = after.split_at(head.len.into());
            found.push((head, name.to_vec()));
            rest = after;
        }
        assert!(rest.is_empty());
        Ok(found)
    }

    /// All entries but `.` and `..`, sorted.
    pub fn list(&mut self, dir: u64) -> Result<Vec<String>, Errno> {
        let (mut at, mut names) = (0, Vec::new());
        loop {
            let entries = self.entries(dir, at)?;
            let Some((last, _)) = entries.last() else { break };
            at = last.next;
            names.extend(entries.into_iter().map(|(_, name)| String::from_utf8(name).unwrap()));
        }
        names.retain(|name| name != "." && name != "..");
        names.sort();
        Ok(names)
    }

    pub fn get_xattr(&mut self, node: u64, name: &str) -> Result<Vec<u8>, Errno> {
        let answer = self.named(Request::new(Operation::GetXattr, node), name.as_bytes())?;
        Ok(self.data(0, answer.value))
    }

    pub fn set_xattr(&mut self, node: u64, name: &str, value: &[u8], how: u32) -> Result<(), Errno> {
        let b = self.put_data(0, value);
        let request = Request { b, flags: how, ..Request::new(Operation::SetXattr, node) };
        self.named(request, name.as_bytes()).map(drop)
    }
}

/// A channel's two descriptors, for tests that keep the service in their own process.
pub fn channel() -> (OwnedFd, OwnedFd) {
    doppel_service::make(SIZE).unwrap()
}

/// A guest of a channel.
pub fn guest(memory: &OwnedFd, doorbell: &OwnedFd) -> Guest {
    Guest::new(memory.as_fd(), doorbell.as_fd())
}
