//! The initial stack of a program: strings, argument and environment pointers, auxiliary vector.

use alloc::vec::Vec;

use doppel_machine::user::UserPtr;

use crate::memory::random_u64;
use crate::{Errno, Result};

/// A list of strings as one block, each with its NUL.
#[derive(Default)]
pub struct Strings {
    /// The strings.
    pub bytes: Vec<u8>,
    /// How many.
    pub count: usize,
}

impl Strings {
    /// Adds a string without its NUL.
    pub fn push(&mut self, s: &[u8]) {
        self.bytes.extend_from_slice(s);
        self.bytes.push(0);
        self.count += 1;
    }

    /// Adds the strings of `other` except the first `skip`.
    pub fn extend(&mut self, other: &Self, skip: usize) {
        let mut at = 0;
        for _ in 0..skip.min(other.count) {
            at += other.bytes[at..].iter().position(|&b| b == 0).map_or(0, |n| n + 1);
        }
        self.bytes.extend_from_slice(&other.bytes[at..]);
        self.count += other.count.saturating_sub(skip);
    }

    /// Bytes they take on the stack, pointers included.
    pub fn size(&self) -> usize {
        self.bytes.len() + self.count * 8
    }

    /// Appends the address of every string, the block lying at `at`.
    fn pointers(&self, at: u64, words: &mut Vec<u64>) {
        let mut start = 0;
        for (i, &b) in self.bytes.iter().enumerate() {
            if b == 0 {
                words.push(at + start as u64);
                start = i + 1;
            }
        }
        words.push(0);
    }
}

/// The parts of the auxiliary vector that differ between programs.
pub struct Auxv {
    /// AT_SYSINFO_EHDR.
    pub vdso: u64,
    /// AT_PHDR.
    pub phdr: u64,
    /// AT_PHNUM.
    pub phnum: u64,
    /// AT_BASE.
    pub base: u64,
    /// AT_ENTRY.
    pub entry: u64,
    /// AT_UID, AT_EUID, AT_GID, AT_EGID.
    pub ids: [u32; 4],
    /// AT_SECURE.
    pub secure: bool,
}

/// The finished stack.
pub struct Built {
    /// Stack pointer.
    pub sp: u64,
    /// Start and end of the argument strings.
    pub args: (u64, u64),
    /// Start and end of the environment strings.
    pub env: (u64, u64),
    /// The auxiliary vector, raw.
    pub auxv: Vec<u8>,
}

const PLATFORM: &[u8] = b"x86_64\0";

/// AT_HWCAP2: bit 1 says that wrfsbase and its like work.
const HWCAP2_FSGSBASE: u64 = 2;
/// Room a signal frame needs beside the extended state: frame, red zone and alignment.
const SIGFRAME: u64 = 928;

/// Writes the stack of a new program below `top` of the current space.
pub fn build(top: u64, argv: &Strings, envp: &Strings, name: &[u8], a: &Auxv) -> Result<Built> {
    // From the top: 8 zero bytes, the program's name, environment, arguments, platform, 16 random bytes.
    let name_at = top - 8 - (name.len() as u64 + 1);
    let env_at = name_at - envp.bytes.len() as u64;
    let arg_at = env_at - argv.bytes.len() as u64;
    let platform_at = arg_at - PLATFORM.len() as u64;
    let random_at = (platform_at - 16) & !15;

    let mut block = Vec::with_capacity((top - random_at) as usize);
    block.extend_from_slice(&random_u64().to_le_bytes());
    block.extend_from_slice(&random_u64().to_le_bytes());
    block.resize((platform_at - random_at) as usize, 0);
    block.extend_from_slice(PLATFORM);
    block.extend_from_slice(&argv.bytes);
    block.extend_from_slice(&envp.bytes);
    block.extend_from_slice(name);
    block.resize((top - random_at) as usize, 0);
    write(random_at, &block)?;
    drop(block);

    let auxv = [
        (33, a.vdso),                                                // AT_SYSINFO_EHDR
        (51, doppel_machine::xstate::used_size() as u64 + SIGFRAME), // AT_MINSIGSTKSZ
        (16, doppel_machine::xstate::hwcap()),
        (6, 4096),    // AT_PAGESZ
        (17, 100),    // AT_CLKTCK
        (3, a.phdr),  // AT_PHDR
        (4, 56),      // AT_PHENT
        (5, a.phnum), // AT_PHNUM
        (7, a.base),  // AT_BASE
        (8, 0),       // AT_FLAGS
        (9, a.entry), // AT_ENTRY
        (11, u64::from(a.ids[0])),
        (12, u64::from(a.ids[1])),
        (13, u64::from(a.ids[2])),
        (14, u64::from(a.ids[3])),
        (23, u64::from(a.secure)),
        (25, random_at), // AT_RANDOM
        (26, HWCAP2_FSGSBASE),
        (31, name_at), // AT_EXECFN
        (15, platform_at),
        (0, 0),
    ];
    let mut words = Vec::with_capacity(4 + argv.count + envp.count + auxv.len() * 2);
    words.push(argv.count as u64);
    argv.pointers(arg_at, &mut words);
    envp.pointers(env_at, &mut words);
    let vector = words.len();
    words.extend(auxv.iter().flat_map(|&(k, v)| [k, v]));
    let sp = (random_at - words.len() as u64 * 8) & !15;
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
    write(sp, &bytes)?;
    Ok(Built {
        sp,
        args: (arg_at, arg_at + argv.bytes.len() as u64),
        env: (env_at, env_at + envp.bytes.len() as u64),
        auxv: bytes[vector * 8..].to_vec(),
    })
}

fn write(at: u64, bytes: &[u8]) -> Result<()> {
    UserPtr(at).write_bytes(bytes).map_err(|_| Errno::EFAULT)
}
