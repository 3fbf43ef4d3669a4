//! Executing programs, and the domain's first one.
//!
//! Everything is read and checked before the point of no return ([`crate::process::task::begin_exec`]); a failure behind it
//! kills the process, as on Linux.

use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use doppel_algo::elf::{SCRIPT_MAX, script};
use doppel_machine::boot::BootData;
use doppel_machine::task::UserContext;
use doppel_machine::user::UserPtr;
use doppel_machine::xstate::XSave;

use super::elf::{Binary, read_at};
use super::stack::{Auxv, Strings};
use crate::core::events::{Kind, record, record_text};
use crate::memory::Prot;
use crate::objects::ipc::inotify;
use crate::objects::lookup::caller::read_string;
use crate::objects::lookup::caller::{Caller, Target, at};
use crate::objects::lookup::perm::{self, MAY_EXEC};
use crate::objects::vfs::attach::busy::Guard;
use crate::objects::vfs::flags::{AtFlags, MountFlags, OpenFlags};
use crate::objects::vfs::{File, FileType, Inode};
use crate::process::signal::sig;
use crate::process::task::directory::change_dir;
use crate::process::task::{Cred, Resource, Thread};
use crate::{Errno, Result};

/// Longest argument or environment string with its NUL.
const STRING_MAX: usize = 128 << 10;
/// Most interpreters a script may go through.
const DEPTH_MAX: usize = 4;
const S_ISUID: u32 = 0o4000;
const S_ISGID: u32 = 0o2000;
const S_IXGRP: u32 = 0o010;

/// A program to execute, with what it is told.
pub(crate) struct Request {
    pub(crate) file: Arc<File>,
    /// The name it was called by (AT_EXECFN).
    pub(crate) name: Vec<u8>,
    pub(crate) argv: Strings,
    pub(crate) envp: Strings,
}

/// A request whose files have been read and checked.
struct Ready {
    program: Binary,
    interp: Option<Binary>,
    name: Vec<u8>,
    argv: Strings,
    envp: Strings,
    cred: Option<Cred>,
    secure: bool,
}

/// Copies a NULL-terminated array of strings.
pub(crate) fn read_strings(mut p: UserPtr, room: &mut usize) -> Result<Strings> {
    let mut out = Strings::default();
    if p.is_null() {
        return Ok(out);
    }
    loop {
        let s: u64 = p.read()?;
        if s == 0 {
            return Ok(out);
        }
        let s = read_string(UserPtr(s), STRING_MAX)?;
        *room = room.checked_sub(s.len() + 1 + 8).ok_or(Errno::E2BIG)?;
        out.push(&s);
        p = p.add(8);
    }
}

/// Opens a file for execution: a regular file with permission to execute. `flags` as execveat's.
pub(crate) fn find(dirfd: i32, name: &[u8], flags: AtFlags) -> Result<Arc<File>> {
    let caller = Caller::current();
    let regular = |i: &Arc<dyn Inode>| {
        if i.stat().kind() != FileType::Regular {
            return Err(if i.stat().kind() == FileType::Symlink { Errno::ELOOP } else { Errno::EACCES });
        }
        perm::check(&caller.cred, &**i, MAY_EXEC)
    };
    match caller.target(dirfd, name, flags)? {
        Target::Path(path) => {
            let inode = path.inode();
            regular(inode)?;
            if path.mount().flags().contains(MountFlags::NOEXEC) {
                return Err(Errno::EACCES);
            }
            inotify::exec_event(&path)?;
            Ok(File::new(inode.open(OpenFlags::RDONLY)?, inode.clone(), path.clone(), OpenFlags::RDONLY))
        }
        // A memfd: it has no place in a file system.
        Target::File(f) => match &f.inode {
            Some(i) => regular(i).map(|()| f.clone()),
            None if f.ops().stat(&f)?.kind() == FileType::Regular => Ok(f),
            None => Err(Errno::EACCES),
        },
    }
}

/// Reads and checks everything; follows scripts.
fn prepare(thread: &Arc<Thread>, r: Request) -> Result<Ready> {
    let Request { mut file, name, mut argv, envp } = r;
    let mut script_name = name.clone();
    let mut head = vec![0u8; SCRIPT_MAX];
    for _ in 0..=DEPTH_MAX {
        head.resize(SCRIPT_MAX, 0);
        let n = read_at(&file, 0, &mut head)?;
        head.truncate(n);
        match script(&head) {
            None => {
                let program = Binary::read(&file, &head)?;
                let interp = match program.interp()? {
                    None => None,
                    Some(n) => Some(open_interp(&n)?),
                };
                deny_writes(&program.file)?;
                let (cred, secure) = new_cred(thread, &program.file);
                return Ok(Ready { program, interp, name, argv, envp, cred: Some(cred), secure });
            }
            Some(Err(_)) => return Err(Errno::ENOEXEC),
            Some(Ok((interp, arg))) => {
                let mut new = Strings::default();
                new.push(interp);
                if let Some(arg) = arg {
                    new.push(arg);
                }
                new.push(&script_name);
                new.extend(&argv, 1);
                argv = new;
                script_name = interp.to_vec();
                file = find(at::FDCWD, &script_name, AtFlags::empty())?;
            }
        }
    }
    Err(Errno::ELOOP)
}

/// The file is not written while the program runs (its mappings keep it open).
fn deny_writes(file: &Arc<File>) -> Result<()> {
    if let Some(inode) = &file.inode {
        let mut guard = file.guard.lock();
        // A descriptor that is executed itself may be open for writing.
        if guard.is_none() {
            *guard = Guard::execute(inode.attachments())?;
        }
    }
    Ok(())
}

/// Opens the program's interpreter (the dynamic linker).
fn open_interp(name: &[u8]) -> Result<Binary> {
    let file = find(at::FDCWD, name, AtFlags::empty())?;
    let mut head = [0u8; 64];
    let n = read_at(&file, 0, &mut head)?;
    let b =
        Binary::read(&file, &head[..n]).map_err(|e| if e == Errno::ENOEXEC { Errno::ELIBBAD } else { e })?;
    Ok(b)
}

/// The identity after exec (capabilities(7), set-user-ID bits), and AT_SECURE.
fn new_cred(thread: &Arc<Thread>, file: &File) -> (Cred, bool) {
    let p = &thread.process;
    let mut c = (*thread.cred()).clone();
    let old = (c.euid, c.egid);
    let nosuid = file.path.as_ref().is_none_or(|p| p.mount().flags().contains(MountFlags::NOSUID));
    if let Some(inode) = &file.inode
        && !nosuid
        && !p.no_new_privs.load(Ordering::Relaxed)
    {
        let st = inode.stat();
        // The program of somebody whom the user namespace does not know changes nothing.
        let known = c.user.shown_uid(st.uid).is_some() && c.user.shown_gid(st.gid).is_some();
        if known && st.mode & S_ISUID != 0 {
            c.euid = st.uid;
        }
        if known && st.mode & (S_ISGID | S_IXGRP) == S_ISGID | S_IXGRP {
            c.egid = st.gid;
        }
    }
    let changed = old != (c.euid, c.egid);
    (c.suid, c.fsuid, c.sgid, c.fsgid) = (c.euid, c.euid, c.egid, c.egid);
    const SECBIT_NOROOT: u32 = 1;
    if changed {
        c.cap_ambient = 0;
    }
    let root = c.user.kernel_uid(0);
    if c.securebits & SECBIT_NOROOT == 0 && (root == Some(c.euid) || root == Some(c.ruid)) {
        c.cap_permitted = c.cap_bounding | c.cap_inheritable;
        c.cap_effective = if root == Some(c.euid) { c.cap_permitted } else { 0 };
    } else {
        c.cap_permitted = c.cap_ambient;
        c.cap_effective = c.cap_ambient;
    }
    // SECBIT_KEEP_CAPS does not outlive exec.
    c.securebits &= !(1 << 4);
    let secure = c.euid != c.ruid || c.egid != c.rgid;
    (c, secure)
}

impl Ready {
    /// Bytes of memory that its program and interpreter need for their own.
    fn private_bytes(&self) -> u64 {
        let files = core::iter::once(&self.program).chain(&self.interp);
        files.flat_map(|f| &f.program.segments).fold(0, |sum, s| sum.saturating_add(s.private_bytes()))
    }
}

/// Replaces the program of the current thread's process.
pub(crate) fn run(thread: &Arc<Thread>, r: Request) -> Result<()> {
    let ready = prepare(thread, r)?;
    // What is refused here is told to the caller; later it ends the process.
    let space = thread.space();
    space.mm.check_room(ready.private_bytes(), space.thread_count() == 1)?;
    drop(space);
    // Nobody else may be left waiting for what the old program held.
    crate::process::futex::exit_robust(thread);
    crate::process::task::begin_exec(thread)?;
    if let Err(e) = replace(thread, ready) {
        record(Kind::ExecFailed, [u64::from(e.0), 0, 0]);
        crate::core::log::log(&alloc::format!("exec: failed behind the point of no return: {}\n", e.name()));
        crate::process::task::do_group_exit(thread, sig::SIGKILL);
    }
    Ok(())
}

/// Fills the empty space with the new program and resets what belonged to the old one.
fn replace(thread: &Arc<Thread>, mut r: Ready) -> Result<()> {
    let p = &thread.process;
    let space = thread.space();
    let mm = &space.mm;
    let strings = (r.argv.size() + r.envp.size() + r.name.len()) as u64;
    let stack_prot = if r.program.program.exec_stack { Prot::RWX } else { Prot::RW };
    let layout = mm.begin_program(p.rlimit(Resource::Stack).max(strings + (128 << 10)), stack_prot)?;
    let main = r.program.load(mm, layout.pie_base)?;
    let interp = match &r.interp {
        Some(i) => Some(i.load(mm, 0)?),
        None => None,
    };
    let brk = main.end + (crate::memory::random_u64() & 0xff) * crate::memory::PAGE;
    let cred = r.cred.take().unwrap_or_else(|| (*thread.cred()).clone());
    let auxv = Auxv {
        vdso: super::vdso::map(mm)?,
        phdr: main.phdr,
        phnum: u64::from(r.program.program.header.phnum),
        base: interp.map_or(0, |i| i.bias),
        entry: main.entry,
        ids: {
            let user = &cred.user;
            [user.uid(cred.ruid), user.uid(cred.euid), user.gid(cred.rgid), user.gid(cred.egid)]
        },
        secure: r.secure,
    };
    let built = super::stack::build(layout.stack_top, &r.argv, &r.envp, &r.name, &auxv)?;
    mm.with_areas(|a| {
        (a.start_code, a.end_code) = main.code;
        (a.start_data, a.end_data) = main.data;
        (a.start_brk, a.brk) = (brk, brk);
        a.start_stack = built.sp;
        (a.arg_start, a.arg_end) = built.args;
        (a.env_start, a.env_end) = built.env;
    });
    reset_thread(thread, interp.map_or(main.entry, |i| i.entry), built.sp);
    let comm = comm(&r.name);
    *thread.comm.lock() = comm;
    record_text(Kind::ProcessExec, [0; 3], &comm);
    *p.exe.lock() = r.program.file.path.clone();
    *p.cmdline.lock() = r.argv.bytes;
    *p.environ.lock() = r.envp.bytes;
    *p.auxv.lock() = built.auxv;
    p.dumpable.store(i32::from(!r.secure), Ordering::Relaxed);
    crate::process::task::cred::install(thread, Arc::new(cred));
    let kept = thread.keyrings.lock().of_process();
    // What goes is let go without the lock.
    let gone = core::mem::replace(&mut *thread.keyrings.lock(), kept);
    drop(gone);
    close_on_exec(thread);
    Ok(())
}

fn reset_thread(thread: &Arc<Thread>, entry: u64, sp: u64) {
    let regs = UserContext { rip: entry, rsp: sp, ..UserContext::default() };
    thread.task.set_regs(&regs);
    let fresh = XSave::initial();
    thread.task.set_xstate(&fresh);
    thread.clear_child_tid.store(0, Ordering::Relaxed);
    thread.robust_list.store(0, Ordering::Relaxed);
    *thread.restart.lock() = None;
}

/// Descriptors: the table is no longer shared, and what is marked so is closed.
fn close_on_exec(thread: &Arc<Thread>) {
    if thread.files().shared() {
        thread.unshare_files();
    }
    thread.files().close_on_exec();
}

/// A thread name: the last component of the program's name, at most 15 bytes.
fn comm(name: &[u8]) -> [u8; 16] {
    let base = name.rsplit(|&b| b == b'/').next().unwrap_or(name);
    let mut c = [0u8; 16];
    let n = base.len().min(15);
    c[..n].copy_from_slice(&base[..n]);
    c
}

/// Loads the domain's first program, or that of a session, into the current thread.
pub fn load_program(t: &Arc<Thread>, data: &BootData) -> Result<()> {
    let caller = Caller::new(&**t);
    if !data.cwd.is_empty() {
        change_dir(&caller, &data.cwd)?;
    }
    let name = data.argv.first().ok_or(Errno::ENOENT)?;
    let (file, name) = find_program(name, &data.envp)?;
    let mut argv = Strings::default();
    data.argv.iter().for_each(|s| argv.push(s));
    let mut envp = Strings::default();
    data.envp.iter().for_each(|s| envp.push(s));
    run(t, Request { file, name, argv, envp })
}

/// Finds a program as a shell would: by its path, or in PATH.
fn find_program(name: &[u8], envp: &[Vec<u8>]) -> Result<(Arc<File>, Vec<u8>)> {
    if name.contains(&b'/') {
        return Ok((find(at::FDCWD, name, AtFlags::empty())?, name.to_vec()));
    }
    let path = envp.iter().find_map(|e| e.strip_prefix(b"PATH="));
    let path = path.unwrap_or(b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    let mut error = Errno::ENOENT;
    for dir in path.split(|&b| b == b':') {
        let mut full = if dir.is_empty() { b".".to_vec() } else { dir.to_vec() };
        full.push(b'/');
        full.extend_from_slice(name);
        match find(at::FDCWD, &full, AtFlags::empty()) {
            Ok(f) => return Ok((f, full)),
            Err(Errno::EACCES) => error = Errno::EACCES,
            Err(_) => {}
        }
    }
    Err(error)
}
