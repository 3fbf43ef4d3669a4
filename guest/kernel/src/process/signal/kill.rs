//! Who may send whom a signal (`kill(2)`).

use super::sig;
use crate::process::task::Process;
use crate::{Errno, Result};

const CAP_KILL: u32 = 5;

/// Whether `sender` may send `signo` to `target` (`kill(2)`): EPERM if not, EINVAL for a bad number.
pub fn may_signal(sender: &Process, target: &Process, signo: i32) -> Result<()> {
    if !(0..=64).contains(&signo) {
        return Err(Errno::EINVAL);
    }
    if sender.pid == target.pid {
        return Ok(());
    }
    let (s, t) = (sender.acting_cred(), target.cred());
    let same = [s.euid, s.ruid].iter().any(|u| *u == t.suid || *u == t.ruid);
    let job = signo == sig::SIGCONT && sender.session().sid == target.session().sid;
    if same || job || s.capable_in(&t.user, CAP_KILL) { Ok(()) } else { Err(Errno::EPERM) }
}
