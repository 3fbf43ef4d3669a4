//! Call frames: what unwind tables say about a stack, and the table of the guest kernel's functions.
//!
//! Key types: [`cfi::Common`] and [`cfi::Row`] (call frame information of DWARF 5 and `.eh_frame`), [`kernel::Table`]
//! (names and frames of the guest kernel, made from its ELF by the host and read by the guest), [`Registers`].
//! Boundary: no I/O. Tables of programs are hostile: work is bounded by their length, a bad one gives `None`.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod cfi;
pub mod kernel;
pub mod object;
mod reader;
#[cfg(test)]
mod tests;

/// Registers that calls preserve, and where the code is; by DWARF's numbers of x86-64 (rsp 7, return address 16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers(pub [u64; cfi::REGISTERS]);

impl Registers {
    /// The program counter.
    #[must_use]
    pub fn pc(&self) -> u64 {
        self.0[cfi::RETURN_ADDRESS]
    }

    /// The stack pointer.
    #[must_use]
    pub fn sp(&self) -> u64 {
        self.0[cfi::RSP]
    }

    /// The registers of the caller, as `row` says; `read` reads eight bytes of memory. `None` at the outermost frame,
    /// where the table does not know, and if the stack would not shrink.
    pub fn caller(&self, row: &cfi::Row, read: &mut dyn FnMut(u64) -> Option<u64>) -> Option<Self> {
        let cfa = match row.cfa {
            cfi::Rule::Value { register, offset } => self.value(register, offset)?,
            cfi::Rule::At { register, offset } => read(self.value(register, offset)?)?,
            _ => return None,
        };
        if cfa <= self.sp() {
            return None;
        }
        let mut caller = *self;
        for (register, rule) in row.registers.iter().enumerate() {
            caller.0[register] = match *rule {
                cfi::Rule::Same => self.0[register],
                cfi::Rule::Saved(offset) => read(cfa.wrapping_add_signed(offset))?,
                cfi::Rule::At { register, offset } => read(self.value(register, offset)?)?,
                cfi::Rule::Value { register, offset } => self.value(register, offset)?,
                cfi::Rule::Unknown if register == cfi::RETURN_ADDRESS => return None,
                cfi::Rule::Unknown => 0,
            };
        }
        if row.registers[cfi::RSP] == cfi::Rule::Same {
            caller.0[cfi::RSP] = cfa;
        }
        Some(caller)
    }

    fn value(&self, register: u8, offset: i64) -> Option<u64> {
        self.0.get(usize::from(register)).map(|v| v.wrapping_add_signed(offset))
    }
}
