//! `/etc/resolv.conf` and `/etc/hosts` of a domain with a network: where to ask for names, and its own name; and what a domain is given
//! of further names.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use doppel_abi_service::net::address::RESOLVER4;
use doppel_algo::net::ports::unmapped;
use doppel_machine::network as channel;
use doppel_machine::sync::SpinLock;

use crate::core::log;
use crate::core::part::Part;
use crate::objects::lookup::open;
use crate::objects::net::own;
use crate::objects::vfs::Output;
use crate::{Errno, Result, kernel};

/// What this kernel has written to `/etc/hosts`, and the further lines that it was given for that.
#[derive(Default)]
pub(crate) struct Hosts {
    written: SpinLock<Vec<u8>>,
    more: SpinLock<Vec<u8>>,
}

/// The domain's.
pub(crate) static HOSTS: Part<Hosts> = Part::new();

/// Writes both files of a new domain, as programs expect to find them: with these further lines for names.
pub fn write(more: &[Vec<u8>]) {
    *HOSTS.more.lock() = more.iter().flat_map(|line| line.iter().chain(b"\n")).copied().collect();
    if channel::is_there() {
        let [a, b, c, d] = RESOLVER4;
        let resolver = format!("nameserver {a}.{b}.{c}.{d}\n");
        say(open::put_kernel(b"/etc/resolv.conf", resolver.as_bytes()));
    }
    // The image's own does for a domain without a network.
    if channel::is_there() || !more.is_empty() {
        say(write_hosts());
    }
}

/// Enters a clone's own address and name, unless a program has changed the file.
pub(super) fn rewrite() {
    let written = HOSTS.written.lock().clone();
    if channel::is_there() && !written.is_empty() && content_is(&written) {
        say(write_hosts());
    }
}

fn content_is(text: &[u8]) -> bool {
    // One more byte than it should have shows that it is longer.
    let mut found = alloc::vec![0; text.len() + 1];
    let read =
        open::open_kernel(b"/etc/hosts").and_then(|f| f.ops().read(&f, &mut Output::kernel(&mut found), 0));
    read == Ok(text.len()) && found[..text.len()] == *text
}

fn write_hosts() -> Result<()> {
    let name = String::from_utf8_lossy(&kernel().hostname.lock()).into_owned();
    let mut own: Vec<[u8; 4]> = own::all().iter().filter_map(|own| unmapped(&own.ip)).collect();
    if own.is_empty() {
        own.push([127, 0, 1, 1]);
    }
    let mut text = String::from("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n");
    for [a, b, c, d] in own {
        text.push_str(&format!("{a}.{b}.{c}.{d}\t{name}\n"));
    }
    let mut text = text.into_bytes();
    text.extend_from_slice(&HOSTS.more.lock());
    open::put_kernel(b"/etc/hosts", &text)?;
    *HOSTS.written.lock() = text;
    Ok(())
}

fn say(result: Result<()>) {
    match result {
        // An image without /etc does without these too.
        Ok(()) | Err(Errno::ENOENT | Errno::ENOTDIR) => {}
        Err(e) => log::log(&format!("doppel: /etc/resolv.conf and /etc/hosts: {e:?}\n")),
    }
}
