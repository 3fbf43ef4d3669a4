//! Sessions that lose their leader (`setsid(2)`).

use alloc::sync::Arc;

use super::Process;

/// A session leader that exits hangs up its terminal (SIGHUP to the foreground group).
pub fn leave_session(p: &Arc<Process>) {
    let session = p.session();
    if session.sid == p.pid {
        let tty = session.tty.lock().take();
        if let Some(tty) = tty {
            tty.leader_exits();
        }
    }
}
