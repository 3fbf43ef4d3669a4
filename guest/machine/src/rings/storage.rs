//! The guest's side of the channel to the storage service (`doppel_abi_service::storage`); only a domain with volumes has one.

use doppel_abi_machine::{fd, layout::STORAGE_BASE};
use doppel_abi_service::storage::{FILE_EVENTS, FileEvents, LEASES, Leases, SIZE};

use super::channel::Channel;
use crate::rings::control::start_info;

/// The channel.
pub static CHANNEL: Channel = Channel::new(STORAGE_BASE, SIZE, fd::STORAGE_DOORBELL, is_there);

/// Whether this domain has volumes.
pub fn is_there() -> bool {
    start_info().storage != 0
}

/// What may be kept of volumes. Only a domain with volumes has it.
pub fn leases() -> &'static Leases {
    CHANNEL.at(LEASES)
}

/// What others change in volumes. Only a domain with volumes has it.
pub fn file_events() -> &'static FileEvents {
    CHANNEL.at(FILE_EVENTS)
}
