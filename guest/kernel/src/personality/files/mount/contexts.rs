//! File systems made in steps: fsopen(2), fsconfig(2), fsmount(2), fspick(2).

use alloc::sync::Arc;
use alloc::vec::Vec;

use doppel_abi_linux::syscalls::nr;
use doppel_machine::user::UserPtr;

use super::Changer;
use super::attr::Attr;
use crate::core::numbers::numbers;
use crate::objects::filesystems::context::Context;
use crate::objects::filesystems::{Settings, detached, revealing};
use crate::objects::lookup::caller::{Name, at, read_string};
use crate::objects::vfs::File;
use crate::objects::vfs::flags::{AtFlags, OpenFlags};
use crate::objects::vfs::mount::MountNamespace;
use crate::personality::Support::Full;
use crate::personality::args::{Bits, Code, RawFd, UserStr};
use crate::personality::events::anon;
use crate::personality::{Args, Syscall, call};
use crate::{Errno, Result};

/// Longest name of a type or an option, and longest value, with the NUL.
const LONGEST: usize = 256;

bitflags::bitflags! {
    /// Flags of fsopen(2) and fsmount(2).
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct CloseFlags: u32 {
        const CLOEXEC = 1;
    }
}

fn short(p: UserPtr) -> Result<Vec<u8>> {
    read_string(p, LONGEST).map_err(|e| if e == Errno::E2BIG { Errno::EINVAL } else { e })
}

fn fsopen(a: &Args, UserStr(kind): UserStr, flags: Bits<CloseFlags>) -> Result<u64> {
    let me = Changer::new(a);
    me.check()?;
    let flags = flags.checked()?;
    let kind = super::name(kind)?.ok_or(Errno::EFAULT)?;
    let settings = Settings::new(&kind, &me.caller.cred)?;
    context(a, Context::new(settings), flags.contains(CloseFlags::CLOEXEC))
}

fn context(a: &Args, context: Arc<Context>, cloexec: bool) -> Result<u64> {
    anon::new_fd(a, context, "fscontext", OpenFlags::RDWR | OpenFlags::CLOEXEC.when(cloexec))
}

bitflags::bitflags! {
    /// Flags of fspick(2).
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct PickFlags: u32 {
        const CLOEXEC = 1;
        const SYMLINK_NOFOLLOW = 2;
        const NO_AUTOMOUNT = 4;
        const EMPTY_PATH = 8;
    }
}

fn fspick(a: &Args, RawFd(dir): RawFd, UserStr(path): UserStr, flags: Bits<PickFlags>) -> Result<u64> {
    let me = Changer::new(a);
    me.check()?;
    let flags = flags.checked()?;
    let how = AtFlags::SYMLINK_NOFOLLOW.when(flags.contains(PickFlags::SYMLINK_NOFOLLOW))
        | AtFlags::EMPTY_PATH.when(flags.contains(PickFlags::EMPTY_PATH));
    let p = me.target(dir, Name::read(path)?.bytes(), how)?;
    if !Arc::ptr_eq(&p.mount().root, p.dentry()) {
        return Err(Errno::EINVAL);
    }
    let sb = p.mount().sb.clone();
    let settings = Settings::of(&sb, &me.caller.cred)?;
    context(a, Context::pick(sb, settings), flags.contains(PickFlags::CLOEXEC))
}

numbers! {
    /// What fsconfig(2) does.
    enum Command {
        SetFlag = 0,
        SetString = 1,
        SetBinary = 2,
        SetPath = 3,
        SetPathEmpty = 4,
        SetFd = 5,
        Create = 6,
        Reconfigure = 7,
        CreateExclusive = 8,
    }
}

impl Command {
    /// Whether the other arguments are such as it takes.
    fn takes(&self, key: UserPtr, value: UserPtr, aux: i32) -> bool {
        const MOST: i32 = 1024 * 1024;
        let (key, value) = (!key.is_null(), !value.is_null());
        match self {
            Self::SetFlag => key && !value && aux == 0,
            Self::SetString => key && value && aux == 0,
            Self::SetBinary => key && value && aux > 0 && aux <= MOST,
            Self::SetPath | Self::SetPathEmpty => key && value && (aux == at::FDCWD || aux >= 0),
            Self::SetFd => key && !value && aux >= 0,
            Self::Create | Self::Reconfigure | Self::CreateExclusive => !key && !value && aux == 0,
        }
    }
}

/// The context that a descriptor stands for: EINVAL if it does not.
fn of(file: &File) -> Result<&Context> {
    file.downcast::<Context>().ok_or(Errno::EINVAL)
}

fn fsconfig(
    a: &Args,
    RawFd(fd): RawFd,
    command: Code<Command>,
    UserStr(key): UserStr,
    value: UserPtr,
    aux: i32,
) -> Result<u64> {
    if fd < 0 {
        return Err(Errno::EINVAL);
    }
    let command = command.get().map_err(|_| Errno::EOPNOTSUPP)?;
    if !command.takes(key, value, aux) {
        return Err(Errno::EINVAL);
    }
    let file = a.thread.file(fd)?.clone();
    let context = of(&file)?;
    let me = Changer::new(a);
    let cred = &me.caller.cred;
    let key = if key.is_null() { Vec::new() } else { short(key)? };
    let key = core::str::from_utf8(&key).map_err(|_| Errno::EINVAL)?;
    match command {
        Command::SetFlag => context.set(key, None, cred)?,
        Command::SetString => {
            let value = short(value)?;
            context.set(key, Some(core::str::from_utf8(&value).map_err(|_| Errno::EINVAL)?), cred)?;
        }
        Command::SetBinary => {
            let mut first = [0];
            value.read_bytes(&mut first)?;
            context.refuse(key, cred)?;
        }
        Command::SetPath | Command::SetPathEmpty => {
            let name = Name::read(value)?;
            if name.bytes().is_empty() && matches!(command, Command::SetPath) {
                return Err(Errno::ENOENT);
            }
            context.refuse(key, cred)?;
        }
        Command::SetFd => {
            drop(a.thread.any_file(aux)?);
            context.refuse(key, cred)?;
        }
        Command::Create => context.create(&me.caller, false)?,
        Command::CreateExclusive => context.create(&me.caller, true)?,
        Command::Reconfigure => context.change(&me.caller)?,
    }
    Ok(0)
}

fn fsmount(a: &Args, RawFd(fd): RawFd, flags: Bits<CloseFlags>, attr: Bits<Attr>) -> Result<u64> {
    let me = Changer::new(a);
    me.check()?;
    let flags = flags.checked()?;
    let attr = attr.checked()?;
    if attr.contains(Attr::IDMAP) {
        return Err(Errno::EINVAL);
    }
    let mount_flags = attr.flags()?;
    let file = a.thread.file(fd)?.clone();
    let tree = of(&file)?.mount(|settings, sb, root| {
        let mount_flags = revealing(&me.space, settings.kind, mount_flags)?;
        let (tree, at) = MountNamespace::with(settings.mount(sb, root, mount_flags), &me.space)?;
        Ok(detached::open(tree, at))
    })?;
    anon::insert(a, tree, flags.contains(CloseFlags::CLOEXEC))
}

/// `fsopen(2)`.
pub(super) const FSOPEN: Syscall = call!(nr::FSOPEN, fsopen(UserStr, Bits<CloseFlags>), Full, "");

/// `fsconfig(2)`.
pub(super) const FSCONFIG: Syscall = call!(
    nr::FSCONFIG,
    fsconfig(RawFd, Code<Command>, UserStr, UserPtr, i32),
    Full,
    "no file system here has an option that is a descriptor, a path or binary",
);

/// `fsmount(2)`.
pub(super) const FSMOUNT: Syscall =
    call!(nr::FSMOUNT, fsmount(RawFd, Bits<CloseFlags>, Bits<Attr>), Full, "");

/// `fspick(2)`.
pub(super) const FSPICK: Syscall = call!(nr::FSPICK, fspick(RawFd, UserStr, Bits<PickFlags>), Full, "");
