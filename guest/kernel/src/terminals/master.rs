//! The master side of a pseudo-terminal.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use doppel_algo::ldisc::Effects;

use super::terminal::{OUT, State};
use super::{Tty, devpts, ioctl};
use crate::core::sched::{PollEvents, PollTable, wait_until};
use crate::objects::vfs::{File, FileOps, Input, Output};
use crate::{Errno, Result};

/// How much is moved under the terminal's lock at a time.
const CHUNK: usize = 512;

/// The open master of a pseudo-terminal.
pub(super) struct Master {
    pub tty: Arc<Tty>,
    closed: AtomicBool,
}

impl Master {
    pub fn new(tty: Arc<Tty>) -> Self {
        Self { tty, closed: AtomicBool::new(false) }
    }

    fn close(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            devpts::master_closed(&self.tty);
            self.tty.hang_up();
        }
    }

    /// Takes what the next read gives: with packet mode a status byte first.
    fn take(s: &mut State, buf: &mut [u8], first: bool) -> (usize, bool) {
        if !s.packet || !first {
            return (s.disc.take_output(buf), false);
        }
        if s.packet_status != 0 {
            buf[0] = core::mem::take(&mut s.packet_status);
            return (1, true);
        }
        match s.disc.take_output(&mut buf[1..]) {
            0 if s.disc.output_len() == 0 => (0, true),
            n => {
                buf[0] = 0;
                (n + 1, false)
            }
        }
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        self.close();
    }
}

impl FileOps for Master {
    fn read(&self, file: &File, out: &mut Output<'_>, _offset: u64) -> Result<usize> {
        let tty = &self.tty;
        let mut total = 0;
        let mut buf = [0u8; CHUNK];
        while out.remaining() > 0 {
            let want = buf.len().min(out.remaining());
            let (n, last, closed) = {
                let mut s = tty.state.lock();
                let (n, last) = Self::take(&mut s, &mut buf[..want], total == 0);
                (n, last, s.slave_closed)
            };
            if n > 0 {
                total += out.write(&buf[..n])?;
                if n < want || last {
                    break;
                }
                continue;
            }
            if total > 0 {
                break;
            }
            if closed {
                return Err(Errno::EIO);
            }
            if file.nonblocking() {
                return Err(Errno::EAGAIN);
            }
            wait_until(&tty.master_wait, None, || {
                let s = tty.state.lock();
                let told = s.packet && s.packet_status != 0;
                (s.disc.output_len() > 0 || told || s.slave_closed).then_some(())
            })?;
        }
        if total > 0 {
            tty.slave_wait.wake_all(OUT);
        }
        Ok(total)
    }

    fn write(&self, file: &File, input: &mut Input<'_>, _offset: u64) -> Result<usize> {
        let tty = &self.tty;
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
                let mut fx = Effects::default();
                let k = tty.state.lock().disc.receive(&buf[at..n], &mut fx);
                tty.act(&fx);
                at += k;
                total += k;
                if at == n {
                    break;
                }
                if file.nonblocking() {
                    return partial(total, Errno::EAGAIN);
                }
                let ready = || tty.state.lock().disc.has_room().then_some(());
                if let Err(e) = wait_until(&tty.master_wait, None, ready) {
                    return partial(total, e);
                }
            }
        }
        Ok(total)
    }

    fn poll(&self, _file: &File, table: Option<&mut PollTable>) -> PollEvents {
        if let Some(t) = table {
            t.add(&self.tty.master_wait);
        }
        let s = self.tty.state.lock();
        self.tty.master_events(&s)
    }

    fn ioctl(&self, file: &File, cmd: u32, arg: u64) -> Result<u64> {
        ioctl::ioctl(&self.tty, ioctl::Side::Master, file, cmd, arg)
    }

    fn release(&self, _file: &File) {
        self.close();
    }
}
