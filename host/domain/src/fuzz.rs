//! Ways in for fuzz targets (`fuzz/`), which see nothing else that is not public.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, LazyLock, Mutex};

use doppel_abi_machine::session::{SESSION_RINGS, SESSION_STRIDE, SESSIONS, SessionHeader};
use doppel_abi_machine::{
    RING_BYTES, RING_HEADER_STRIDE, RING_STRIDE, RingHeader, VirtualRegisters, control,
};
use doppel_sys::child::Child;
use doppel_sys::shared::SharedMap;
use rustix::fs::MemfdFlags;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::console::Console;
use crate::core::{Born, Core, Guests};
use crate::session::{ExecConfig, Session};
use crate::{Kind, Output};

/// A control area, and a process that stands for the domain.
fn core() -> Arc<Core> {
    let process = Command::new("sleep").arg("1000000").stdin(Stdio::null()).spawn().expect("a process");
    let pid = i32::try_from(process.id()).expect("an int");
    let pidfd = pidfd_open(Pid::from_raw(pid).expect("a process"), PidfdFlags::empty()).expect("it lives");
    let fd = rustix::fs::memfd_create("control", MemfdFlags::CLOEXEC).expect("memory");
    rustix::fs::ftruncate(&fd, control::SIZE).expect("memory");
    let size = usize::try_from(control::SIZE).expect("it fits");
    let born = Born {
        kind: Kind::Para,
        resume: None,
        kernel: [0; 32],
        image: PathBuf::new(),
        generation: 0,
        vcpus: 1,
        memory_limit: AtomicU64::new(0),
        boot_flags: 0,
        owner: 0,
        freeze_to: None,
        freeze_stop: false,
    };
    Arc::new(Core {
        child: Child { pid, pidfd },
        map: SharedMap::new(fd.as_fd(), size).expect("memory"),
        label: Mutex::default(),
        id: 1,
        born,
        hostname: Mutex::default(),
        share: Mutex::default(),
        stops: Mutex::default(),
        asleep: AtomicBool::new(false),
        paused: AtomicBool::new(false),
        killed: AtomicBool::new(false),
        sessions: Mutex::default(),
        guests: Guests::default(),
        group: None,
        record: None,
    })
}

/// Words near the borders of what makes sense.
fn word(byte: u8, raw: u32) -> u32 {
    const ODD: [u32; 8] = [0, 1, RING_BYTES - 1, RING_BYTES, RING_BYTES + 1, 1 << 31, u32::MAX - 1, u32::MAX];
    if byte & 1 == 0 { raw } else { ODD[usize::from(byte >> 1) % ODD.len()] }
}

/// A domain that writes into its control area what the bytes say, while the host moves its console, runs a program in it by a
/// session, and looks at its registers. Another session goes on, and no step moves more than the rings hold.
///
/// # Panics
/// If the host's side does what it must not.
pub fn control_area(bytes: &[u8]) {
    static CORE: LazyLock<Arc<Core>> = LazyLock::new(core);
    let core = &*CORE;
    let map = &core.map;
    let at = |offset: u64| usize::try_from(offset).expect("inside the control area");
    // Whatever the last run has left there.
    map.write(at(control::VREGS), &[0; size_of::<VirtualRegisters>()]);
    for index in 0..4 {
        map.write(at(control::RINGS + index * RING_HEADER_STRIDE), &[0; size_of::<RingHeader>()]);
    }
    let mut console = Console::new(map, true, bytes.len() % 2 == 0, Output::Kept);
    let config = ExecConfig { stdin: true, ..ExecConfig::new(vec!["x".into()]) };
    let Ok(mut session) = Session::open(core, &config, Output::Kept, false) else { return };
    let slot = session.slot;
    let slot_at = control::SESSIONS + slot as u64 * SESSION_STRIDE;
    for step in bytes.chunks_exact(8).take(256) {
        let place = u64::from(u16::from_le_bytes([step[2], step[3]]));
        let raw = u32::from_le_bytes([step[4], step[5], step[6], step[7]]);
        let words = |size: usize| place % (size as u64 / 4) * 4;
        let target = match step[0] % 5 {
            0 => control::VREGS + words(size_of::<VirtualRegisters>()),
            1 | 2 => {
                control::RINGS
                    + u64::from(step[0] / 5 % 4) * RING_HEADER_STRIDE
                    + words(size_of::<RingHeader>())
            }
            3 => slot_at + words(size_of::<SessionHeader>()),
            _ => {
                slot_at
                    + SESSION_RINGS
                    + u64::from(step[0] / 5 % 3) * RING_STRIDE
                    + words(size_of::<RingHeader>())
            }
        };
        map.write(at(target), &word(step[1], raw).to_le_bytes());
        let most = 3 * RING_BYTES as usize;
        let before = console.bytes();
        let _ = console.step(map);
        assert!(console.bytes() - before <= most as u64, "a step moves no more than the rings hold");
        let _ = console.take_captured();
        match step[1] >> 5 {
            0 => assert!(session.write_input(&[7; 100]) <= 100),
            1 => session.resize(1, 2),
            2 => session.signal(i32::from(step[3]) - 10),
            _ => {}
        }
        let before = session.captured().stdout.len() + session.captured().stderr.len();
        let ended = session.step().end.is_some();
        let got = session.captured().stdout.len() + session.captured().stderr.len() - before;
        assert!(got <= most, "a step moves no more than the rings hold: {got}");
        if ended {
            break;
        }
    }
    drop(session);
    // It leaves the slot, so that the next run has it.
    let left = at(slot_at) + std::mem::offset_of!(SessionHeader, left);
    map.write(left, &1u32.to_le_bytes());
    assert!(slot < SESSIONS);
}
