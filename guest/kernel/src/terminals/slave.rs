//! The side of a terminal that programs use.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use super::terminal::{IN, Kind};
use super::{Tty, ioctl, job};
use crate::core::sched::{PollEvents, PollTable, wait_until};
use crate::core::time::monotonic_ns;
use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::{File, FileOps, Input, Output, Stat};
use crate::process::signal::sig;
use crate::process::task::current;
use crate::{Errno, Result};

/// How much is moved under the terminal's lock at a time.
const CHUNK: usize = 512;

/// An open file on a terminal.
pub(super) struct Slave {
    pub tty: Arc<Tty>,
    closed: AtomicBool,
}

impl Slave {
    /// Opens a terminal; `open_flags` decide whether it may become the controlling one.
    pub fn open(tty: &Arc<Tty>, open_flags: OpenFlags) -> Result<Arc<Self>> {
        job::may_open(tty)?;
        let s = Self::opened(tty);
        let readable = open_flags & OpenFlags::ACCMODE != OpenFlags::WRONLY;
        if !open_flags.contains(OpenFlags::NOCTTY) && readable && tty.kind != Kind::Console {
            job::assign_if_free(tty, &current().process);
        }
        Ok(s)
    }

    /// An open file, without asking.
    pub fn opened(tty: &Arc<Tty>) -> Arc<Self> {
        let mut s = tty.state.lock();
        s.slaves += 1;
        s.slave_closed = false;
        drop(s);
        Arc::new(Self { tty: tty.clone(), closed: AtomicBool::new(false) })
    }

    fn close(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut s = self.tty.state.lock();
        s.slaves -= 1;
        if s.slaves == 0 {
            s.slave_closed = true;
            drop(s);
            self.tty.master_wait.wake_all(PollEvents::HUP | IN);
        }
    }

    /// Waits until the console has taken all output, so that a program's last words are not lost.
    fn drain(&self) {
        if self.tty.channel.is_some() {
            // Interrupted, the rest leaves when the ring has room; nothing is lost unless the domain ends.
            let _ = wait_until(&self.tty.slave_wait, None, || self.tty.drained().then_some(()));
        }
    }
}

impl Drop for Slave {
    fn drop(&mut self) {
        self.close();
    }
}

impl FileOps for Slave {
    fn read(&self, file: &File, out: &mut Output<'_>, _offset: u64) -> Result<usize> {
        let tty = &self.tty;
        if out.remaining() == 0 || tty.state.lock().hung_up {
            return Ok(0);
        }
        job::check(tty, sig::SIGTTIN)?;
        tty.pump();
        // As n_tty does: VMIN counts over the whole read, VTIME is a limit for the first byte if VMIN is 0 and
        // between bytes if not.
        let (min, gap, mut deadline, mut patient) = {
            let s = tty.state.lock();
            let d = &s.disc;
            match (d.canonical(), d.vmin(), d.vtime_ns()) {
                (true, ..) => (0, None, None, true),
                (false, 0, 0) => (1, None, None, false),
                (false, 0, t) => (1, None, Some(monotonic_ns() + t), true),
                (false, min, 0) => (min, None, None, true),
                (false, min, t) => (min, Some(t), None, true),
            }
        };
        let mut total = 0;
        let mut buf = [0u8; CHUNK];
        loop {
            let want = buf.len().min(out.remaining());
            let (n, ended, canonical, gone) = {
                let mut s = tty.state.lock();
                let (n, ended) = s.disc.read(&mut buf[..want]);
                (n, ended, s.disc.canonical(), s.hung_up)
            };
            if n > 0 {
                tty.consumed();
                total += out.write(&buf[..n])?;
                if let Some(t) = gap {
                    deadline = Some(monotonic_ns() + t);
                }
            }
            if ended || out.remaining() == 0 {
                return Ok(total);
            }
            if n == want || (canonical && n > 0) {
                continue;
            }
            if gone {
                // Who waited learns it from EIO, later reads give the end of file: as Linux.
                return if total > 0 { Ok(total) } else { Err(Errno::EIO) };
            }
            if tty.input_ended() || (!canonical && total >= min) || !patient {
                return Ok(total);
            }
            if canonical {
                patient = true;
            }
            if file.nonblocking() {
                return if total > 0 { Ok(total) } else { Err(Errno::EAGAIN) };
            }
            let ready = || {
                let s = tty.state.lock();
                (s.disc.readable(false) || s.hung_up || tty.input_ended()).then_some(())
            };
            match wait_until(&tty.slave_wait, deadline, ready) {
                Ok(()) => {}
                Err(Errno::ETIMEDOUT) => return Ok(total),
                Err(_) if total > 0 => return Ok(total),
                Err(e) => return Err(e),
            }
        }
    }

    fn write(&self, file: &File, input: &mut Input<'_>, _offset: u64) -> Result<usize> {
        let tty = &self.tty;
        if tty.tostop() {
            job::check(tty, sig::SIGTTOU)?;
        }
        let mut total = 0;
        let mut buf = [0u8; CHUNK];
        let partial = |total: usize, e: Errno| if total > 0 { Ok(total) } else { Err(e) };
        while input.remaining() > 0 {
            let n = match input.read(&mut buf) {
                Ok(n) => n,
                Err(e) => return partial(total, e),
            };
            let mut at = 0;
            while at < n {
                let taken = {
                    let mut s = tty.state.lock();
                    if s.hung_up {
                        drop(s);
                        return partial(total, Errno::EIO);
                    }
                    let k = s.disc.write(&buf[at..n]);
                    tty.flush_channel(&mut s);
                    k
                };
                at += taken;
                total += taken;
                if taken > 0 {
                    if tty.channel.is_none() {
                        tty.master_wait.wake_all(IN);
                    }
                    continue;
                }
                if file.nonblocking() {
                    return partial(total, Errno::EAGAIN);
                }
                let ready = || {
                    let mut s = tty.state.lock();
                    tty.flush_channel(&mut s);
                    (s.disc.writable() || s.hung_up).then_some(())
                };
                if let Err(e) = wait_until(&tty.slave_wait, None, ready) {
                    return partial(total, e);
                }
            }
        }
        if !file.nonblocking() {
            self.drain();
        }
        Ok(total)
    }

    fn poll(&self, _file: &File, table: Option<&mut PollTable>) -> PollEvents {
        if let Some(t) = table {
            t.add(&self.tty.slave_wait);
        }
        self.tty.pump();
        let s = self.tty.state.lock();
        self.tty.slave_events(&s)
    }

    fn ioctl(&self, file: &File, cmd: u32, arg: u64) -> Result<u64> {
        ioctl::ioctl(&self.tty, ioctl::Side::Slave, file, cmd, arg)
    }

    fn stat(&self, _file: &File) -> Result<Stat> {
        let (major, minor) = self.tty.device();
        let rdev = u64::from(major) << 8 | u64::from(minor);
        Ok(Stat { mode: 0o020620, gid: 5, rdev, blksize: 1024, ..Stat::anonymous() })
    }

    fn release(&self, _file: &File) {
        self.close();
    }
}
