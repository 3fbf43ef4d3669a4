//! Facts about this host that a frozen image depends on.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// SHA-256 of the host's vDSO: programs may have been in the middle of its code.
pub(crate) fn vdso() -> Result<[u8; 32]> {
    static DIGEST: OnceLock<[u8; 32]> = OnceLock::new();
    if let Some(digest) = DIGEST.get() {
        return Ok(*digest);
    }
    let failed = || Error::host("read this process' vDSO");
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(failed())?;
    let range = maps.lines().find(|l| l.ends_with("[vdso]")).and_then(|l| l.split_once(' '));
    let bounds = range.and_then(|(r, _)| r.split_once('-'));
    let parse = |s: &str| u64::from_str_radix(s, 16).ok();
    let Some((from, to)) = bounds.and_then(|(a, b)| Some((parse(a)?, parse(b)?))) else {
        return Err(Error::Request("this host gives its processes no vDSO; domains need one".into()));
    };
    let mut code = vec![0; usize::try_from(to - from).unwrap_or(0)];
    File::open("/proc/self/mem").and_then(|f| f.read_exact_at(&mut code, from)).map_err(failed())?;
    Ok(*DIGEST.get_or_init(|| Sha256::digest(&code).into()))
}

/// Boot id of the host.
pub(crate) fn boot_id() -> Result<[u8; 16]> {
    static ID: OnceLock<[u8; 16]> = OnceLock::new();
    if let Some(id) = ID.get() {
        return Ok(*id);
    }
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map_err(Error::host("read the host's boot id"))?;
    let hex: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let number = u128::from_str_radix(&hex, 16).unwrap_or(0);
    Ok(*ID.get_or_init(|| number.to_be_bytes()))
}

/// CLOCK_MONOTONIC in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(t.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(t.tv_nsec).unwrap_or(0)
}

/// Wall clock in nanoseconds since 1970.
pub(crate) fn realtime_ns() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
