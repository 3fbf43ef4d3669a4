//! `ioctl_tty(2)`.

use alloc::sync::Arc;

use doppel_abi_linux::termios::*;
use doppel_machine::user::UserPtr;

use super::job::CAP_SYS_ADMIN;
use super::layout::{Layout, Winsize};
use super::terminal::Kind;
use super::{Tty, devpts, job};
use crate::core::sched::wait_until;
use crate::objects::vfs::File;
use crate::objects::vfs::flags::OpenFlags;
use crate::process::signal::sig;
use crate::process::task::current;
use crate::{Errno, Result};

/// Which side of a pseudo-terminal a call came in on; other terminals have only a slave side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Master,
    Slave,
}

/// When new settings take effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Now,
    Drained,
    Flushed,
}

pub(super) fn ioctl(tty: &Arc<Tty>, side: Side, file: &File, cmd: u32, arg: u64) -> Result<u64> {
    if tty.state.lock().hung_up {
        return Err(if cmd == TIOCSPGRP { Errno::ENOTTY } else { Errno::EIO });
    }
    let at = UserPtr(arg);
    let master = side == Side::Master;
    match cmd {
        TCGETS => get(tty, Layout::Termios, at),
        TCGETS2 => get(tty, Layout::Termios2, at),
        TCGETA => get(tty, Layout::Termio, at),
        TCSETS => set(tty, Layout::Termios, at, When::Now),
        TCSETSW => set(tty, Layout::Termios, at, When::Drained),
        TCSETSF => set(tty, Layout::Termios, at, When::Flushed),
        TCSETS2 => set(tty, Layout::Termios2, at, When::Now),
        TCSETSW2 => set(tty, Layout::Termios2, at, When::Drained),
        TCSETSF2 => set(tty, Layout::Termios2, at, When::Flushed),
        TCSETA => set(tty, Layout::Termio, at, When::Now),
        TCSETAW => set(tty, Layout::Termio, at, When::Drained),
        TCSETAF => set(tty, Layout::Termio, at, When::Flushed),
        TIOCGLCKTRMIOS | TIOCSLCKTRMIOS => locks(tty, cmd, at),
        TIOCGWINSZ => {
            let w = tty.state.lock().winsize;
            File::copy_out(arg, &w)
        }
        TIOCSWINSZ => {
            let w: Winsize = at.read()?;
            tty.resize(w);
            Ok(0)
        }
        TCSBRK | TCSBRKP | TIOCSBRK | TIOCCBRK => {
            job::check(tty, sig::SIGTTOU)?;
            // A break has no meaning here; tcdrain is TCSBRK with an argument.
            if cmd == TCSBRK && arg != 0 { drain(tty) } else { Ok(0) }
        }
        TCXONC => flow(tty, arg),
        TCFLSH => flush(tty, master, arg),
        TIOCOUTQ => {
            let n = if tty.channel.is_some() { tty.state.lock().disc.output_len() } else { 0 };
            File::copy_out(arg, &(n as i32))
        }
        FIONREAD => {
            let n = {
                let s = tty.state.lock();
                if master { s.disc.output_len() } else { s.disc.available() }
            };
            File::copy_out(arg, &(n as i32))
        }
        // Faking input is refused, as Linux does since 6.2.
        TIOCSTI => Err(Errno::EIO),
        TIOCCONS => Err(Errno::EPERM),
        TIOCEXCL | TIOCNXCL => {
            tty.state.lock().exclusive = cmd == TIOCEXCL;
            Ok(0)
        }
        TIOCGEXCL => {
            let on = tty.state.lock().exclusive;
            File::copy_out(arg, &i32::from(on))
        }
        TIOCGETD => File::copy_out(arg, &0i32),
        TIOCSETD => match at.read::<i32>()? {
            0 => Ok(0),
            _ => Err(Errno::EINVAL),
        },
        TIOCGDEV => {
            let (major, minor) = if master { (5, 2) } else { tty.device() };
            File::copy_out(arg, &(major << 8 | minor))
        }
        TIOCSCTTY if !master => job::take(tty, arg == 1).map(|()| 0),
        TIOCNOTTY if !master => job::give_up(tty).map(|()| 0),
        TIOCGPGRP => File::copy_out(arg, &job::foreground(tty, master)?),
        TIOCSPGRP => job::set_foreground(tty, at.read()?).map(|()| 0),
        TIOCGSID => File::copy_out(arg, &job::session_id(tty, master)?),
        _ if master => master_ioctl(tty, file, cmd, arg),
        _ => Err(Errno::ENOTTY),
    }
}

/// What only a pseudo-terminal's master has.
fn master_ioctl(tty: &Arc<Tty>, _file: &File, cmd: u32, arg: u64) -> Result<u64> {
    let at = UserPtr(arg);
    let Kind::Pty(number) = tty.kind else { return Err(Errno::ENOTTY) };
    match cmd {
        TIOCGPTN => File::copy_out(arg, &number),
        TIOCSPTLCK => {
            let on = at.read::<i32>()? != 0;
            tty.state.lock().locked = on;
            Ok(0)
        }
        TIOCGPTLCK => {
            let on = tty.state.lock().locked;
            File::copy_out(arg, &i32::from(on))
        }
        TIOCPKT => {
            let on = at.read::<i32>()? != 0;
            let mut s = tty.state.lock();
            if on != s.packet {
                s.packet = on;
                s.packet_status = 0;
            }
            Ok(0)
        }
        TIOCGPKT => {
            let on = tty.state.lock().packet;
            File::copy_out(arg, &i32::from(on))
        }
        TIOCGPTPEER => devpts::open_peer(tty, OpenFlags::from_bits(arg as u32).ok_or(Errno::EINVAL)?),
        TIOCSIG => match arg as i32 {
            s @ (sig::SIGINT | sig::SIGQUIT | sig::SIGTSTP) => {
                tty.signal_foreground(s);
                Ok(0)
            }
            _ => Err(Errno::EINVAL),
        },
        _ => Err(Errno::ENOTTY),
    }
}

/// What is locked of the settings: tells or sets it.
fn locks(tty: &Tty, cmd: u32, at: UserPtr) -> Result<u64> {
    if cmd == TIOCGLCKTRMIOS {
        let locks = tty.state.lock().locks;
        return Layout::Termios.write(at, &locks).map(|()| 0);
    }
    if !current().cred().capable(CAP_SYS_ADMIN) {
        return Err(Errno::EPERM);
    }
    let locks = Layout::read_bits(at)?;
    tty.state.lock().locks = locks;
    Ok(0)
}

fn get(tty: &Tty, layout: Layout, at: UserPtr) -> Result<u64> {
    let t = *tty.state.lock().disc.termios();
    layout.write(at, &t).map(|()| 0)
}

fn set(tty: &Arc<Tty>, layout: Layout, at: UserPtr, when: When) -> Result<u64> {
    job::check(tty, sig::SIGTTOU)?;
    let old = *tty.state.lock().disc.termios();
    let new = layout.read(at, &old)?;
    if when != When::Now {
        drain(tty)?;
    }
    {
        let mut s = tty.state.lock();
        if when == When::Flushed {
            s.disc.flush_input();
        }
        let new = new.locked(&old, &s.locks);
        let started = s.disc.set_termios(new);
        if started {
            s.note(pkt::START, pkt::STOP);
        }
        // Whether ^S and ^Q are flow control, which a remote terminal would like to do itself.
        let usual = |i: u32, c: &[u8; NCCS]| i & IXON != 0 && c[cc::VSTOP] == 19 && c[cc::VSTART] == 17;
        match (usual(old.iflag, &old.cc), usual(new.iflag, &new.cc)) {
            (true, false) => s.note(pkt::NOSTOP, pkt::DOSTOP),
            (false, true) => s.note(pkt::DOSTOP, pkt::NOSTOP),
            _ => {}
        }
        tty.flush_channel(&mut s);
    }
    tty.consumed();
    tty.wake();
    Ok(0)
}

/// Waits until output has gone. What a master has not read yet counts as gone, as on Linux.
fn drain(tty: &Tty) -> Result<u64> {
    if tty.channel.is_some() {
        wait_until(&tty.slave_wait, None, || tty.drained().then_some(()))?;
    }
    Ok(0)
}

fn flow(tty: &Arc<Tty>, action: u64) -> Result<u64> {
    job::check(tty, sig::SIGTTOU)?;
    {
        let mut s = tty.state.lock();
        match action {
            0 => {
                if s.disc.stop() {
                    s.note(pkt::STOP, pkt::START);
                }
            }
            1 => {
                if s.disc.start() {
                    s.note(pkt::START, pkt::STOP);
                }
            }
            2 => s.disc.send_flow(false),
            3 => s.disc.send_flow(true),
            _ => return Err(Errno::EINVAL),
        }
        tty.flush_channel(&mut s);
    }
    tty.wake();
    Ok(0)
}

fn flush(tty: &Arc<Tty>, master: bool, which: u64) -> Result<u64> {
    job::check(tty, sig::SIGTTOU)?;
    let (mut input, mut output) = match which {
        0 => (true, false),
        1 => (false, true),
        2 => (true, true),
        _ => return Err(Errno::EINVAL),
    };
    if master {
        // What the master would read is the program's output.
        core::mem::swap(&mut input, &mut output);
    }
    {
        let mut s = tty.state.lock();
        if input {
            s.disc.flush_input();
            s.note(pkt::FLUSHREAD, 0);
        }
        if output {
            s.disc.flush_output();
            s.note(pkt::FLUSHWRITE, 0);
        }
    }
    tty.consumed();
    tty.wake();
    Ok(0)
}
