//! Signals as bytes to read (`signalfd(2)`).

use core::sync::atomic::{AtomicU64, Ordering};

use doppel_machine::user::{bytes_of, zeroed};

use crate::core::sched::{PollEvents, PollTable, wait_until};
use crate::objects::vfs::file::Splice;
use crate::objects::vfs::{File, FileOps, Output};
use crate::process::signal::{SigInfo, SigSet, code, dequeue, sig};
use crate::process::task::current;
use crate::{Errno, Result};

doppel_machine::pod_struct! {
    /// `struct signalfd_siginfo`.
    pub struct SignalfdSiginfo {
        /// Signal number.
        pub signo: u32,
        /// Always 0.
        pub errno: i32,
        /// `si_code`.
        pub code: i32,
        /// Sender.
        pub pid: u32,
        /// Sender's user.
        pub uid: u32,
        /// SIGIO descriptor.
        pub fd: i32,
        /// Timer id.
        pub tid: u32,
        /// SIGIO events.
        pub band: u32,
        /// Timer overruns.
        pub overrun: u32,
        /// Trap number.
        pub trapno: u32,
        /// Exit status.
        pub status: i32,
        /// Queued value.
        pub int: i32,
        /// Queued value as a pointer.
        pub ptr: u64,
        /// User CPU time.
        pub utime: u64,
        /// System CPU time.
        pub stime: u64,
        /// Fault address.
        pub addr: u64,
        /// Padding to 128 bytes.
        pub pad: [u8; 48],
    }
}

/// Size of one record.
const RECORD: usize = 128;
const _: () = assert!(size_of::<SignalfdSiginfo>() == RECORD, "signalfd_siginfo is 128 bytes: signalfd(2)");

/// A signal descriptor. It reads the signals of whoever reads it.
pub struct SignalFd {
    pub(crate) mask: AtomicU64,
}

fn record(i: &SigInfo) -> SignalfdSiginfo {
    let mut r: SignalfdSiginfo = zeroed();
    r.signo = i.signo.unsigned_abs();
    r.code = i.code;
    r.pid = i.pid.unsigned_abs();
    r.uid = i.uid;
    let low = i.value as u32;
    match (i.code, i.signo) {
        (code::SI_TIMER, _) => {
            (r.tid, r.overrun) = (r.pid, i.uid);
            (r.pid, r.uid) = (0, 0);
            (r.int, r.ptr) = (low.cast_signed(), i.value);
        }
        (c, sig::SIGCHLD) if c > 0 && c < code::SI_KERNEL => r.status = low.cast_signed(),
        (c, sig::SIGIO) if c > 0 && c < code::SI_KERNEL => {
            r.fd = i.pid;
            r.pid = 0;
            r.band = low;
        }
        (c, _) if c > 0 && c < code::SI_KERNEL => {
            r.addr = i.value;
            r.trapno = i.trapno as u32;
        }
        _ => (r.int, r.ptr) = (low.cast_signed(), i.value),
    }
    r
}

impl SignalFd {
    fn mask(&self) -> SigSet {
        self.mask.load(Ordering::SeqCst)
    }
}

impl FileOps for SignalFd {
    fn splice(&self) -> Splice {
        Splice::Neither
    }

    fn read(&self, file: &File, out: &mut Output<'_>, _offset: u64) -> Result<usize> {
        if out.remaining() < RECORD {
            return Err(Errno::EINVAL);
        }
        let me = current();
        let mut done = 0;
        while out.remaining() >= RECORD {
            let info = match dequeue(&me, self.mask()) {
                Some(i) => i,
                None if done > 0 => break,
                None if file.nonblocking() => return Err(Errno::EAGAIN),
                None => wait_until(&me.process.signals.wait, None, || dequeue(&me, self.mask()))?,
            };
            done += out.write(bytes_of(&record(&info)))?;
        }
        Ok(done)
    }

    fn poll(&self, _file: &File, table: Option<&mut PollTable>) -> PollEvents {
        let me = current();
        if let Some(t) = table {
            t.add(&me.process.signals.wait);
        }
        let pending = me.signals.pending() | me.process.signals.pending();
        PollEvents::READABLE.when(pending & self.mask() != 0)
    }

    fn fdinfo(&self, _file: &File, out: &mut alloc::string::String) {
        out.push_str(&alloc::format!("sigmask:\t{:016x}\n", self.mask()));
    }
}
