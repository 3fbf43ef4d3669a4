//! The options of each type of file system.

use alloc::format;
use alloc::string::{String, ToString};

use super::{Make, Settings, unknown};
use crate::core::subject::Cred;
use crate::objects::rootfs;
use crate::objects::vfs::flags::MountFlags;
use crate::objects::vfs::kinds::tmpfs_option;
use crate::objects::vfs::mount::Superblock;
use crate::{Errno, Result};

type Said<T> = core::result::Result<T, (Errno, String)>;

/// Names of the flags that hold wherever a file system is mounted.
const FLAGS: [(&str, MountFlags, bool); 9] = [
    ("ro", MountFlags::RDONLY, true),
    ("rw", MountFlags::RDONLY, false),
    ("sync", MountFlags::SYNCHRONOUS, true),
    ("async", MountFlags::SYNCHRONOUS, false),
    ("dirsync", MountFlags::DIRSYNC, true),
    ("lazytime", MountFlags::LAZYTIME, true),
    ("nolazytime", MountFlags::LAZYTIME, false),
    ("mand", MountFlags::MANDLOCK, true),
    ("nomand", MountFlags::MANDLOCK, false),
];

/// Most options that are remembered to be shown.
const SHOWN: usize = 16;

impl Settings {
    /// Sets one option. An error comes with what the log of a context says.
    pub fn set(&mut self, key: &str, value: Option<&str>, cred: &Cred) -> Said<()> {
        if let Some((_, flag, on)) = FLAGS.iter().find(|f| f.0 == key && value.is_none()) {
            self.flags.set(*flag, *on);
            return Ok(());
        }
        let bad = || (Errno::EINVAL, format!("{}: Bad value for '{key}'", self.kind));
        let number = |radix| u32::from_str_radix(value.unwrap_or(""), radix).map_err(|_| bad());
        let flag = || if value.is_none() { Ok(()) } else { Err(bad()) };
        match (self.kind, key) {
            (_, "source") => {
                let value = value.ok_or((Errno::EINVAL, "Non-string source".into()))?;
                if self.source.is_some() {
                    return Err((Errno::EINVAL, "Multiple sources".into()));
                }
                self.source = Some(value.as_bytes().to_vec());
                return Ok(());
            }
            ("tmpfs", _) => return self.set_tmpfs(key, value, cred),
            ("ramfs", "mode") => self.tmpfs.mode = number(8)? & 0o7777,
            // ramfs overlooks what it does not know.
            ("ramfs", _) => return Ok(()),
            ("proc", "hidepid") => {
                let known = ["0", "1", "2", "4", "off", "noaccess", "invisible", "ptraceable"];
                value.filter(|v| known.contains(v)).ok_or_else(bad)?;
            }
            ("proc", "gid") => {
                number(10)?;
            }
            ("proc", "subset") => {
                value.filter(|v| *v == "pid").ok_or_else(bad)?;
            }
            ("devpts", "mode" | "ptmxmode") => {
                number(8)?;
            }
            ("devpts", "uid" | "gid" | "max") => {
                number(10)?;
            }
            ("devpts", "newinstance") => return flag(),
            ("cgroup2", "nsdelegate" | "favordynmods" | "memory_localevents" | "memory_recursiveprot")
            | ("cgroup2", "memory_hugetlb_accounting" | "pids_localevents") => flag()?,
            ("erofs", "user_xattr" | "acl" | "nouser_xattr" | "noacl") => return flag(),
            ("erofs", "cache_strategy" | "dax") => return Ok(()),
            (kind, "mkfs") if kind == rootfs::DISK_TYPE => {
                self.mkfs = true;
                return Ok(());
            }
            (kind, "discard") if kind == rootfs::DISK_TYPE => return Ok(()),
            (kind, _) => return Err(unknown(kind, key)),
        }
        self.note(key, value.map(ToString::to_string));
        Ok(())
    }

    /// Remembers an option for the mount table.
    fn note(&mut self, key: &str, value: Option<String>) {
        self.given.retain(|(k, _)| k != key);
        if self.given.len() < SHOWN {
            let shown = value.map_or_else(|| format!(",{key}"), |v| format!(",{key}={v}"));
            self.given.push((key.into(), shown));
        }
    }

    fn set_tmpfs(&mut self, key: &str, value: Option<&str>, cred: &Cred) -> Said<()> {
        let bad = || (Errno::EINVAL, format!("tmpfs: Bad value for '{key}'"));
        let text = value.unwrap_or("");
        tmpfs_option(&mut self.tmpfs, key, text)
            .map_err(|known| if known { bad() } else { unknown("tmpfs", key) })?;
        let shown = match key {
            "size" | "nr_blocks" if self.tmpfs.size == 0 => None,
            "size" | "nr_blocks" => Some(("size", format!("{}k", self.tmpfs.size >> 10))),
            "nr_inodes" => Some(("nr_inodes", format!("{}", self.tmpfs.inodes))),
            "mode" => Some(("mode", format!("{:03o}", self.tmpfs.mode))),
            "uid" => {
                self.tmpfs.uid = cred.user.kernel_uid(self.tmpfs.uid).ok_or_else(bad)?;
                Some(("uid", text.into()))
            }
            "gid" => {
                self.tmpfs.gid = cred.user.kernel_gid(self.tmpfs.gid).ok_or_else(bad)?;
                Some(("gid", text.into()))
            }
            _ => None,
        };
        if let Some((key, value)) = shown {
            self.note(key, Some(value));
        }
        Ok(())
    }

    /// How mount tables show the options, each with a comma before it.
    pub(super) fn shown(&self) -> String {
        let all = ["size", "nr_inodes", "mode", "uid", "gid"];
        let mut out = String::new();
        if matches!(self.make, Make::Memory) {
            let of = |key: &&str| self.given.iter().find(|(k, _)| k == key);
            all.iter().filter_map(of).for_each(|(_, shown)| out.push_str(shown));
            if self.kind == "tmpfs" {
                out.push_str(",inode64");
            }
        } else {
            self.given.iter().for_each(|(_, shown)| out.push_str(shown));
        }
        out
    }

    /// Changes the limits of a tmpfs to those that were given.
    pub(super) fn limit(&self, sb: &Superblock) -> Result<()> {
        let given = |key: &str| self.given.iter().any(|(k, _)| k == key);
        let size = given("size").then_some(self.tmpfs.size);
        let inodes = given("nr_inodes").then_some(self.tmpfs.inodes);
        rootfs::set_limits(sb.root.inode(), size, inodes)?;
        // What was given at first and not now stays as it was.
        let mut shown = sb.own_options();
        for (key, new) in self.given.iter().filter(|(k, _)| k == "size" || k == "nr_inodes") {
            let word = format!(",{key}=");
            if let Some(from) = shown.find(&word) {
                let len =
                    shown.get(from + 1..).and_then(|s| s.find(',')).map_or(shown.len() - from, |n| n + 1);
                shown.replace_range(from..from + len, "");
            }
            shown.insert_str(0, new);
        }
        sb.set_options(shown);
        Ok(())
    }
}
