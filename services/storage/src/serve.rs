//! The process: an engine, and what the supervisor tells it over its standard input, a sequenced-packet socket. A packet is an
//! [`Order`] as JSON, with its descriptors. The socket's end is the process'. What the process
//! says to the supervisor is in [`crate::pins`].

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;

use doppel_abi_service::storage::{Amount, SIZE};
use doppel_service::{Channel, Heartbeat, Packet};
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit};
use serde::{Deserialize, Serialize};

use crate::engine::{ClientId, Core, Engine, Orders};
use crate::nodes::Nodes;
use crate::pins::Pins;
use crate::quota::Bound;
use crate::said::{Said, tell};
use crate::throttle::Limits;
use crate::volume::{DiskFiles, Volume};

/// Longest packet in bytes.
pub(crate) const PACKET: usize = 32 << 10;

/// Version of orders and channels: a manager may be of another build than the process it starts.
pub(crate) const ORDERS: u32 = 5 << 16 | doppel_abi_service::VERSION;

/// What the supervisor says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// The first one. Descriptors: the heart's memory file, its alarm, the watchdog's bell. The version is [`ORDERS`].
    Begin { version: u32 },
    /// A predecessor has pinned these nodes of a domain, which is served afterwards. Descriptors: the files.
    Pinned { key: u64, nodes: Vec<u64> },
    /// A volume of a domain, which is served afterwards, is a disk. Descriptors: its layers, the topmost first, the live map of
    /// that, if it has one, and its lock.
    Disk { key: u64, volume: usize, live: bool },
    /// A disk of a domain that is served is made of other files from here on; the service says so ([`Said::Switched`]).
    /// Descriptors: as above.
    Switch { key: u64, volume: usize, live: bool },
    /// Serve a domain. Descriptors: channel, doorbell, the memory of its nodes, then each volume's root, and behind that the file that
    /// says what is used of its bound, if there is one.
    Attach { key: u64, volumes: Vec<Terms>, limits: Limits },
    /// It has these limits from here on.
    Limit { key: u64, limits: Limits },
    /// Serve it no more.
    Detach { key: u64 },
}

impl Order {
    /// The domain that is to be served by this, or by what follows.
    fn about(&self) -> Option<u64> {
        match self {
            Self::Pinned { key, .. }
            | Self::Disk { key, .. }
            | Self::Switch { key, .. }
            | Self::Attach { key, .. } => Some(*key),
            Self::Begin { .. } | Self::Limit { .. } | Self::Detach { .. } => None,
        }
    }
}

/// How a domain has a volume.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Terms {
    read_only: bool,
    /// Most bytes and files.
    bound: Option<(u64, u64)>,
    /// A file says what is used of that.
    counted: bool,
    devices: [u64; 2],
}

impl Terms {
    pub fn of(volume: &Volume) -> Self {
        Self {
            read_only: volume.read_only,
            bound: volume.bound.as_ref().map(|bound| (bound.most.bytes, bound.most.inodes)),
            counted: volume.bound.as_ref().is_some_and(|bound| bound.used.is_some()),
            devices: volume.devices,
        }
    }

    fn volume(&self, mut next: impl FnMut() -> io::Result<OwnedFd>) -> io::Result<Volume> {
        let root = next()?;
        let used = self.counted.then(next).transpose()?;
        let bound = self.bound.map(|(bytes, inodes)| Bound { most: Amount { bytes, inodes }, used });
        Ok(Volume { root, read_only: self.read_only, disk: None, bound, devices: self.devices })
    }
}

/// Confines this process, and serves until `control` ends; gives the process' exit code. `polls`: it may poll when it has nothing to do.
///
/// # Errors
/// What the host says, if the manager could not be told.
pub fn serve(control: BorrowedFd<'_>, polls: bool) -> io::Result<ExitCode> {
    let Err(error) = serve_until_end(control, polls) else { return Ok(ExitCode::SUCCESS) };
    match tell(control, &Said::Ends { why: error.to_string() }, &[]) {
        Ok(()) => Ok(ExitCode::FAILURE),
        Err(_) => Err(error),
    }
}

fn serve_until_end(control: BorrowedFd<'_>, polls: bool) -> io::Result<()> {
    let most = rustix::process::getrlimit(Resource::Nofile).maximum;
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most })?;
    // Modes are the domain's own, as it gives them.
    rustix::process::umask(Mode::empty());
    let control = Arc::new(control.try_clone_to_owned()?);
    // This thread ends the process.
    let engine = Arc::new(Engine::new(doppel_confine::storage::THREADS - 1, polls)?);
    let followed = Followed {
        control: control.clone(),
        clients: HashMap::new(),
        pinned: HashMap::new(),
        disks: HashMap::new(),
        refused: HashMap::new(),
    };
    engine.set_orders(control.as_fd(), Box::new(followed))?;
    // What it opens it has opened. Nobody is served before its filter is there, which may be refused.
    let mut started = None;
    doppel_service::confine_with(&doppel_confine::STORAGE, false, || {
        engine.host().descriptors.enter()?;
        started = Some(engine.start_held()?);
        Ok(())
    })?;
    tell(control.as_fd(), &Said::Begun, &[])?;
    if let Some((_, go)) = started {
        go.wait();
    }
    // One that waits for the host may do so for long, and is not waited for.
    engine.ended()
}

/// Orders, and what they were about so far.
struct Followed {
    control: Arc<OwnedFd>,
    clients: HashMap<u64, ClientId>,
    pinned: HashMap<u64, Vec<(u64, OwnedFd)>>,
    disks: HashMap<u64, Vec<(usize, DiskFiles)>>,
    /// Domains that cannot be served, and why, until all about them has come.
    refused: HashMap<u64, String>,
}

impl Orders for Followed {
    fn follow(&mut self, engine: &Engine, core: &mut Core) -> io::Result<bool> {
        loop {
            match receive(self.control.as_fd()) {
                Ok(Some((order, packet))) => {
                    // Each is a step: whoever begins anew is told of all domains in a row.
                    core.beat();
                    self.follow_or_refuse(engine, core, order, packet)?;
                }
                Ok(None) => return Ok(false),
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(true),
                Err(e) => return Err(e),
            }
        }
    }
}

impl Followed {
    /// Does what it is told. What is wrong with one domain is that one's misfortune; any other error ends the process.
    fn follow_or_refuse(
        &mut self,
        engine: &Engine,
        core: &mut Core,
        order: Order,
        packet: Packet,
    ) -> io::Result<()> {
        let (about, is_last) = (order.about(), matches!(order, Order::Attach { .. } | Order::Switch { .. }));
        let Some(key) = about else {
            return self.follow_one(engine, core, order, packet.descriptors);
        };
        let why = if packet.cut {
            Some("its process has no room for more descriptors (RLIMIT_NOFILE)".to_owned())
        } else if self.refused.contains_key(&key) {
            None
        } else {
            self.follow_one(engine, core, order, packet.descriptors).err().map(|e| e.to_string())
        };
        if let Some(why) = why {
            self.refused.entry(key).or_insert(why);
        }
        if is_last && let Some(why) = self.refused.remove(&key) {
            self.pinned.remove(&key);
            self.disks.remove(&key);
            if let Some(id) = self.clients.remove(&key) {
                core.detach(id);
            }
            tell(self.control.as_fd(), &Said::Refused { key, why }, &[])?;
        }
        Ok(())
    }

    /// Does what it is told.
    fn follow_one(
        &mut self,
        engine: &Engine,
        core: &mut Core,
        order: Order,
        descriptors: Vec<OwnedFd>,
    ) -> io::Result<()> {
        let mut descriptors = descriptors.into_iter();
        let mut next =
            || descriptors.next().ok_or_else(|| io::Error::other("an order without its descriptors"));
        match order {
            Order::Begin { version } if version != ORDERS => {
                return Err(io::Error::other(format!("orders of version {version}, not {ORDERS}")));
            }
            Order::Begin { .. } => {
                let heart = Heartbeat::open(next()?, next()?)?;
                core.set_heart(heart, next()?)?;
            }
            Order::Pinned { key, nodes } => {
                self.pinned.entry(key).or_default().extend(nodes.into_iter().zip(descriptors));
            }
            Order::Disk { key, volume, live } => {
                self.disks.entry(key).or_default().push((volume, disk_files(descriptors, live)?));
            }
            Order::Switch { key, volume, live } => {
                let files = disk_files(descriptors, live)?;
                if let Some(id) = self.clients.get(&key) {
                    core.switch_disk(*id, volume, files)?;
                }
                tell(self.control.as_fd(), &Said::Switched { key, volume: volume as u64 }, &[])?;
            }
            Order::Attach { key, volumes, limits } => {
                let (memory, doorbell, nodes) = (next()?, next()?, next()?);
                let mut volumes =
                    volumes.iter().map(|terms| terms.volume(&mut next)).collect::<io::Result<Vec<_>>>()?;
                for (number, disk) in self.disks.remove(&key).unwrap_or_default() {
                    let volume = volumes.get_mut(number);
                    volume.ok_or_else(|| io::Error::other("a disk that is no volume"))?.disk = Some(disk);
                }
                let pins = Pins::new(self.control.clone(), key);
                let pinned = self.pinned.remove(&key).unwrap_or_default();
                let nodes = Nodes::open(&nodes, volumes, engine.host().clone(), pins, pinned)?;
                let channel = Channel::open(&memory, doorbell, None, SIZE)?;
                let id = core.enter(engine.host(), channel, nodes)?;
                core.limit(id, &limits);
                self.clients.insert(key, id);
            }
            Order::Limit { key, limits } => {
                self.clients.get(&key).into_iter().for_each(|id| core.limit(*id, &limits));
            }
            Order::Detach { key } => {
                if let Some(id) = self.clients.remove(&key) {
                    core.detach(id);
                }
            }
        }
        Ok(())
    }
}

/// The files of a disk that came with an order.
fn disk_files(descriptors: impl Iterator<Item = OwnedFd>, live: bool) -> io::Result<DiskFiles> {
    let mut layers: Vec<File> = descriptors.map(File::from).collect();
    let lock = layers.pop().ok_or_else(|| io::Error::other("a disk without its lock"))?;
    let live = if live { layers.pop() } else { None };
    Ok(DiskFiles { layers, live, lock })
}

/// The next packet; `None` if none waits.
fn receive(control: BorrowedFd<'_>) -> io::Result<Option<(Order, Packet)>> {
    let Some(packet) = doppel_service::receive_some(control, PACKET)? else { return Ok(None) };
    Ok(Some((serde_json::from_slice(&packet.bytes)?, packet)))
}
