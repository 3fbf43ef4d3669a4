//! The domain's block devices in /sys (block, class/block, devices/virtual/block) and /proc (partitions, diskstats, devices).

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;

use crate::Errno;
use crate::objects::block::{self, BLOCK, Device, SECTOR};
use crate::objects::vfs::FileType;
use crate::objects::vfs::synthetic::{Directory, Node, text};

/// block and class/block: a link to each, with what leads to the root of /sys before it.
pub fn links(up: &'static str) -> Node {
    Node::Dir(Arc::new(Devices { up: Some(up) }))
}

/// devices/virtual/block: a directory of each.
pub fn devices() -> Node {
    Node::Dir(Arc::new(Devices { up: None }))
}

struct Devices {
    /// They are links, from so deep.
    up: Option<&'static str>,
}

impl Directory for Devices {
    fn lookup(&self, name: &[u8]) -> Option<Node> {
        let device = block::named(name)?;
        Some(match self.up {
            Some(up) => Node::Link(Arc::new(move || {
                Ok(format!("{up}devices/virtual/block/{}", device.name).into_bytes())
            })),
            None => Node::Dir(Arc::new(Files { device, files: FILES })),
        })
    }

    fn list(&self, from: u64, each: &mut dyn FnMut(u64, &[u8], FileType) -> bool) {
        let kind = if self.up.is_some() { FileType::Symlink } else { FileType::Directory };
        for (n, device) in block::all().iter().enumerate().skip(from as usize) {
            if !each(n as u64 + 1, device.name.as_bytes(), kind) {
                return;
            }
        }
    }

    fn changes(&self) -> bool {
        true
    }
}

/// What a file says of a device; none: it is a directory, `queue` or, of a loop device that is bound, `loop`.
type Show = Option<fn(&Device) -> String>;

/// One of the values that are told of what a loop device is bound to.
fn of_loop<const N: usize>(device: &Device) -> String {
    device.bound().map(|bound| bound.described()).and_then(|all| all.into_iter().nth(N)).unwrap_or_default()
}

const LOOP: &[(&str, Show)] = &[
    ("autoclear", Some(of_loop::<3>)),
    ("backing_file", Some(of_loop::<0>)),
    ("dio", Some(|_| "1\n".into())),
    ("offset", Some(of_loop::<1>)),
    ("partscan", Some(|_| "0\n".into())),
    ("sizelimit", Some(of_loop::<2>)),
];

const FILES: &[(&str, Show)] = &[
    ("dev", Some(|d| format!("{}:{}\n", d.number.0, d.number.1))),
    ("hidden", Some(|_| "0\n".into())),
    ("loop", None),
    ("queue", None),
    ("range", Some(|_| "16\n".into())),
    ("removable", Some(|_| "0\n".into())),
    ("ro", Some(|d| format!("{}\n", u8::from(d.is_read_only())))),
    ("size", Some(|d| format!("{}\n", d.size() / SECTOR))),
    ("stat", Some(|_| "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n".into())),
    (
        "uevent",
        Some(|d| format!("MAJOR={}\nMINOR={}\nDEVNAME={}\nDEVTYPE=disk\n", d.number.0, d.number.1, d.name)),
    ),
];

const QUEUE: &[(&str, Show)] = &[
    ("discard_granularity", Some(|_| format!("{BLOCK}\n"))),
    ("discard_max_bytes", Some(|d| format!("{}\n", d.size()))),
    ("hw_sector_size", Some(|_| format!("{SECTOR}\n"))),
    ("logical_block_size", Some(|_| format!("{SECTOR}\n"))),
    ("minimum_io_size", Some(|_| format!("{BLOCK}\n"))),
    ("optimal_io_size", Some(|_| "0\n".into())),
    ("physical_block_size", Some(|_| format!("{BLOCK}\n"))),
    ("rotational", Some(|_| "0\n".into())),
    ("scheduler", Some(|_| "[none]\n".into())),
    ("write_cache", Some(|_| "write back\n".into())),
];

/// What /sys tells of a device.
struct Files {
    device: Arc<Device>,
    files: &'static [(&'static str, Show)],
}

impl Directory for Files {
    fn lookup(&self, name: &[u8]) -> Option<Node> {
        let (_, show) = *self.files.iter().find(|(n, _)| n.as_bytes() == name)?;
        let device = self.device.clone();
        Some(match show {
            Some(show) => text(move || {
                // It may be no more.
                block::named(device.name.as_bytes()).map(|d| show(&d)).ok_or(Errno::ENODEV)
            }),
            None if name == b"queue" => Node::Dir(Arc::new(Self { device, files: QUEUE })),
            None => {
                device.bound()?;
                Node::Dir(Arc::new(Self { device, files: LOOP }))
            }
        })
    }

    fn list(&self, from: u64, each: &mut dyn FnMut(u64, &[u8], FileType) -> bool) {
        for (i, (name, show)) in self.files.iter().enumerate().skip(from as usize) {
            if *name == "loop" && self.device.bound().is_none() {
                continue;
            }
            let kind = if show.is_some() { FileType::Regular } else { FileType::Directory };
            if !each(i as u64 + 1, name.as_bytes(), kind) {
                return;
            }
        }
    }
}

/// /proc/partitions.
pub fn partitions() -> String {
    let mut text = String::from("major minor  #blocks  name\n\n");
    for d in block::all().iter().filter(|d| d.size() > 0) {
        text += &format!("{:4}  {:7} {:10} {}\n", d.number.0, d.number.1, d.size() / 1024, d.name);
    }
    text
}

/// /proc/diskstats: nothing is counted here.
pub fn diskstats() -> String {
    let line = |d: &Arc<Device>| {
        format!("{:4} {:7} {} 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n", d.number.0, d.number.1, d.name)
    };
    block::all().iter().map(line).collect()
}
