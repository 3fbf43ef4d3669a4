//! Operations of sockets.

use alloc::sync::Arc;

use doppel_machine::user::UserPtr;

use super::data::selected;
use super::register::placed;
use super::steps::{Step, armed, file, tell_more};
use crate::core::sched::PollEvents;
use crate::objects::net::consts::MsgFlags;
use crate::objects::net::msg::{MAX_RW_COUNT, read_addr};
use crate::objects::net::socket::SendMsg;
use crate::objects::vfs::flags::OpenFlags;
use crate::objects::vfs::{Input, Output};
use crate::personality::Args;
use crate::personality::net::sockets::{Sock, address, recv_one, send_one, take_connection};
use crate::process::async_io::held::HeldFile;
use crate::process::async_io::uring::layout::SqeFlags;
use crate::process::async_io::uring::request::Request;
use crate::{Errno, Result};

/// IORING_RECVSEND_POLL_FIRST and IORING_RECV_MULTISHOT, of which the second is IORING_ACCEPT_MULTISHOT as well, but for its place.
const POLL_FIRST: u16 = 1;
const RECV_MULTISHOT: u16 = 2;
const ACCEPT_MULTISHOT: u16 = 1;

/// IORING_OP_SENDMSG and IORING_OP_RECVMSG; the others have a buffer.
const SENDMSG: u8 = 9;
const RECVMSG: u8 = 10;

/// Tries until it need not wait any more: `attempt` must not wait. That the file is not to have its users wait (O_NONBLOCK)
/// means calls, as on Linux.
fn try_for<T>(
    request: &Request,
    file: &HeldFile,
    wanted: PollEvents,
    waits: bool,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<Option<T>> {
    loop {
        let was_armed = request.is_armed();
        match attempt() {
            Err(Errno::EAGAIN) if waits => {
                let events = armed(request, file, wanted);
                // What has come meanwhile is taken at once; who was armed before is woken by what comes.
                if was_armed || events.is_empty() {
                    return Ok(None);
                }
            }
            r => return r.map(Some),
        }
    }
}

/// IORING_OP_SEND, SENDMSG.
pub(super) fn send(a: &Args, request: &Arc<Request>) -> Result<Step> {
    let sqe = &request.sqe;
    if sqe.ioprio & !POLL_FIRST != 0 {
        return Err(Errno::EINVAL);
    }
    let file = file(a, request)?;
    let socket = Sock::of(&**file)?;
    let given = MsgFlags::from_bits_retain(sqe.op_flags);
    let flags = given | MsgFlags::DONTWAIT;
    let sent = try_for(request, &file, PollEvents::OUT, !given.contains(MsgFlags::DONTWAIT), || {
        if sqe.opcode == SENDMSG {
            return send_one(a, &socket, UserPtr(sqe.addr), flags);
        }
        let to = UserPtr(sqe.off);
        let addr = if to.is_null() { None } else { Some(read_addr(to, sqe.file_index & 0xffff)?) };
        let mut input = Input::user(UserPtr(sqe.addr), (sqe.len as usize).min(MAX_RW_COUNT));
        socket.send(&mut input, SendMsg { addr, flags, ..SendMsg::default() })
    })?;
    Ok(sent.map_or(Step::Waits, |n| Step::Done(n as i64)))
}

/// IORING_OP_RECV, RECVMSG.
pub(super) fn receive(a: &Args, request: &Arc<Request>) -> Result<Step> {
    let sqe = &request.sqe;
    let select = sqe.flags().contains(SqeFlags::BUFFER_SELECT);
    let many = sqe.ioprio & RECV_MULTISHOT != 0;
    if sqe.ioprio & !(POLL_FIRST | RECV_MULTISHOT) != 0
        || many && (!select || sqe.opcode == RECVMSG || sqe.len != 0)
        || select && sqe.opcode == RECVMSG
    {
        return Err(Errno::EINVAL);
    }
    let file = file(a, request)?;
    let socket = Sock::of(&**file)?;
    let given = MsgFlags::from_bits_retain(sqe.op_flags);
    let flags = given | MsgFlags::DONTWAIT;
    let waits = !given.contains(MsgFlags::DONTWAIT);
    loop {
        // A buffer is only taken when there is something for it.
        if select && (file.poll(None) & (PollEvents::IN | PollEvents::ALWAYS)).is_empty() {
            let ready = try_for(request, &file, PollEvents::IN, waits, || {
                let ready = file.poll(None) & (PollEvents::IN | PollEvents::ALWAYS);
                if ready.is_empty() { Err(Errno::EAGAIN) } else { Ok(()) }
            })?;
            if ready.is_none() {
                return Ok(Step::Waits);
            }
        }
        let (base, len, told) = if select {
            let (vector, told) = selected(request, sqe.len)?;
            (vector.base, vector.len, told)
        } else {
            (UserPtr(sqe.addr), sqe.len as usize, 0)
        };
        let got = try_for(request, &file, PollEvents::IN, waits, || {
            if sqe.opcode == RECVMSG {
                return recv_one(&socket, base, flags);
            }
            let mut out = Output::user(base, len.min(MAX_RW_COUNT));
            socket.ops.recv(&mut out, flags).map(|r| r.len)
        })?;
        match got {
            None => return Ok(Step::Waits),
            Some(n) if many && n > 0 => tell_more(request, n as i64, told)?,
            Some(n) => return Ok(Step::With(n as i64, told)),
        }
    }
}

/// IORING_OP_ACCEPT.
pub(super) fn accept(a: &Args, request: &Arc<Request>) -> Result<Step> {
    let sqe = &request.sqe;
    let flags = OpenFlags::from_bits(sqe.op_flags)
        .filter(|f| OpenFlags::DESCRIPTOR.contains(*f))
        .ok_or(Errno::EINVAL)?;
    let many = sqe.ioprio & ACCEPT_MULTISHOT != 0;
    // Many connections do not go to one place.
    if sqe.ioprio & !ACCEPT_MULTISHOT != 0
        || sqe.len != 0
        || sqe.file_index != 0 && flags.contains(OpenFlags::CLOEXEC)
        || many && sqe.file_index > 0
    {
        return Err(Errno::EINVAL);
    }
    let file = file(a, request)?;
    let socket = Sock::of(&**file)?;
    loop {
        let new = try_for(request, &file, PollEvents::IN, true, || {
            take_connection(a, &socket, UserPtr(sqe.addr), UserPtr(sqe.off), flags, true)
        })?;
        match new {
            None => return Ok(Step::Waits),
            Some(fd) => {
                let result = placed(a, request, fd)?;
                if !many {
                    return Ok(Step::Done(result));
                }
                tell_more(request, result, 0)?;
            }
        }
    }
}

/// IORING_OP_CONNECT.
pub(super) fn connect(a: &Args, request: &Arc<Request>) -> Result<Step> {
    let sqe = &request.sqe;
    if sqe.ioprio != 0 || sqe.len != 0 || sqe.file_index != 0 {
        return Err(Errno::EINVAL);
    }
    let file = file(a, request)?;
    let socket = Sock::of(&**file)?;
    let len = i32::try_from(sqe.off).map_err(|_| Errno::EINVAL)?;
    let to = address(UserPtr(sqe.addr), len, socket.ops.common().domain)?;
    let begun = request.is_armed();
    if begun && (file.poll(None) & (PollEvents::OUT | PollEvents::ALWAYS)).is_empty() {
        return Ok(Step::Waits);
    }
    let connected = try_for(request, &file, PollEvents::OUT, true, || match socket.ops.connect(&to, true) {
        // It was this request that connected it.
        Err(Errno::EISCONN) if begun => Ok(()),
        Err(Errno::EINPROGRESS | Errno::EALREADY) => Err(Errno::EAGAIN),
        r => r,
    })?;
    Ok(connected.map_or(Step::Waits, |()| Step::Done(0)))
}
