//! The process: an engine, and what the supervisor tells it over its standard input, a sequenced-packet socket. A packet is an
//! [`Order`] as JSON, with its descriptors. The socket's end is the process'.

use std::collections::HashMap;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::Mode;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags};
use rustix::process::{Resource, Rlimit};
use serde::{Deserialize, Serialize};

use crate::engine::{ClientId, Engine};
use crate::volume::Volume;

/// Longest packet in bytes, and most descriptors of one.
pub(crate) const PACKET: usize = 16 << 10;
pub(crate) const DESCRIPTORS: usize = 128;

/// Version of orders and channels: a manager may be of another build than the process it starts.
pub(crate) const ORDERS: u32 = 1 << 16 | doppel_abi_service::VERSION;

/// What the supervisor says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// The first one. The version is [`ORDERS`].
    Begin { version: u32 },
    /// Serve a domain. Descriptors: channel, doorbell, the memory of its nodes, then each volume's root; in those that
    /// are marked nothing may change.
    Attach { key: u64, read_only: Vec<bool> },
    /// Serve it no more.
    Detach { key: u64 },
}

/// Confines this process, and serves until `control` ends. `polls`: it may poll when it has nothing to do.
///
/// # Errors
/// What the host says.
pub fn serve(control: BorrowedFd<'_>, polls: bool) -> io::Result<()> {
    let most = rustix::process::getrlimit(Resource::Nofile).maximum;
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most })?;
    // Modes are the domain's own, as it gives them.
    rustix::process::umask(Mode::empty());
    let mut engine = Engine::new()?;
    if !polls {
        engine.poll_never();
    }
    // What it opens it has opened.
    doppel_service::confine(&doppel_confine::STORAGE, false)?;
    rustix::io::ioctl_fionbio(control, true)?;
    engine.watch_control(control)?;
    let mut clients = HashMap::new();
    loop {
        let told = engine.wait()?;
        while told
            && let Some((order, descriptors)) = match receive(control) {
                Ok(packet) => packet,
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
                Err(e) => return Err(e),
            }
        {
            follow(&mut engine, &mut clients, order, descriptors)?;
        }
        engine.work();
    }
}

/// Does what it is told; an error ends the process.
fn follow(
    engine: &mut Engine,
    clients: &mut HashMap<u64, ClientId>,
    order: Order,
    descriptors: Vec<OwnedFd>,
) -> io::Result<()> {
    let mut descriptors = descriptors.into_iter();
    let missing = || io::Error::other("an order without its descriptors");
    match order {
        Order::Begin { version } if version != ORDERS => {
            return Err(io::Error::other(format!("orders of version {version}, not {ORDERS}")));
        }
        Order::Begin { .. } => {}
        Order::Attach { key, read_only } => {
            let memory = descriptors.next().ok_or_else(missing)?;
            let doorbell = descriptors.next().ok_or_else(missing)?;
            let nodes = descriptors.next().ok_or_else(missing)?;
            let volumes: Vec<_> =
                descriptors.zip(read_only).map(|(root, read_only)| Volume { root, read_only }).collect();
            clients.insert(key, engine.attach(&memory, doorbell, &nodes, volumes)?);
        }
        Order::Detach { key } => {
            if let Some(id) = clients.remove(&key) {
                engine.detach(id);
            }
        }
    }
    Ok(())
}

/// The next packet; `None` if none waits.
fn receive(control: BorrowedFd<'_>) -> io::Result<Option<(Order, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; PACKET];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let got = match rustix::net::recvmsg(control, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
        Err(rustix::io::Errno::AGAIN) => return Ok(None),
        r => r?,
    };
    if got.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    if got.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(io::Error::other("an order longer than orders are"));
    }
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            descriptors.extend(fds);
        }
    }
    Ok(Some((serde_json::from_slice(&bytes[..got.bytes])?, descriptors)))
}
