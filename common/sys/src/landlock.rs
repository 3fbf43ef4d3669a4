//! Where this thread may change files from now on, whatever names it is talked into (`landlock(7)`).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

const CREATE_RULESET_VERSION: u32 = 1;
const RULE_PATH_BENEATH: u32 = 1;
/// Linking and renaming between directories can be granted from this version on; without it it is always refused.
const WITH_REFER: i64 = 2;
const WITH_TRUNCATE: i64 = 3;
/// Writing, removing and making of `LANDLOCK_ACCESS_FS_*`: all but executing (1), reading (4, 8) and control of devices.
const CHANGES: u64 = 0x1ff2;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;

/// `struct landlock_path_beneath_attr`, which is packed.
#[repr(C, packed)]
struct Beneath {
    allowed: u64,
    parent: i32,
}

const _: () = assert!(size_of::<Beneath>() == 12, "linux/landlock.h");

fn result(value: i64) -> io::Result<i64> {
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// Lets the calling thread change files only in this directory and below, and sets `no_new_privs`. False: the host has no such
/// means, and nothing is changed.
///
/// # Errors
/// What the host says.
pub fn change_only_below(dir: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: asks for a number; no memory is given.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0usize, 0usize, CREATE_RULESET_VERSION) };
    if version < WITH_REFER {
        return Ok(false);
    }
    let rights = CHANGES | REFER | if version >= WITH_TRUNCATE { TRUNCATE } else { 0 };
    // SAFETY: the kernel reads eight bytes, the first field of its structure, of a value that outlives the call.
    let rules = result(unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, &raw const rights, size_of::<u64>(), 0)
    })?;
    let rules = i32::try_from(rules).map_err(io::Error::other)?;
    // SAFETY: a new descriptor, which nobody else owns.
    let rules = unsafe { OwnedFd::from_raw_fd(rules) };
    let beneath = Beneath { allowed: rights, parent: dir.as_raw_fd() };
    // SAFETY: the kernel reads the structure, whose size is that of `linux/landlock.h`.
    result(unsafe {
        libc::syscall(
            libc::SYS_landlock_add_rule,
            rules.as_raw_fd(),
            RULE_PATH_BENEATH,
            &raw const beneath,
            0,
        )
    })?;
    rustix::thread::set_no_new_privs(true)?;
    // SAFETY: changes what this thread may do, and no memory.
    result(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.as_raw_fd(), 0) })?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn changes_stay_below() {
        let place = std::env::temp_dir().join(format!("doppel-landlock-{}", std::process::id()));
        fs::create_dir_all(place.join("in/a")).unwrap();
        fs::write(place.join("out"), "before").unwrap();
        let dir = fs::File::open(place.join("in")).unwrap();
        let tried = std::thread::scope(|scope| {
            let below = || {
                let done = change_only_below(dir.as_fd()).unwrap();
                if done {
                    fs::write(place.join("in/f"), "x").unwrap();
                    fs::hard_link(place.join("in/f"), place.join("in/a/g")).unwrap();
                    fs::rename(place.join("in/f"), place.join("in/a/h")).unwrap();
                    assert_eq!(fs::read_to_string(place.join("out")).unwrap(), "before");
                    assert!(fs::write(place.join("out"), "after").is_err());
                    assert!(fs::remove_file(place.join("out")).is_err());
                    assert!(fs::create_dir(place.join("new")).is_err());
                    assert!(fs::hard_link(place.join("in/a/g"), place.join("link")).is_err());
                    assert!(std::os::unix::fs::symlink("x", place.join("link")).is_err());
                }
                done
            };
            std::thread::Builder::new().spawn_scoped(scope, below).unwrap().join().unwrap()
        });
        // Other threads can as before.
        fs::write(place.join("out"), "after").unwrap();
        fs::remove_dir_all(&place).unwrap();
        if !tried {
            eprintln!("skipped: this host has no Landlock that grants links between directories");
        }
    }
}
