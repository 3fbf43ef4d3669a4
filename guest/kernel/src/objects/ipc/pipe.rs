//! Pipes (`pipe(7)`).
//!
//! Key types: [`Pipe`] (the queue of bytes between both ends), [`PipeEnd`] (what a descriptor refers to; a FIFO
//! opened for reading and writing is one end that does both).
//! Boundary: nothing is allocated before the first write; the buffer grows to the pipe's limit.
//! Lock order: state → wait queues (a leaf); wake-ups happen after the state lock is released, and whether there is
//! anybody to wake is seen under it (everybody who waits checks the state after registering).
//!
//! Room is counted as Linux does by pages: a writer may go on when PIPE_BUF bytes are free, so it is woken (and
//! POLLOUT raised) when a read makes the free space cross that mark. Every write is an edge for readers.

use crate::core::subject::subject;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use doppel_algo::byte_ring::ByteRing;
use doppel_machine::arena;
use doppel_machine::sync::SpinLock;
use doppel_machine::user::UserPtr;

use crate::core::sched::{PollEvents, PollTable, WaitQueue, wait_until};
use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::{File, FileOps, FileType, Input, Output, Stat};
use crate::{Errno, Result, kernel};
use doppel_abi_linux::signal::sig;

/// Writes of at most this many bytes are not interleaved with others.
pub const PIPE_BUF: usize = 4096;
/// Capacity of a new pipe.
const DEFAULT_SIZE: usize = 64 << 10;
/// Largest capacity F_SETPIPE_SZ gives (`/proc/sys/fs/pipe-max-size`).
pub const MAX_SIZE: usize = 1 << 20;
const FIONREAD: u32 = 0x541b;

/// A run of bytes written in one mode.
struct Segment {
    len: usize,
    packet: bool,
}

#[derive(Default)]
pub(super) struct State {
    ring: ByteRing,
    limit: usize,
    /// Empty unless something was written with O_DIRECT; then covers all of `ring`.
    segments: VecDeque<Segment>,
    pub(super) readers: u32,
    pub(super) writers: u32,
    /// How often each side was opened, for FIFOs.
    pub(super) reader_opens: u64,
    pub(super) writer_opens: u64,
}

/// A pipe.
pub struct Pipe {
    /// Inode number.
    id: u64,
    pub(super) state: SpinLock<State>,
    /// Woken when bytes arrive or the last writer goes.
    pub(super) readable: Arc<WaitQueue>,
    /// Woken when there is room or the last reader goes.
    pub(super) writable: Arc<WaitQueue>,
}

/// What became of an attempt that does not block.
enum Step {
    Done(usize),
    WouldBlock,
}

impl Default for Pipe {
    fn default() -> Self {
        Self {
            id: kernel().next_id(),
            state: SpinLock::new(State { limit: DEFAULT_SIZE, ..State::default() }),
            readable: Arc::default(),
            writable: Arc::default(),
        }
    }
}

impl State {
    fn free(&self) -> usize {
        self.limit.saturating_sub(self.ring.len())
    }

    /// Moves bytes (or one packet) out; the pipe is not empty.
    fn take(&mut self, out: &mut Output<'_>) -> Result<usize> {
        let want = out.remaining();
        let Some(seg) = self.segments.front_mut() else {
            return self.ring.pop_with(want, |b| out.write(b));
        };
        let n = self.ring.pop_with(want.min(seg.len), |b| out.write(b))?;
        if seg.packet {
            self.ring.skip(seg.len - n);
            seg.len = 0;
        } else {
            seg.len -= n;
        }
        if seg.len == 0 {
            self.segments.pop_front();
        }
        Ok(n)
    }

    /// Moves up to `n` bytes in; there is room.
    fn put(&mut self, input: &mut Input<'_>, n: usize, packet: bool) -> Result<usize> {
        if self.ring.capacity() < self.ring.len() + n {
            if arena::low() {
                return Err(Errno::ENOMEM);
            }
            self.ring.reserve(n).map_err(|_| Errno::ENOMEM)?;
        }
        let before = self.ring.len();
        let n = self.ring.push_with(n, |b| input.read(b))?;
        if packet || !self.segments.is_empty() {
            if self.segments.is_empty() && before > 0 {
                self.segments.push_back(Segment { len: before, packet: false });
            }
            match self.segments.back_mut() {
                Some(s) if !packet && !s.packet => s.len += n,
                _ if n > 0 => self.segments.push_back(Segment { len: n, packet }),
                _ => {}
            }
        }
        Ok(n)
    }

    /// Drops everything once nobody can read it any more.
    fn clear(&mut self) {
        self.ring.clear();
        self.segments.clear();
    }
}

impl Pipe {
    /// Inode number.
    pub fn id(&self) -> u64 {
        self.id
    }

    fn try_read(&self, out: &mut Output<'_>) -> Result<Step> {
        let (n, room) = {
            let mut s = self.state.lock();
            if s.ring.is_empty() {
                return Ok(if s.writers == 0 { Step::Done(0) } else { Step::WouldBlock });
            }
            let before = s.free();
            let n = s.take(out)?;
            (n, before < PIPE_BUF && s.free() >= PIPE_BUF && !self.writable.is_idle())
        };
        if room {
            self.writable.wake_all(PollEvents::WRITABLE);
        }
        Ok(Step::Done(n))
    }

    fn try_write(&self, input: &mut Input<'_>, packet: bool) -> Result<Step> {
        let (n, wake) = {
            let mut s = self.state.lock();
            if s.readers == 0 {
                return Err(Errno::EPIPE);
            }
            let left = input.remaining();
            let free = s.free();
            if free < left.min(PIPE_BUF) {
                return Ok(Step::WouldBlock);
            }
            let n = s.put(input, if packet { left.min(PIPE_BUF) } else { left.min(free) }, packet)?;
            (n, !self.readable.is_idle())
        };
        if wake {
            self.readable.wake_all(PollEvents::READABLE);
        }
        Ok(Step::Done(n))
    }

    /// Reads once; blocks if asked to.
    pub fn read(&self, out: &mut Output<'_>, block: bool) -> Result<usize> {
        if out.remaining() == 0 {
            return Ok(0);
        }
        match self.try_read(out)? {
            Step::Done(n) => Ok(n),
            Step::WouldBlock if !block => Err(Errno::EAGAIN),
            Step::WouldBlock => wait_until(&self.readable, None, || match self.try_read(out) {
                Ok(Step::Done(n)) => Some(Ok(n)),
                Ok(Step::WouldBlock) => None,
                Err(e) => Some(Err(e)),
            })?,
        }
    }

    /// Writes everything if it may block, else what fits.
    pub fn write(&self, input: &mut Input<'_>, block: bool, packet: bool) -> Result<usize> {
        let start = input.done();
        let r = loop {
            if input.remaining() == 0 {
                break Ok(());
            }
            let step = match self.try_write(input, packet) {
                Ok(Step::WouldBlock) if block => {
                    wait_until(&self.writable, None, || match self.try_write(input, packet) {
                        Ok(Step::Done(n)) => Some(Ok(Step::Done(n))),
                        Ok(Step::WouldBlock) => None,
                        Err(e) => Some(Err(e)),
                    })
                    .and_then(|r| r)
                }
                Ok(Step::WouldBlock) => Err(Errno::EAGAIN),
                other => other,
            };
            if let Err(e) = step {
                break Err(e);
            }
        };
        if r == Err(Errno::EPIPE) {
            subject().raise(sig::SIGPIPE);
        }
        let done = input.done() - start;
        match r {
            Err(e) if done == 0 => Err(e),
            _ => Ok(done),
        }
    }

    /// Copies the first bytes without removing them (tee); 0 at the end, EAGAIN when empty.
    pub fn peek(&self, out: &mut Output<'_>) -> Result<usize> {
        let s = self.state.lock();
        if s.ring.is_empty() {
            return if s.writers == 0 { Ok(0) } else { Err(Errno::EAGAIN) };
        }
        s.ring.peek_with(out.remaining(), |b| out.write(b))
    }

    /// Puts back bytes that were read but could not be delivered (splice).
    pub fn unread(&self, bytes: &[u8]) -> Result<()> {
        {
            let mut s = self.state.lock();
            s.ring.push_front(bytes).map_err(|_| Errno::ENOMEM)?;
            if !s.segments.is_empty() {
                s.segments.push_front(Segment { len: bytes.len(), packet: false });
            }
        }
        self.readable.wake_all(PollEvents::READABLE);
        Ok(())
    }

    /// Waits until a write would not block; gives the room. EPIPE (with SIGPIPE) if nobody can read.
    pub fn wait_room(&self, block: bool) -> Result<usize> {
        let room = || {
            let s = self.state.lock();
            (s.readers == 0 || s.free() >= PIPE_BUF).then(|| (s.readers, s.free()))
        };
        let (readers, free) = match room() {
            Some(r) => r,
            None if block => wait_until(&self.writable, None, room)?,
            None => return Err(Errno::EAGAIN),
        };
        if readers == 0 {
            subject().raise(sig::SIGPIPE);
            return Err(Errno::EPIPE);
        }
        Ok(free)
    }

    /// Waits until a read would not block.
    pub fn wait_data(&self, block: bool) -> Result<()> {
        match self.can_read() {
            true => Ok(()),
            false if block => wait_until(&self.readable, None, || self.can_read().then_some(())),
            false => Err(Errno::EAGAIN),
        }
    }

    /// Whether a read would not block.
    pub fn can_read(&self) -> bool {
        let s = self.state.lock();
        !s.ring.is_empty() || s.writers == 0
    }

    /// Whether anybody could read.
    pub fn has_reader(&self) -> bool {
        self.state.lock().readers != 0
    }

    /// The queue readers wait on.
    pub fn readable(&self) -> &Arc<WaitQueue> {
        &self.readable
    }

    /// The queue writers wait on.
    pub fn writable(&self) -> &Arc<WaitQueue> {
        &self.writable
    }

    /// F_SETPIPE_SZ: rounds up to a power of two of pages.
    fn resize(&self, size: u64) -> Result<u64> {
        if size > 1 << 31 {
            return Err(Errno::EINVAL);
        }
        let size = (size as usize).max(PIPE_BUF).next_power_of_two();
        if size > MAX_SIZE {
            return Err(Errno::EPERM);
        }
        {
            let mut s = self.state.lock();
            if s.ring.len() > size {
                return Err(Errno::EBUSY);
            }
            s.limit = size;
        }
        self.writable.wake_all(PollEvents::WRITABLE);
        Ok(size as u64)
    }

    pub(super) fn open(&self, reads: bool, writes: bool) {
        let mut s = self.state.lock();
        if reads {
            s.readers += 1;
            s.reader_opens += 1;
        }
        if writes {
            s.writers += 1;
            s.writer_opens += 1;
        }
    }

    pub(super) fn close(&self, reads: bool, writes: bool) {
        let (no_reader, no_writer) = {
            let mut s = self.state.lock();
            s.readers -= u32::from(reads);
            s.writers -= u32::from(writes);
            if s.readers == 0 && s.writers == 0 {
                s.clear();
            }
            (reads && s.readers == 0, writes && s.writers == 0)
        };
        if no_writer {
            self.readable.wake_all(PollEvents::READABLE | PollEvents::HUP);
        }
        if no_reader {
            self.writable.wake_all(PollEvents::WRITABLE | PollEvents::ERR);
        }
    }
}

/// One end of a pipe (or both, for a FIFO opened O_RDWR).
pub struct PipeEnd {
    pipe: Arc<Pipe>,
    reads: bool,
    writes: bool,
    released: AtomicBool,
    /// Writers that had opened the FIFO before this reader: no POLLHUP until there was a new one.
    writers_seen: u64,
}

impl PipeEnd {
    /// An end; the pipe must have been told of it with [`Pipe::open`].
    pub(super) fn new(pipe: Arc<Pipe>, reads: bool, writes: bool, writers_seen: u64) -> Arc<Self> {
        Arc::new(Self { pipe, reads, writes, released: AtomicBool::new(false), writers_seen })
    }

    /// The pipe.
    pub fn pipe(&self) -> &Arc<Pipe> {
        &self.pipe
    }

    fn close(&self) {
        if !self.released.swap(true, Ordering::SeqCst) {
            self.pipe.close(self.reads, self.writes);
        }
    }
}

impl Drop for PipeEnd {
    fn drop(&mut self) {
        self.close();
    }
}

impl FileOps for PipeEnd {
    fn read(&self, file: &File, out: &mut Output<'_>, _offset: u64) -> Result<usize> {
        self.pipe.read(out, !file.nonblocking())
    }

    fn write(&self, file: &File, input: &mut Input<'_>, _offset: u64) -> Result<usize> {
        let f = file.flags();
        self.pipe.write(input, !f.contains(OpenFlags::NONBLOCK), f.contains(OpenFlags::DIRECT))
    }

    fn poll(&self, _file: &File, table: Option<&mut PollTable>) -> PollEvents {
        if let Some(t) = table {
            if self.reads {
                t.add(&self.pipe.readable);
            }
            if self.writes {
                t.add(&self.pipe.writable);
            }
        }
        let s = self.pipe.state.lock();
        let mut ev = PollEvents::empty();
        if self.reads {
            if !s.ring.is_empty() {
                ev |= PollEvents::READABLE;
            }
            if s.writers == 0 && s.writer_opens != self.writers_seen {
                ev |= PollEvents::HUP;
            }
        }
        if self.writes {
            if s.free() >= PIPE_BUF {
                ev |= PollEvents::WRITABLE;
            }
            if s.readers == 0 {
                ev |= PollEvents::ERR;
            }
        }
        ev
    }

    fn ioctl(&self, _file: &File, cmd: u32, arg: u64) -> Result<u64> {
        match cmd {
            FIONREAD => {
                let n = self.pipe.state.lock().ring.len() as u32;
                UserPtr(arg).write(&n)?;
                Ok(0)
            }
            _ => Err(Errno::ENOTTY),
        }
    }

    fn stat(&self, _file: &File) -> Result<Stat> {
        let cred = subject().cred();
        Ok(Stat {
            dev: 0xc,
            ino: self.pipe.id,
            mode: FileType::Fifo as u32 | 0o600,
            uid: cred.fsuid,
            gid: cred.fsgid,
            ..Stat::anonymous()
        })
    }

    fn release(&self, _file: &File) {
        self.close();
    }
}

/// F_SETPIPE_SZ; EBADF if `file` is no pipe.
pub fn resize(file: &File, bytes: u32) -> Result<u64> {
    let end = file.downcast::<PipeEnd>().ok_or(Errno::EBADF)?;
    end.pipe.resize(bytes.into())
}

/// F_GETPIPE_SZ; EBADF if `file` is no pipe.
pub fn size(file: &File) -> Result<u64> {
    let end = file.downcast::<PipeEnd>().ok_or(Errno::EBADF)?;
    Ok(end.pipe.state.lock().limit as u64)
}

/// Makes a pipe's two open files: the read end and the write end.
pub fn new_pipe(open_flags: OpenFlags) -> (Arc<File>, Arc<File>) {
    let pipe = Arc::new(Pipe::default());
    pipe.open(true, true);
    let name = format!("pipe:[{}]", pipe.id);
    let keep = open_flags & (OpenFlags::NONBLOCK | OpenFlags::DIRECT);
    let r = PipeEnd::new(pipe.clone(), true, false, 0);
    let w = PipeEnd::new(pipe, false, true, 0);
    (File::anon(r, name.clone(), OpenFlags::RDONLY | keep), File::anon(w, name, OpenFlags::WRONLY | keep))
}
