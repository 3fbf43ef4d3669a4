//! A channel: standard input, output and error of a program, over byte rings the host gave (`common/abi/machine`).
//!
//! The console of a domain is one, each session (`crate::domain::sessions`) another. Without a terminal they are three byte
//! streams ([`open_streams`]); with one, rings 0 and 1 carry a terminal, which the tty layer drives.
//! Boundary: only this module touches the rings, except the log's. What the host has to say arrives on PID 1.

use alloc::string::ToString;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, Ordering};

use doppel_abi_machine::session::{SESSION_RING_COUNT, session_state};
use doppel_abi_machine::{ring, state};
use doppel_machine::console::Ring;
use doppel_machine::sync::{Once, SpinLock};
use doppel_machine::user::UserPtr;
use doppel_machine::{boot, host, session};

use crate::core::sched::{PollEvents, PollTable, WaitQueue, wait_until};
use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::{File, FileOps, Input, Output, Stat};
use crate::process::task::{Carried, Process};
use crate::terminals::Tty;
use crate::{Errno, Result};

const FIONREAD: u32 = 0x541b;

/// Rings to the host, with queues woken by its events.
pub struct Channel {
    rings: [Ring; SESSION_RING_COUNT],
    /// One reader and one writer at a time per ring.
    locks: [SpinLock<()>; SESSION_RING_COUNT],
    input: Arc<WaitQueue>,
    output: Arc<WaitQueue>,
    /// The terminal it carries.
    terminal: Once<Weak<Tty>>,
    /// The session it belongs to; none for the console.
    slot: Option<usize>,
    /// Told when nothing refers to it any more.
    gone: fn(usize),
    /// The session was another domain's, which this one was cloned from: nobody is at the other end, and the rings
    /// are no longer its own.
    lost: AtomicBool,
}

impl Channel {
    fn new(slot: Option<usize>, gone: fn(usize), ring: impl Fn(usize) -> Ring) -> Self {
        Self {
            rings: core::array::from_fn(ring),
            locks: Default::default(),
            input: Arc::default(),
            output: Arc::default(),
            terminal: Once::new(),
            slot,
            gone,
            lost: AtomicBool::new(false),
        }
    }

    /// The console's.
    pub fn console() -> Self {
        Self::new(None, |_| (), Ring::console)
    }

    /// That of a session. `gone` is told when nothing refers to it any more.
    pub fn session(slot: usize, gone: fn(usize)) -> Self {
        Self::new(Some(slot), gone, |index| Ring::session(slot, index))
    }

    fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Takes input that is there, without waiting.
    pub fn take_input(&self, buf: &mut [u8]) -> usize {
        if self.is_lost() {
            return 0;
        }
        let _one = self.locks[ring::STDIN].lock();
        let n = self.rings[ring::STDIN].consume(buf);
        if n == 0 {
            self.rings[ring::STDIN].wait_for_input();
            return self.rings[ring::STDIN].consume(buf);
        }
        n
    }

    /// Whether input has ended.
    pub fn at_end(&self) -> bool {
        self.is_lost() || (self.rings[ring::STDIN].closed() && self.available() == 0)
    }

    /// Writes what there is room for, without waiting.
    pub fn put_output(&self, which: usize, buf: &[u8]) -> usize {
        if self.is_lost() {
            return 0;
        }
        let _one = self.locks[which].lock();
        let n = self.rings[which].produce(buf);
        if n == 0 {
            self.rings[which].wait_for_room();
            return self.rings[which].produce(buf);
        }
        n
    }

    /// Whether nobody reads this output.
    pub fn hung_up(&self, which: usize) -> bool {
        self.is_lost() || self.rings[which].hung_up()
    }

    fn available(&self) -> usize {
        if self.is_lost() { 0 } else { self.rings[ring::STDIN].available() }
    }

    fn wait_for_input(&self) {
        if !self.is_lost() {
            self.rings[ring::STDIN].wait_for_input();
        }
    }

    fn room(&self, which: usize) -> usize {
        if self.is_lost() { 0 } else { self.rings[which].room() }
    }

    fn wait_for_room(&self, which: usize) {
        if !self.is_lost() {
            self.rings[which].wait_for_room();
        }
    }

    /// The terminal it carries.
    pub fn terminal(&self) -> Option<Arc<Tty>> {
        self.terminal.get().and_then(Weak::upgrade)
    }

    /// From now on it carries this terminal.
    pub fn set_terminal(&self, tty: &Arc<Tty>) {
        assert!(self.terminal.set(Arc::downgrade(tty)).is_ok(), "a channel carries one terminal");
    }

    /// Input arrived, or it ended. Runs on PID 1.
    pub fn input_came(&self) {
        if let Some(t) = self.terminal() {
            t.pump();
            // The end of input is told by the queue alone.
            t.wake();
        }
        self.input.wake_all(PollEvents::IN);
    }

    /// There is room for output again. Runs on PID 1.
    pub fn room_came(&self) {
        if let Some(t) = self.terminal() {
            t.room_came();
        }
        self.output.wake_all(PollEvents::OUT);
    }

    /// The terminal's size changed: rows << 16 | columns.
    pub fn resized(&self, winsize: u32) {
        if let Some(t) = self.terminal() {
            t.resized(winsize);
        }
    }

    /// Before anything runs in a clone: nobody is at the other end.
    pub fn lose(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    /// Nobody is at the other end any more: reads end, writes fail, a terminal hangs up.
    pub fn hang_up(&self) {
        if let Some(t) = self.terminal() {
            t.host_hung_up();
        }
        self.input.wake_all(PollEvents::IN | PollEvents::HUP);
        self.output.wake_all(PollEvents::OUT | PollEvents::ERR);
    }

    /// Tells the host something about the session.
    fn tell(&self, say: impl FnOnce(&'static doppel_abi_machine::session::SessionHeader)) {
        if let Some(slot) = self.slot
            && !self.is_lost()
        {
            say(session::header(slot));
            host::ring_doorbell();
        }
    }

    /// The session's program runs, as process `pid`.
    pub fn started(&self, pid: i32) {
        self.tell(|h| {
            h.pid.store(pid, Ordering::Relaxed);
            h.state.store(session_state::RUNNING, Ordering::Release);
        });
    }

    /// The session's program cannot be started.
    pub fn failed(&self, error: Errno) {
        self.tell(|h| {
            h.error.store(i32::from(error.0), Ordering::Relaxed);
            h.state.store(session_state::ENDED, Ordering::Release);
        });
    }
}

impl Carried for Channel {
    /// The session's process has ended with this wait status. One that is killed because the domain ends has not: the
    /// host says of it what became of the domain, and must not find the kill first.
    fn ended(&self, status: i32) {
        if boot::vregs().state.load(Ordering::SeqCst) == state::EXITED {
            return;
        }
        self.tell(|h| {
            if h.state.load(Ordering::Relaxed) != session_state::ENDED {
                h.status.store(status, Ordering::Relaxed);
                h.state.store(session_state::ENDED, Ordering::Release);
            }
        });
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if let Some(slot) = self.slot
            && !self.is_lost()
        {
            (self.gone)(slot);
        }
        self.tell(|h| h.left.store(1, Ordering::Release));
    }
}

/// Opens the three streams of a channel as descriptors 0, 1 and 2 of a process.
pub fn open_streams(p: &Arc<Process>, channel: &Arc<Channel>, connected: bool) {
    let streams = [
        (Direction::In { connected }, OpenFlags::RDONLY),
        (Direction::Out(ring::STDOUT), OpenFlags::WRONLY),
        (Direction::Out(ring::STDERR), OpenFlags::WRONLY),
    ];
    for (i, (direction, mode)) in streams.into_iter().enumerate() {
        let name = "pipe:[".to_string() + &(i + 1).to_string() + "]";
        let file = File::anon(Arc::new(Stream { channel: channel.clone(), direction }), name, mode);
        let r = p.files().insert(file, false);
        debug_assert!(r.is_ok());
    }
}

/// Which way a stream goes.
enum Direction {
    In { connected: bool },
    Out(usize),
}

/// One standard stream: a pipe to the host.
struct Stream {
    channel: Arc<Channel>,
    direction: Direction,
}

impl FileOps for Stream {
    fn read(&self, file: &File, out: &mut Output<'_>, _offset: u64) -> Result<usize> {
        let Direction::In { connected } = self.direction else { return Err(Errno::EBADF) };
        if !connected || out.remaining() == 0 {
            return Ok(0);
        }
        let c = &self.channel;
        let mut buf = [0u8; 1024];
        let mut total = 0;
        while out.remaining() > 0 {
            let want = buf.len().min(out.remaining());
            let n = c.take_input(&mut buf[..want]);
            if n > 0 {
                total += out.write(&buf[..n])?;
                continue;
            }
            if total > 0 || c.at_end() {
                break;
            }
            if file.nonblocking() {
                return Err(Errno::EAGAIN);
            }
            wait_until(&c.input, None, || {
                c.wait_for_input();
                (c.available() > 0 || c.at_end()).then_some(())
            })?;
        }
        Ok(total)
    }

    fn write(&self, file: &File, input: &mut Input<'_>, _offset: u64) -> Result<usize> {
        let Direction::Out(which) = self.direction else { return Err(Errno::EBADF) };
        let c = &self.channel;
        let mut total = 0;
        let mut buf = [0u8; 1024];
        while input.remaining() > 0 {
            if c.hung_up(which) {
                crate::core::subject::subject().raise(doppel_abi_linux::signal::sig::SIGPIPE);
                return if total > 0 { Ok(total) } else { Err(Errno::EPIPE) };
            }
            let room = c.room(which).min(buf.len());
            if room == 0 {
                if file.nonblocking() {
                    return if total > 0 { Ok(total) } else { Err(Errno::EAGAIN) };
                }
                let r = wait_until(&c.output, None, || {
                    c.wait_for_room(which);
                    (c.room(which) > 0 || c.hung_up(which)).then_some(())
                });
                match r {
                    Err(_) if total > 0 => return Ok(total),
                    r => r?,
                }
                continue;
            }
            let n = input.read(&mut buf[..room])?;
            let mut done = 0;
            while done < n {
                // Another writer may have taken the room seen above; a short spin over is impossible to avoid
                // without blocking under the lock, so wait again.
                let k = c.put_output(which, &buf[done..n]);
                done += k;
                if k == 0 {
                    crate::core::sched::wait_until_uninterruptible(&c.output, || {
                        c.wait_for_room(which);
                        (c.room(which) > 0 || c.hung_up(which)).then_some(())
                    });
                    if c.hung_up(which) {
                        break;
                    }
                }
            }
            total += n;
        }
        Ok(total)
    }

    fn poll(&self, _file: &File, table: Option<&mut PollTable>) -> PollEvents {
        let c = &self.channel;
        match self.direction {
            Direction::In { connected } => {
                if let Some(t) = table {
                    t.add(&c.input);
                }
                c.wait_for_input();
                let end = !connected || c.at_end();
                let ready = c.available() > 0;
                PollEvents::READABLE.when(ready) | PollEvents::HUP.when(end)
            }
            Direction::Out(which) => {
                if let Some(t) = table {
                    t.add(&c.output);
                }
                c.wait_for_room(which);
                if c.hung_up(which) {
                    return PollEvents::ERR;
                }
                PollEvents::WRITABLE.when(c.room(which) > 0)
            }
        }
    }

    fn ioctl(&self, _file: &File, cmd: u32, arg: u64) -> Result<u64> {
        if cmd != FIONREAD {
            return Err(Errno::ENOTTY);
        }
        let available = match self.direction {
            Direction::In { connected: true } => self.channel.available(),
            _ => 0,
        };
        UserPtr(arg).write(&u32::try_from(available).unwrap_or(u32::MAX))?;
        Ok(0)
    }

    fn stat(&self, _file: &File) -> Result<Stat> {
        Ok(Stat { mode: 0o010600, ..Stat::anonymous() })
    }
}
