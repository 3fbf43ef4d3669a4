//! A way in for the fuzz target `packets`.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use doppel_abi_service::layout;
use doppel_abi_service::net::{SIZE, SOCKETS};
use doppel_sys::shared::SharedMap;
use doppel_sys::shared::offset;
use doppel_sys::tunnel::HEADER;
use rustix::event::EventfdFlags;
use rustix::fs::MemfdFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::addresses::Addresses;
use super::channel::{self, Channel};
use super::device::MTU;
use super::stack::Stack;
use super::tunnel::Tunnel;

const IP4: Ipv4Addr = Ipv4Addr::new(10, 88, 1, 2);
const IP6: Ipv6Addr = Ipv6Addr::new(0xfd88, 0xd0bb, 0xe1, 0, 0, 0, 0, 0x102);

fn memory() -> (OwnedFd, Arc<SharedMap>) {
    let memory = rustix::fs::memfd_create("channel", MemfdFlags::CLOEXEC).expect("memory");
    rustix::fs::ftruncate(&memory, SIZE).expect("memory");
    let map = channel::map(&memory).expect("memory");
    (memory, map)
}

/// A packet of the domain's own address around a body: TCP, UDP, or as bytes say.
fn packet(kind: u8, to: u8, ports: u8, flags: u8, body: &[u8]) -> Vec<u8> {
    let body = &body[..body.len().min(MTU - 80)];
    let protocol = [6, 17, 1, kind][usize::from(kind >> 1) % 4];
    let mut upper = vec![0, ports & 7, 0, (ports >> 3) & 63];
    match protocol {
        6 => {
            upper.extend([0, 0, 0, flags, 0, 0, 0, to, 0x50 | (kind >> 7) << 4, flags, 1, 0, 0, 0, 0, 0]);
        }
        17 => {
            let length = u16::try_from(8 + body.len()).expect("it fits in a packet");
            upper.extend(length.to_be_bytes());
            upper.extend([0, 0]);
        }
        _ => upper.extend([flags, to]),
    }
    upper.extend(body);
    let length = |n: usize| u16::try_from(n).expect("it fits in a packet").to_be_bytes();
    let mut whole = Vec::with_capacity(upper.len() + 40);
    if kind & 1 == 0 {
        whole.extend([0x45, 0]);
        whole.extend(length(20 + upper.len()));
        whole.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
        whole.extend(IP4.octets());
        whole.extend([10, 88, to >> 6, to & 63]);
    } else {
        whole.extend([0x60, 0, 0, 0]);
        whole.extend(length(upper.len()));
        whole.extend([protocol, 64]);
        whole.extend(IP6.octets());
        whole.extend(Ipv6Addr::new(0xfd88, 0xd0bb, 0xe1, 0, 0, 0, 0, to.into()).octets());
    }
    whole.extend(upper);
    whole
}

/// What a domain's kernel sends, and what a service writes to the channel, as bytes say: whoever moves packets goes on.
///
/// # Panics
/// If it does not.
pub fn packets(bytes: &[u8]) {
    let (_memory, map) = memory();
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (kernel, packets) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("sockets");
    let doorbell =
        rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).expect("an event");
    let addresses = Addresses::new(IP4, IP6);
    let mut stack = Stack::new(Channel::new(map.clone(), doorbell), Tunnel::new(packets), addresses);
    // A service is there.
    map.write(
        offset(layout::HEADER) + std::mem::offset_of!(doppel_abi_service::ChannelHeader, epoch),
        &1u32.to_le_bytes(),
    );
    let mut rest = bytes;
    let mut room = vec![0; HEADER + MTU];
    for _ in 0..128 {
        let Some((&[what, a, b, c, d, e, f, g], more)) = rest.split_first_chunk::<8>() else { break };
        rest = more;
        match what % 4 {
            0 => {
                let at = u64::from(u16::from_le_bytes([b, c]));
                let at = match a % 4 {
                    0 => layout::REQUESTS + at % 256,
                    1 => layout::ANSWERS + at % 2048,
                    2 => SOCKETS + at % 4096,
                    _ => layout::TO_GUEST + at % 4096,
                };
                map.write(offset(at) & !3, &[d, e, f, g]);
            }
            1 => {
                let (raw, more) = rest.split_at(rest.len().min(a.into()));
                rest = more;
                let framed = [&[0; HEADER][..], raw].concat();
                let _ = rustix::io::write(&kernel, &framed);
            }
            _ => {
                let (body, more) = rest.split_at(rest.len().min((g % 64).into()));
                rest = more;
                let framed = [&[0; HEADER][..], &packet(a, b, c, d, body)].concat();
                let _ = rustix::io::write(&kernel, &framed);
            }
        }
        if stack.turn().is_err() {
            return;
        }
        while rustix::io::read(kernel.as_fd(), &mut *room).is_ok_and(|n| n > 0) {}
    }
}
