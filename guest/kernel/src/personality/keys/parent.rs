//! KEYCTL_SESSION_TO_PARENT: the caller's session keyring becomes its parent's.

use crate::personality::Args;
use crate::personality::keys::room;
use crate::process::keys::{self, Held, KEYS};
use crate::process::task::{Cred, init_pid};
use crate::{Errno, Result};

/// Whether the parent has the caller's effective ids in all places: nothing is given to who has more rights or fewer.
fn alike(parent: &Cred, me: &Cred) -> bool {
    let uids = [parent.ruid, parent.euid, parent.suid];
    let gids = [parent.rgid, parent.egid, parent.sgid];
    uids.iter().all(|id| *id == me.euid) && gids.iter().all(|id| *id == me.egid)
}

pub(super) fn give_session(a: &Args) -> Result<u64> {
    room()?;
    let mine = keys::call(&a.thread, |k| k.session_for_parent())?;
    let parent = a.thread.process.parent().filter(|p| p.pid > init_pid()).ok_or(Errno::EPERM)?;
    let [leader] = &parent.threads()[..] else { return Err(Errno::EPERM) };
    let theirs = leader.keyrings.lock().numbers().session;
    if theirs == Some(mine) {
        return Ok(0);
    }
    let me = a.thread.cred();
    let owned = |serial| KEYS.with(|s| s.key(serial).is_ok_and(|k| k.uid() == me.euid));
    if !alike(&leader.cred(), &me) || !theirs.is_none_or(owned) || !owned(mine) {
        return Err(Errno::EPERM);
    }
    let session = Held::new(mine);
    let old = leader.keyrings.lock().enter(session);
    drop(old);
    Ok(0)
}
