//! Seccomp programs for this process.

use std::io;

/// Installs a program of classic BPF (`struct sock_filter` each) for the calling thread and what it starts.
/// `no_new_privs` must be set.
///
/// # Errors
/// What the host says; a program that is none, for example.
pub fn install(instructions: &[[u8; 8]]) -> io::Result<()> {
    put(instructions, 0)
}

/// The same for all threads of this process.
///
/// # Errors
/// What the host says; or a thread has another program already.
pub fn install_for_all(instructions: &[[u8; 8]]) -> io::Result<()> {
    put(instructions, libc::SECCOMP_FILTER_FLAG_TSYNC)
}

fn put(instructions: &[[u8; 8]], flags: libc::c_ulong) -> io::Result<()> {
    let mut program: Vec<libc::sock_filter> = instructions
        .iter()
        .map(|&[c0, c1, jt, jf, k0, k1, k2, k3]| libc::sock_filter {
            code: u16::from_le_bytes([c0, c1]),
            jt,
            jf,
            k: u32::from_le_bytes([k0, k1, k2, k3]),
        })
        .collect();
    let len = u16::try_from(program.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len, filter: program.as_mut_ptr() };
    // SAFETY: the kernel copies the program, which lives until the call is over, and checks it.
    let done =
        unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    match done {
        0 => Ok(()),
        ..0 => Err(io::Error::last_os_error()),
        thread => Err(io::Error::other(format!("thread {thread} has another filter"))),
    }
}
