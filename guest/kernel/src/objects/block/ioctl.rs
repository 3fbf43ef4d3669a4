//! `ioctl(2)` of block devices.

use doppel_machine::user::UserPtr;

use super::{BLOCK, Device, SECTOR};
use crate::Result;
use crate::objects::vfs::File;

const BLKROGET: u32 = 0x125e;
const BLKGETSIZE: u32 = 0x1260;
const BLKFLSBUF: u32 = 0x1261;
const BLKRASET: u32 = 0x1262;
const BLKRAGET: u32 = 0x1263;
const BLKSECTGET: u32 = 0x1267;
const BLKSSZGET: u32 = 0x1268;
const BLKDISCARD: u32 = 0x1277;
const BLKIOMIN: u32 = 0x1278;
const BLKIOOPT: u32 = 0x1279;
const BLKALIGNOFF: u32 = 0x127a;
const BLKPBSZGET: u32 = 0x127b;
const BLKDISCARDZEROES: u32 = 0x127c;
const BLKROTATIONAL: u32 = 0x127e;
const BLKZEROOUT: u32 = 0x127f;
const BLKBSZGET: u32 = 0x8008_1270;
const BLKBSZSET: u32 = 0x4008_1271;
const BLKGETSIZE64: u32 = 0x8008_1272;

/// Sectors that are read ahead, as told: none are.
const AHEAD: u64 = 0;
/// Most sectors of a request, as told.
const MOST_SECTORS: u16 = 256;

pub(super) fn ioctl(device: &Device, file: &File, cmd: u32, arg: u64) -> Result<u64> {
    match cmd {
        BLKROGET => File::copy_out(arg, &i32::from(device.is_read_only())),
        BLKGETSIZE => File::copy_out(arg, &(device.size() / SECTOR)),
        BLKGETSIZE64 => File::copy_out(arg, &device.size()),
        BLKFLSBUF => device.medium().map_or(Ok(()), |medium| medium.sync()).map(|()| 0),
        BLKRASET | BLKBSZSET => Ok(0),
        BLKRAGET => File::copy_out(arg, &AHEAD),
        BLKSECTGET => File::copy_out(arg, &MOST_SECTORS),
        BLKSSZGET => File::copy_out(arg, &(SECTOR as i32)),
        BLKBSZGET => File::copy_out(arg, &(BLOCK as i32)),
        BLKIOMIN | BLKPBSZGET => File::copy_out(arg, &(BLOCK as u32)),
        BLKIOOPT => File::copy_out(arg, &0u32),
        BLKALIGNOFF => File::copy_out(arg, &0i32),
        // As Linux says of all devices.
        BLKDISCARDZEROES => File::copy_out(arg, &0u32),
        BLKROTATIONAL => File::copy_out(arg, &0u16),
        BLKDISCARD | BLKZEROOUT => {
            let [at, len]: [u64; 2] = UserPtr(arg).read()?;
            device.zero(file, at, len).map(|()| 0)
        }
        _ => super::loops::ioctl(device, cmd, arg),
    }
}
