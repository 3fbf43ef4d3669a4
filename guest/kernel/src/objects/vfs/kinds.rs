//! The kinds of file systems that can be mounted, and their options.

use alloc::string::String;
use alloc::vec::Vec;

use doppel_machine::sync::SpinLock;

use crate::core::part::Part;
use crate::objects::rootfs::TmpfsOptions;
use crate::{Errno, Result};

/// Makes the root of a new instance of a file system.
pub type MakeFs = fn() -> Result<alloc::sync::Arc<dyn crate::objects::vfs::Inode>>;

#[derive(Default)]
pub(crate) struct Types {
    pub(crate) list: SpinLock<Vec<(&'static str, MakeFs)>>,
}

/// The domain's.
pub(crate) static TYPES: Part<Types> = Part::new();

/// Registers a file system type for mount(2) (`proc`, `sysfs`, `devpts`).
pub fn register(name: &'static str, make: MakeFs) {
    TYPES.list.lock().push((name, make));
}

/// Limits, mode and owner from tmpfs' mount options.
pub(crate) fn tmpfs_options(data: &[u8]) -> Result<TmpfsOptions> {
    let mut o = TmpfsOptions::default();
    let text = core::str::from_utf8(data).map_err(|_| Errno::EINVAL)?;
    for option in text.split(',').filter(|o| !o.is_empty() && *o != "ro" && *o != "rw") {
        let (key, value) = option.split_once('=').unwrap_or((option, ""));
        tmpfs_option(&mut o, key, value).map_err(|_| Errno::EINVAL)?;
    }
    Ok(o)
}

/// Sets one of them. An error says whether there is such an option.
pub(crate) fn tmpfs_option(o: &mut TmpfsOptions, key: &str, value: &str) -> core::result::Result<(), bool> {
    let number = |radix| u32::from_str_radix(value, radix).map_err(|_| true);
    match key {
        "mode" => o.mode = number(8)? & 0o7777,
        "uid" => o.uid = number(10)?,
        "gid" => o.gid = number(10)?,
        "size" => o.size = parse_size(value).map_err(|_| true)?,
        "nr_blocks" => {
            let pages = parse_size(value).map_err(|_| true)?;
            o.size = pages.checked_mul(crate::objects::pages::PAGE).ok_or(true)?;
        }
        "nr_inodes" => o.inodes = parse_size(value).map_err(|_| true)?,
        "huge" | "mpol" | "inode32" | "inode64" | "noswap" => {}
        _ => return Err(false),
    }
    Ok(())
}

/// A size with an optional k, m, g or % behind it.
fn parse_size(s: &str) -> Result<u64> {
    let digits: String = s.chars().take_while(char::is_ascii_digit).collect();
    let n: u64 = digits.parse().map_err(|_| Errno::EINVAL)?;
    let shift = match s.get(digits.len()..).unwrap_or("") {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        "%" => {
            return Ok(crate::objects::pages::page_file().usage().1 / 100
                * n.min(100)
                * crate::objects::pages::PAGE);
        }
        _ => return Err(Errno::EINVAL),
    };
    n.checked_shl(shift).filter(|v| v >> shift == n).ok_or(Errno::EINVAL)
}
