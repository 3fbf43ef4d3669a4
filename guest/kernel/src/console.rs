//! The domain's console: standard input, output and error over the rings the host gave (`abi/machine`).
//!
//! Without a terminal they are three byte streams; with one (`-t`) ring 0 and 1 carry a terminal, which the
//! tty layer drives through its input, output and resize hooks.
//! Boundary: only this module touches the rings. Events from the host arrive on PID 1 in [`event`].

use alloc::string::ToString;
use alloc::sync::Arc;

use doppel_abi_machine::{boot_flags, event as ev, ring};
use doppel_machine::sync::SpinLock;
use doppel_machine::{boot, console};

use crate::fs::file::{flags, poll};
use crate::fs::{File, FileOps, Input, Output, Stat};
use crate::sched::{PollTable, WaitQueue, wait_until};
use crate::task::Process;
use crate::{Errno, Result, kernel};

/// Queues of the console, woken by the host's events.
#[derive(Default)]
pub struct Console {
    input: Arc<WaitQueue>,
    output: Arc<WaitQueue>,
    /// One reader and one writer at a time per ring.
    locks: [SpinLock<()>; doppel_abi_machine::CONSOLE_RINGS],
}

impl Console {
    /// Takes input that is there, without waiting.
    pub fn take_input(&self, buf: &mut [u8]) -> usize {
        let _one = self.locks[ring::STDIN].lock();
        let n = console::consume(ring::STDIN, buf);
        if n == 0 {
            console::wait_for_input(ring::STDIN);
            return console::consume(ring::STDIN, buf);
        }
        n
    }

    /// Whether input has ended.
    pub fn at_end(&self) -> bool {
        console::closed(ring::STDIN) && console::available(ring::STDIN) == 0
    }

    /// Writes what there is room for, without waiting.
    pub fn put_output(&self, which: usize, buf: &[u8]) -> usize {
        let _one = self.locks[which].lock();
        let n = console::produce(which, buf);
        if n == 0 {
            console::wait_for_room(which);
            return console::produce(which, buf);
        }
        n
    }

    /// Woken when input arrived.
    pub fn input_queue(&self) -> &Arc<WaitQueue> {
        &self.input
    }

    /// Woken when there is room for output.
    pub fn output_queue(&self) -> &Arc<WaitQueue> {
        &self.output
    }
}

/// The console.
pub fn get() -> Arc<Console> {
    kernel().service::<Console>()
}

/// Serves console events; runs on PID 1.
pub fn event(events: u64) {
    let c = get();
    if events & ev::CONSOLE_IN != 0 {
        crate::tty::console_input();
        c.input.wake_all(poll::POLLIN);
    }
    if events & ev::CONSOLE_OUT != 0 {
        crate::tty::console_output();
        c.output.wake_all(poll::POLLOUT);
    }
    if events & ev::WINCH != 0 {
        crate::tty::console_resized(boot::vregs().winsize.load(core::sync::atomic::Ordering::SeqCst));
    }
}

/// Writes a line to the kernel log.
pub fn log(line: &str) {
    let c = get();
    let _one = c.locks[ring::LOG].lock();
    console::log(line.as_bytes());
}

/// Opens descriptors 0, 1 and 2 of the first process.
pub fn open_standard(p: &Arc<Process>, tty: bool, winsize: u32) {
    let files = p.files();
    if tty {
        let file = crate::tty::open_console(p, winsize);
        for _ in 0..3 {
            let r = files.insert(file.clone(), false);
            debug_assert!(r.is_ok());
        }
        return;
    }
    let stdin = boot::boot_data().args.flags & boot_flags::STDIN != 0;
    let streams = [
        (Stream::In { connected: stdin }, flags::O_RDONLY),
        (Stream::Out(ring::STDOUT), flags::O_WRONLY),
        (Stream::Out(ring::STDERR), flags::O_WRONLY),
    ];
    for (i, (s, mode)) in streams.into_iter().enumerate() {
        let file = File::anon(Arc::new(s), "pipe:[".to_string() + &(i + 1).to_string() + "]", mode);
        let r = files.insert(file, false);
        debug_assert!(r.is_ok());
    }
}

/// One standard stream.
enum Stream {
    In { connected: bool },
    Out(usize),
}

impl FileOps for Stream {
    fn read(&self, file: &File, out: &mut Output<'_>, _offset: u64) -> Result<usize> {
        let Self::In { connected } = self else { return Err(Errno::EBADF) };
        if !connected || out.remaining() == 0 {
            return Ok(0);
        }
        let c = get();
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
                console::wait_for_input(ring::STDIN);
                (console::available(ring::STDIN) > 0 || c.at_end()).then_some(())
            })?;
        }
        Ok(total)
    }

    fn write(&self, file: &File, input: &mut Input<'_>, _offset: u64) -> Result<usize> {
        let Self::Out(which) = *self else { return Err(Errno::EBADF) };
        let c = get();
        let mut total = 0;
        let mut buf = [0u8; 1024];
        while input.remaining() > 0 {
            if console::hung_up(which) {
                crate::signal::send_sigpipe();
                return if total > 0 { Ok(total) } else { Err(Errno::EPIPE) };
            }
            let room = console::room(which).min(buf.len());
            if room == 0 {
                if file.nonblocking() {
                    return if total > 0 { Ok(total) } else { Err(Errno::EAGAIN) };
                }
                let r = wait_until(&c.output, None, || {
                    console::wait_for_room(which);
                    (console::room(which) > 0 || console::hung_up(which)).then_some(())
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
                    crate::sched::wait_until_uninterruptible(&c.output, || {
                        console::wait_for_room(which);
                        (console::room(which) > 0 || console::hung_up(which)).then_some(())
                    });
                    if console::hung_up(which) {
                        break;
                    }
                }
            }
            total += n;
        }
        Ok(total)
    }

    fn poll(&self, _file: &File, table: Option<&mut PollTable>) -> u32 {
        let c = get();
        match *self {
            Self::In { connected } => {
                if let Some(t) = table {
                    t.add(&c.input);
                }
                console::wait_for_input(ring::STDIN);
                let end = !connected || c.at_end();
                let ready = console::available(ring::STDIN) > 0;
                (if ready { poll::POLLIN | poll::POLLRDNORM } else { 0 })
                    | if end { poll::POLLHUP } else { 0 }
            }
            Self::Out(which) => {
                if let Some(t) = table {
                    t.add(&c.output);
                }
                console::wait_for_room(which);
                if console::hung_up(which) {
                    return poll::POLLERR;
                }
                if console::room(which) > 0 { poll::POLLOUT | poll::POLLWRNORM } else { 0 }
            }
        }
    }

    fn stat(&self, _file: &File) -> Result<Stat> {
        Ok(Stat { mode: 0o010600, ..Stat::anonymous() })
    }
}
