//! Terminal settings as programs see them: `struct termios`, `termios2`, `termio`, `winsize`.

use doppel_abi_linux::termios::{B38400, BOTHER, CBAUD, CREAD, CS8, CSIZE, IBSHIFT, NCCS, PARENB};
use doppel_algo::ldisc::Termios;
use doppel_machine::pod_struct;
use doppel_machine::user::UserPtr;

use crate::Result;

pod_struct! {
    /// Size of a terminal's window.
    pub struct Winsize {
        /// Rows of characters.
        pub rows: u16,
        /// Columns of characters.
        pub columns: u16,
        /// Width in pixels.
        pub x: u16,
        /// Height in pixels.
        pub y: u16,
    }
}

impl Winsize {
    /// From the machine interface's form: rows << 16 | columns.
    pub(super) fn from_register(w: u32) -> Self {
        Self { rows: (w >> 16) as u16, columns: w as u16, x: 0, y: 0 }
    }

    pub(super) fn same(&self, o: &Self) -> bool {
        (self.rows, self.columns, self.x, self.y) == (o.rows, o.columns, o.x, o.y)
    }
}

/// The three layouts of terminal settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// `struct termios` of the kernel: 36 bytes.
    Termios,
    /// `struct termios2`: with speeds, 44 bytes.
    Termios2,
    /// `struct termio` of System V: 18 bytes.
    Termio,
}

/// Speeds of B0 to B38400, then of BOTHER + 1 on.
const SPEEDS: [u32; 16] =
    [0, 50, 75, 110, 134, 150, 200, 300, 600, 1200, 1800, 2400, 4800, 9600, 19200, 38400];
const HIGH_SPEEDS: [u32; 15] = [
    57_600, 115_200, 230_400, 460_800, 500_000, 576_000, 921_600, 1_000_000, 1_152_000, 1_500_000, 2_000_000,
    2_500_000, 3_000_000, 3_500_000, 4_000_000,
];

/// The speed that CBAUD bits mean; `None` for BOTHER.
fn speed(bits: u32) -> Option<u32> {
    if bits & BOTHER == 0 {
        return Some(SPEEDS[(bits & B38400) as usize]);
    }
    match bits & B38400 {
        0 => None,
        n => Some(HIGH_SPEEDS[n as usize - 1]),
    }
}

/// Length of `struct termios`.
const LEN: usize = 17 + NCCS;

impl Layout {
    /// Copies settings to a program.
    pub(super) fn write(self, at: UserPtr, t: &Termios) -> Result<()> {
        if self == Self::Termio {
            let mut b = [0u8; 18];
            for (i, v) in [t.iflag, t.oflag, t.cflag, t.lflag].iter().enumerate() {
                b[2 * i..2 * i + 2].copy_from_slice(&(*v as u16).to_le_bytes());
            }
            b[8] = t.line;
            b[9..17].copy_from_slice(&t.cc[..8]);
            return Ok(at.write_bytes(&b)?);
        }
        let mut b = [0u8; LEN + 8];
        for (i, v) in [t.iflag, t.oflag, t.cflag, t.lflag].iter().enumerate() {
            b[4 * i..4 * i + 4].copy_from_slice(&v.to_le_bytes());
        }
        b[16] = t.line;
        b[17..LEN].copy_from_slice(&t.cc);
        b[LEN..LEN + 4].copy_from_slice(&t.ispeed.to_le_bytes());
        b[LEN + 4..].copy_from_slice(&t.ospeed.to_le_bytes());
        Ok(at.write_bytes(if self == Self::Termios2 { &b } else { &b[..LEN] })?)
    }

    /// Copies what is locked of settings from a program: bits, whatever they would mean.
    pub(super) fn read_bits(at: UserPtr) -> Result<Termios> {
        let mut b = [0u8; LEN];
        at.read_bytes(&mut b)?;
        let word = |i: usize| u32::from_le_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
        let mut t =
            Termios { iflag: word(0), oflag: word(4), cflag: word(8), lflag: word(12), ..Termios::NONE };
        t.line = b[16];
        t.cc.copy_from_slice(&b[17..]);
        Ok(t)
    }

    /// Copies settings from a program; what the layout does not have stays as in `old`.
    pub(super) fn read(self, at: UserPtr, old: &Termios) -> Result<Termios> {
        let mut t = *old;
        if self == Self::Termio {
            let mut b = [0u8; 17];
            at.read_bytes(&mut b)?;
            let half = |i: usize| u32::from(u16::from_le_bytes([b[2 * i], b[2 * i + 1]]));
            let keep = |old: u32, new: u32| old & 0xffff_0000 | new;
            t.iflag = keep(t.iflag, half(0));
            t.oflag = keep(t.oflag, half(1));
            t.cflag = keep(t.cflag, half(2));
            t.lflag = keep(t.lflag, half(3));
            t.line = b[8];
            t.cc[..8].copy_from_slice(&b[9..17]);
        } else {
            let mut b = [0u8; LEN + 8];
            at.read_bytes(if self == Self::Termios2 { &mut b } else { &mut b[..LEN] })?;
            let word = |i: usize| u32::from_le_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
            (t.iflag, t.oflag, t.cflag, t.lflag) = (word(0), word(4), word(8), word(12));
            t.line = b[16];
            t.cc.copy_from_slice(&b[17..LEN]);
            if self == Self::Termios2 {
                (t.ispeed, t.ospeed) = (word(LEN), word(LEN + 4));
            }
        }
        if let Some(s) = speed(t.cflag & CBAUD) {
            t.ospeed = s;
        }
        match t.cflag >> IBSHIFT & CBAUD {
            0 => t.ispeed = t.ospeed,
            bits => t.ispeed = speed(bits).unwrap_or(t.ispeed),
        }
        // Always 8 bits without parity: there is no line.
        t.cflag = t.cflag & !(CSIZE | PARENB) | CS8 | CREAD;
        // There is one line discipline.
        t.line = 0;
        Ok(t)
    }
}
