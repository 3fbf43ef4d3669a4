//! Memory of the host, and of other processes, copied by the kernel.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Most pieces the kernel takes in one call (UIO_MAXIOV).
const MOST_PIECES: usize = 1024;

/// Bytes of the host's memory that can be given away without paging (`MemAvailable`, proc_meminfo(5)); none: it does not say.
#[must_use]
pub fn available() -> Option<u64> {
    available_by(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn available_by(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// Copies pieces `(address, length)` of a process' memory one after the other to `buf`, which they must fill.
///
/// # Errors
/// What `process_vm_readv(2)` says; or `/proc/PID/mem` if some of it is not mapped.
pub fn read_process(pid: i32, pieces: &[(u64, usize)], buf: &mut [u8]) -> io::Result<()> {
    let mut at = 0;
    for pieces in pieces.chunks(MOST_PIECES) {
        let remote: Vec<libc::iovec> = pieces
            .iter()
            .map(|&(address, len)| libc::iovec {
                iov_base: std::ptr::with_exposed_provenance_mut(usize::try_from(address).unwrap_or(0)),
                iov_len: len,
            })
            .collect();
        let total: usize = pieces.iter().map(|p| p.1).sum();
        let target = buf.get_mut(at..at + total).ok_or(io::ErrorKind::InvalidInput)?;
        let local = libc::iovec { iov_base: target.as_mut_ptr().cast(), iov_len: target.len() };
        // SAFETY: the local vector is our own exclusive buffer; remote addresses are only used by the kernel,
        // in the other process.
        let n = unsafe {
            libc::process_vm_readv(pid, &raw const local, 1, remote.as_ptr(), remote.len() as u64, 0)
        };
        match usize::try_from(n) {
            Err(_) if io::Error::last_os_error().raw_os_error() != Some(libc::EFAULT) => {
                return Err(io::Error::last_os_error());
            }
            Ok(n) if n == total => {}
            _ => read_protected(pid, pieces, target)?,
        }
        at += total;
    }
    Ok(())
}

/// As [`read_process`], for pages the process itself may not read (PROT_NONE, or only executable).
fn read_protected(pid: i32, pieces: &[(u64, usize)], buf: &mut [u8]) -> io::Result<()> {
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let mut at = 0;
    for &(address, len) in pieces {
        memory.read_exact_at(&mut buf[at..at + len], address)?;
        at += len;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{available, available_by, read_process};

    #[test]
    fn what_the_host_can_give_away() {
        let meminfo = "MemTotal:       24000000 kB\nMemFree: 1 kB\nMemAvailable:   12345 kB\n";
        assert_eq!(available_by(meminfo), Some(12345 * 1024));
        assert_eq!(available_by("MemTotal: 1 kB\n"), None);
        assert!(available().is_some_and(|bytes| bytes > 0));
    }

    #[test]
    fn reads_itself() {
        let data: Vec<u8> = (0..=255).collect();
        let at = data.as_ptr().expose_provenance() as u64;
        let mut buf = [0; 20];
        let pid = i32::try_from(std::process::id()).unwrap();
        read_process(pid, &[(at + 10, 10), (at + 100, 10)], &mut buf).unwrap();
        assert_eq!(buf[..10], data[10..20]);
        assert_eq!(buf[10..], data[100..110]);
        assert!(read_process(pid, &[(1 << 12, 10)], &mut buf[..10]).is_err());
    }

    #[test]
    fn reads_what_it_may_not_read_itself() {
        // SAFETY: a new mapping, written and protected only here; nothing keeps a reference into it.
        let at = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            let p = libc::mmap(std::ptr::null_mut(), 8192, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            assert_ne!(p, libc::MAP_FAILED);
            p.cast::<u8>().write_bytes(7, 8192);
            assert_eq!(libc::mprotect(p, 4096, libc::PROT_NONE), 0);
            p.expose_provenance() as u64
        };
        let pid = i32::try_from(std::process::id()).unwrap();
        let mut buf = [0; 20];
        read_process(pid, &[(at + 4096, 10), (at, 10)], &mut buf).unwrap();
        assert_eq!(buf, [7; 20]);
    }
}
