//! Ways in for fuzz targets (`fuzz/`), which see nothing else that is not public.

use std::sync::LazyLock;

use doppel_abi_machine::session::{SESSION_RINGS, SESSION_STRIDE, SESSIONS, SessionHeader};
use doppel_abi_machine::{
    RING_BYTES, RING_HEADER_STRIDE, RING_STRIDE, RingHeader, VirtualRegisters, control,
};
use doppel_sys::shared;

use crate::Output;
use crate::io::console::Console;
use crate::peer::{self, Peer};
use crate::session::Session;

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
    static PEER: LazyLock<Peer> = LazyLock::new(Peer::new);
    let core = &PEER.core;
    let map = &core.map;
    // Whatever the last run has left there.
    map.write(shared::offset(control::VREGS), &[0; size_of::<VirtualRegisters>()]);
    for index in 0..4 {
        map.write(shared::offset(control::RINGS + index * RING_HEADER_STRIDE), &[0; size_of::<RingHeader>()]);
    }
    let mut console = Console::new(map, true, bytes.len().is_multiple_of(2), Output::Kept);
    let config = peer::exec();
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
        map.write(shared::offset(target), &word(step[1], raw).to_le_bytes());
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
    let left = shared::offset(slot_at) + std::mem::offset_of!(SessionHeader, left);
    map.write(left, &1u32.to_le_bytes());
    assert!(slot < SESSIONS);
}
