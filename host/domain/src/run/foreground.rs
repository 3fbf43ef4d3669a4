//! A domain in the foreground: its console is our terminal, its signals are ours.
//!
//! One thread, one `poll`: the doorbell, the first process, signals, standard input while there is room, standard output
//! and error while they block.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::io::console::End;
use crate::io::terminal::{RawMode, winsize};
use crate::paging::pager;
use crate::{Domain, Error, Outcome};

/// Signals passed on to the program.
pub(crate) const FORWARDED: [i32; 6] = [1, 2, 3, 10, 12, 15];
/// SIGWINCH.
pub(crate) const WINCH: i32 = 28;

impl Domain {
    /// Moves console bytes and signals until the domain ends.
    ///
    /// # Errors
    /// If the host fails us; the domain may still run then.
    pub fn wait(&mut self) -> Result<Outcome, Error> {
        let raw = if self.tty {
            RawMode::enter().map_err(Error::host("put the terminal into raw mode"))?
        } else {
            None
        };
        pager::look_after(&self.core);
        let end = self.run();
        drop(raw);
        let end = end?;
        if end != End::Died {
            self.kill()?;
        }
        self.reap()?;
        Ok(self.outcome(end))
    }

    fn run(&mut self) -> Result<End, Error> {
        loop {
            let step = self.step();
            if let Some(end) = step.end {
                return Ok(end);
            }
            if step.asked {
                if let Some(Err(error)) = self.core.freeze_itself() {
                    eprintln!("doppel: {error}");
                }
                continue;
            }
            self.watch(step.more)?;
            if self.core.share_due().is_some_and(|due| due <= Instant::now()) {
                self.core.share_round();
            }
            if self.console.feed(&self.core.map) {
                return Ok(End::Broken);
            }
        }
    }

    /// Sleeps until something happens and deals with signals.
    fn watch(&mut self, more: bool) -> Result<(), Error> {
        let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
        let mut fds = Vec::with_capacity(6);
        fds.push(PollFd::new(&self.doorbell, PollFlags::IN));
        // A dead process would wake every poll while output is still blocked.
        let pidfd = (!self.console.has_died()).then(|| self.core.child.pidfd.as_fd());
        fds.extend(pidfd.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        fds.extend(self.signals.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
        let (out, err) = self.console.blocked();
        if out {
            fds.push(PollFd::new(&stdout, PollFlags::OUT));
        }
        if err {
            fds.push(PollFd::new(&stderr, PollFlags::OUT));
        }
        if self.console.wants_input(&self.core.map) {
            fds.push(PollFd::new(&stdin, PollFlags::IN));
        }
        let due = self.core.share_due().map(|d| d.saturating_duration_since(Instant::now()));
        let most = if more { Some(Duration::ZERO) } else { due };
        let most = most.and_then(|d| Timespec::try_from(d).ok());
        match rustix::event::poll(&mut fds, most.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Error::os("wait for the domain")(error)),
        }
        let died = pidfd.is_some() && !fds[1].revents().is_empty();
        if !fds[0].revents().is_empty() {
            // Only empties the counter; what happened is read from shared memory.
            let _ = rustix::io::read(&self.doorbell, &mut [0u8; 8]);
        }
        drop(fds);
        if died {
            self.console.died();
        }
        if let Some(signals) = &self.signals {
            while let Some(signal) = signals.next().map_err(Error::host("read a signal"))? {
                self.forward(signal);
            }
        }
        Ok(())
    }

    fn forward(&self, signal: i32) {
        if signal != WINCH {
            self.signal(signal);
        } else if self.tty
            && let Some(size) = winsize(io::stdin()).or_else(|| winsize(io::stdout()))
        {
            self.resize((size >> 16) as u16, (size & 0xffff) as u16);
        }
    }
}
