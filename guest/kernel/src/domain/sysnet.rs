//! /sys/class/net and /sys/devices/virtual/net: the domain's interfaces.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;

use crate::Errno;
use crate::objects::net::interfaces::{self, Interface, QUEUE};
use crate::objects::vfs::FileType;
use crate::objects::vfs::synthetic::{Directory, Node, text};

/// class/net: a link to each.
pub fn links() -> Node {
    Node::Dir(Arc::new(Interfaces { links: true }))
}

/// devices/virtual/net: a directory of each.
pub fn devices() -> Node {
    Node::Dir(Arc::new(Interfaces { links: false }))
}

struct Interfaces {
    links: bool,
}

impl Directory for Interfaces {
    fn lookup(&self, name: &[u8]) -> Option<Node> {
        let name = interfaces::named(name)?.name;
        Some(if self.links {
            Node::Link(Arc::new(move || Ok(format!("../../devices/virtual/net/{name}").into_bytes())))
        } else {
            Node::Dir(Arc::new(Device(name)))
        })
    }

    fn list(&self, from: u64, each: &mut dyn FnMut(u64, &[u8], FileType) -> bool) {
        let kind = if self.links { FileType::Symlink } else { FileType::Directory };
        for (n, i) in interfaces::all().iter().enumerate().skip(from as usize) {
            if !each(n as u64 + 1, i.name.as_bytes(), kind) {
                return;
            }
        }
    }

    // A clone may have a network that its original had not.
    fn changes(&self) -> bool {
        true
    }
}

/// What a file says of an interface.
type Show = fn(&Interface) -> String;

const FILES: [(&str, Show); 18] = [
    ("addr_assign_type", |i| format!("{}\n", if i.index == 1 { 0 } else { 3 })),
    ("addr_len", |i| format!("{}\n", i.mac.len())),
    ("address", |i| hardware(&i.mac)),
    ("broadcast", |i| hardware(&i.all)),
    ("carrier", |_| "1\n".into()),
    ("carrier_changes", |_| "0\n".into()),
    ("dev_id", |_| "0x0\n".into()),
    ("dormant", |_| "0\n".into()),
    ("flags", |i| format!("{:#x}\n", i.flags & !RUNNING)),
    ("ifalias", |_| String::new()),
    ("ifindex", |i| format!("{}\n", i.index)),
    ("iflink", |i| format!("{}\n", i.index)),
    ("link_mode", |_| "0\n".into()),
    ("mtu", |i| format!("{}\n", i.mtu)),
    ("operstate", |i| format!("{}\n", i.state.1)),
    ("tx_queue_len", |_| format!("{QUEUE}\n")),
    ("type", |i| format!("{}\n", i.hardware)),
    ("uevent", |i| format!("INTERFACE={}\nIFINDEX={}\n", i.name, i.index)),
];
/// IFF_RUNNING, which is state and not shown among the flags.
const RUNNING: u32 = 0x40;

fn hardware(mac: &[u8; 6]) -> String {
    let [a, b, c, d, e, f] = mac;
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}\n")
}

/// The directory of an interface.
struct Device(&'static str);

impl Directory for Device {
    fn lookup(&self, name: &[u8]) -> Option<Node> {
        let show = FILES.iter().find(|(n, _)| n.as_bytes() == name)?.1;
        let device = self.0;
        Some(text(move || interfaces::named(device.as_bytes()).map(|i| show(&i)).ok_or(Errno::ENODEV)))
    }

    fn list(&self, from: u64, each: &mut dyn FnMut(u64, &[u8], FileType) -> bool) {
        for (n, (name, _)) in FILES.iter().enumerate().skip(from as usize) {
            if !each(n as u64 + 1, name.as_bytes(), FileType::Regular) {
                return;
            }
        }
    }
}
