//! Tables made by hand, and our own unwind tables.

extern crate std;

use alloc::string::String;
use alloc::vec::Vec;
use std::format;

use crate::cfi::{Common, Entries, RBP, RETURN_ADDRESS, RSP, Row, Rule};
use crate::kernel::{Builder, Table, size};
use crate::object::{Caller, Object, Source};
use crate::{Registers, cfi};

const BASE: u64 = 0x1000_0000;

/// def_cfa rsp+8, return address at cfa-8; version 4 of `.debug_frame`.
const COMMON: &[u8] = &[4, 0, 8, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1];

fn frame(start: u64, len: u64, instructions: &[u8]) -> Vec<u8> {
    [&start.to_le_bytes()[..], &len.to_le_bytes(), instructions].concat()
}

#[test]
fn rows_follow_the_instructions() {
    let common = Common::parse(COMMON, false).unwrap();
    // push rbp; mov rbp, rsp; ...; pop rbp.
    let body =
        frame(0x100, 0x20, &[0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x0a, 0x50, 0x0c, 7, 8, 0x41, 0x0b]);
    let f = common.debug_frame(&body).unwrap();
    let cfa = |pc| common.row(&f, pc).map(|r| (r.cfa, r.registers[RBP]));
    let by = |register, offset| Rule::Value { register, offset };
    assert_eq!(cfa(0x100), Some((by(7, 8), Rule::Same)));
    assert_eq!(cfa(0x101), Some((by(7, 16), Rule::Saved(-16))));
    assert_eq!(cfa(0x104), Some((by(6, 16), Rule::Saved(-16))));
    assert_eq!(cfa(0x114), Some((by(7, 8), Rule::Saved(-16))));
    assert_eq!(cfa(0x115), Some((by(6, 16), Rule::Saved(-16))));
    assert_eq!((cfa(0xff), cfa(0x120)), (None, None));
}

#[test]
fn broken_tables_are_refused() {
    assert!((0..COMMON.len() - 5).all(|n| Common::parse(&COMMON[..n], false).is_none()));
    let common = Common::parse(COMMON, false).unwrap();
    for wrong in [&[0x0b][..], &[0x3f], &[0x0e], &[0x0e, 0x80, 0x80], &[0x0f, 9, 0x77]] {
        let body = frame(0, 8, wrong);
        assert_eq!(common.row(&common.debug_frame(&body).unwrap(), 0), None, "{wrong:x?}");
    }
    let remembered = frame(0, 8, &[0x0a; 100]);
    assert_eq!(common.row(&common.debug_frame(&remembered).unwrap(), 0), None);
    assert_eq!(Entries::new(&[0xff; 64]).count(), 0);
    assert_eq!(Entries::new(&[9, 0, 0, 0, 1]).count(), 0);
}

#[test]
fn expressions_of_signal_frames_are_understood() {
    let common = Common::parse(COMMON, false).unwrap();
    // The address: what lies at rsp+160; rbp: at rsp+120; rbx: something else.
    let body = frame(0, 8, &[0x0f, 4, 0x77, 0xa0, 1, 6, 0x10, 6, 3, 0x77, 0xf8, 0, 0x10, 3, 1, 0x30]);
    let row = common.row(&common.debug_frame(&body).unwrap(), 0).unwrap();
    assert_eq!(row.cfa, Rule::At { register: 7, offset: 160 });
    assert_eq!(
        (row.registers[RBP], row.registers[3]),
        (Rule::At { register: 7, offset: 120 }, Rule::Unknown)
    );
}

fn table() -> Vec<u8> {
    let mut registers = [Rule::Same; cfi::REGISTERS];
    registers[RETURN_ADDRESS] = Rule::Saved(-8);
    let at_rsp = |offset| Row { cfa: Rule::Value { register: RSP as u8, offset }, registers };
    let mut framed = Row { cfa: Rule::Value { register: RBP as u8, offset: 16 }, registers };
    framed.registers[RBP] = Rule::Saved(-16);
    let mut b = Builder::default();
    b.function(0x100, 0x40, "inner");
    b.function(0x200, 0x40, "outer");
    // In any order, and the end of one function is the begin of nothing.
    b.row(0x200, Some(&framed));
    b.row(0x240, None);
    b.row(0x100, Some(&at_rsp(24)));
    b.row(0x140, None);
    b.finish()
}

#[test]
fn a_kernel_stack_is_walked() {
    let bytes = table();
    assert_eq!(size(&bytes), Some(bytes.len()));
    let table = Table::new(&bytes, BASE).unwrap();
    let name = |pc: u64| table.function(pc).map(|f| (f.name, f.offset, f.len));
    assert_eq!(name(BASE + 0x110), Some(("inner", 0x10, 0x40)));
    assert_eq!((name(BASE + 0x140), name(BASE), name(BASE - 1), name(u64::MAX)), (None, None, None, None));

    // inner's frame has three words; outer's pointer is in rbp.
    let stack = [0, 0, BASE + 0x210, 0, 0x5050, 0x7777];
    let mut read = |at: u64| at.checked_sub(0x8000).and_then(|at| stack.get(at as usize / 8).copied());
    let mut r = Registers([0; cfi::REGISTERS]);
    (r.0[RETURN_ADDRESS], r.0[RSP], r.0[RBP]) = (BASE + 0x120, 0x8000, 0x8020);
    let outer = table.caller(&r, &mut read).unwrap();
    assert_eq!((outer.pc(), outer.sp(), outer.0[RBP]), (BASE + 0x210, 0x8018, 0x8020));
    let last = table.caller(&outer, &mut read).unwrap();
    assert_eq!((last.pc(), last.sp(), last.0[RBP]), (0x7777, 0x8030, 0x5050));
    // Behind a function, outside of the kernel, off the stack, and a stack that does not shrink.
    assert_eq!(table.caller(&last, &mut read), None);
    r.0[RETURN_ADDRESS] = BASE + 0x150;
    assert_eq!(table.caller(&r, &mut read), None);
    r.0[RETURN_ADDRESS] = BASE + 0x210;
    assert_eq!(table.caller(&r, &mut |_| None), None);
    r.0[RBP] = 0x10;
    assert_eq!(table.caller(&r, &mut |_| Some(1)), None);
}

#[test]
fn a_cut_kernel_table_is_refused() {
    let bytes = table();
    assert!((0..bytes.len()).all(|n| Table::new(&bytes[..n], BASE).is_none()));
}

/// A file in memory.
struct Bytes(Vec<u8>);

impl Source for Bytes {
    fn read(&self, at: u64, buf: &mut [u8]) -> Option<()> {
        let at = usize::try_from(at).ok()?;
        buf.copy_from_slice(self.0.get(at..at.checked_add(buf.len())?)?);
        Some(())
    }
}

/// The program that runs these tests.
fn myself() -> Bytes {
    Bytes(std::fs::read("/proc/self/exe").unwrap())
}

#[inline(never)]
fn one_of_its_functions() -> u32 {
    std::hint::black_box(7)
}

/// An address of memory as an offset in the program's file.
fn file_offset(address: u64) -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines()
        .find_map(|line| {
            let mut words = line.split_whitespace();
            let (start, end) = words.next()?.split_once('-')?;
            let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
            let offset = u64::from_str_radix(words.nth(1)?, 16).ok()?;
            (start..end).contains(&address).then(|| address - start + offset)
        })
        .unwrap()
}

#[test]
fn functions_of_a_program_are_named_and_left() {
    let file = myself();
    let object = Object::read(&file).unwrap();
    let at = object.address(file_offset(one_of_its_functions as *const () as u64)).unwrap();
    let name = object.function(&file, at).unwrap();
    assert!(name.name.contains("one_of_its_functions") && name.offset == 0, "{name:?}");
    // At its first instruction the return address is on top of the stack.
    let mut r = Registers([0; cfi::REGISTERS]);
    (r.0[RETURN_ADDRESS], r.0[RSP], r.0[RBP]) = (at, 0x1000, 5);
    let caller = object.caller(&file, at, &r, &mut |at| (at == 0x1000).then_some(0x1234));
    let Caller::Found(found, false) = caller else { panic!("{caller:?}") };
    assert_eq!((found.pc(), found.sp(), found.0[RBP]), (0x1234, 0x1008, 5));
    assert_eq!(object.caller(&file, at, &r, &mut |_| None), Caller::End);
    // The same without the sorted table: its program header becomes one of no kind.
    let mut unsorted = Bytes(file.0.clone());
    let kind = 0x6474_e550_u32.to_le_bytes();
    let header = (64..1024).step_by(8).find(|i| unsorted.0[*i..].starts_with(&kind)).unwrap();
    unsorted.0[header..header + 4].fill(0);
    let object_without = Object::read(&unsorted).unwrap();
    assert_eq!(object_without.caller(&unsorted, at, &r, &mut |_| Some(0x1234)), caller);
    assert_eq!(object.caller(&file, 0, &r, &mut |_| None), Caller::NotDescribed);
    assert_eq!(object.function(&file, 0), None);
}

#[test]
fn broken_files_do_no_harm() {
    let good = myself();
    let object = Object::read(&good).unwrap();
    let at = object.address(file_offset(one_of_its_functions as *const () as u64)).unwrap();
    let r = Registers([1 << 20; cfi::REGISTERS]);
    let look = |file: &Bytes| {
        let object = Object::read(file)?;
        let caller = object.caller(file, at, &r, &mut |_| Some(0));
        Some((format!("{caller:?}"), object.function(file, at).map(|n| n.name)))
    };
    let whole: Option<(String, Option<String>)> = look(&good);
    assert!(whole.is_some());
    // Headers with impossible numbers in each place, and files that end early.
    for place in 0..0x400 {
        let mut bad = Bytes(good.0.clone());
        bad.0[place..place + 8].fill(0xff);
        look(&bad);
        bad.0.truncate(place);
        assert!(look(&bad).is_none_or(|(_, name)| name.is_none()), "cut at {place}");
    }
}
