//! Real and hostile headers.

use super::*;
use alloc::vec;
use proptest::prelude::*;

const TOP: u64 = 0x7e80_0000_0000;

fn header(phnum: u16) -> Vec<u8> {
    let mut h = vec![0u8; HEADER_SIZE];
    h[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
    h[16] = 3;
    h[18] = 62;
    h[32] = 64;
    h[54] = 56;
    h[56..58].copy_from_slice(&phnum.to_le_bytes());
    h
}

fn phdr(kind: u32, flags: u32, offset: u64, vaddr: u64, filesz: u64, memsz: u64) -> Vec<u8> {
    let mut p = Vec::new();
    p.extend(kind.to_le_bytes());
    p.extend(flags.to_le_bytes());
    for v in [offset, vaddr, vaddr, filesz, memsz, 4096] {
        p.extend(v.to_le_bytes());
    }
    p
}

#[test]
fn a_plain_program() {
    let h = Header::parse(&header(2)).unwrap();
    let mut ph = phdr(PT_LOAD, 5, 0, 0, 0x1234, 0x1234);
    ph.extend(phdr(PT_LOAD, 6, 0x1300, 0x3300, 0x10, 0x2000));
    let p = Program::parse(h, &ph, TOP).unwrap();
    assert_eq!(p.span, (0, 0x6000));
    assert_eq!(p.segments[0].prot, 5);
    assert_eq!(p.segments[1].prot, 3);
    assert_eq!(p.phdr, Some(64));
    assert!(!p.exec_stack);
}

#[test]
fn refuses_what_cannot_be_mapped() {
    let h = Header::parse(&header(1)).unwrap();
    for bad in [
        phdr(PT_LOAD, 5, 1, 0, 10, 10),
        phdr(PT_LOAD, 5, 0, 0, 11, 10),
        phdr(PT_LOAD, 5, 0, u64::MAX - 4095, 10, 10),
        phdr(PT_LOAD, 5, 0, 0, 10, u64::MAX),
        phdr(PT_LOAD, 5, u64::MAX - 4095, 0, 5000, 5000),
        phdr(PT_LOAD, 5, 0, TOP - 4096, 10, 10),
        phdr(9, 5, 0, 0, 10, 10),
    ] {
        assert_eq!(Program::parse(h, &bad, TOP), Err(BadElf));
    }
    for (at, byte) in [(0, 0), (4, 1), (5, 2), (16, 1), (18, 3), (54, 57), (56, 0)] {
        let mut b = header(1);
        b[at] = byte;
        assert_eq!(Header::parse(&b), Err(BadElf));
    }
    assert_eq!(Header::parse(&header(1)[..63]), Err(BadElf));
    assert_eq!(Header::parse(&header(u16::MAX)), Err(BadElf));
}

#[test]
fn scripts() {
    assert_eq!(script(b"\x7fELF"), None);
    assert_eq!(script(b"#!/bin/sh\n"), Some(Ok((&b"/bin/sh"[..], None))));
    assert_eq!(script(b"#! /bin/sh -e  x \nfoo"), Some(Ok((&b"/bin/sh"[..], Some(&b"-e  x"[..])))));
    assert_eq!(script(b"#!\t/bin/sh"), Some(Ok((&b"/bin/sh"[..], None))));
    assert_eq!(script(b"#!  \n"), Some(Err(BadElf)));
    assert_eq!(script(b"#!"), Some(Err(BadElf)));
    let mut long = b"#!".to_vec();
    long.resize(SCRIPT_MAX, b'x');
    assert_eq!(script(&long), Some(Err(BadElf)));
}

proptest! {
    #[test]
    fn never_panics(mut h in proptest::collection::vec(any::<u8>(), 64..70), ph in proptest::collection::vec(any::<u8>(), 0..300), keep in any::<bool>()) {
        if keep {
            h[..64].copy_from_slice(&header(4));
        }
        if let Ok(header) = Header::parse(&h) {
            let _ = Program::parse(header, &ph, TOP);
        }
        let _ = script(&h);
    }

    #[test]
    fn fields_mutated(kind in 0u32..8, flags in any::<u32>(), o in any::<u64>(), v in any::<u64>(), f in any::<u64>(), m in any::<u64>()) {
        let h = Header::parse(&header(1)).unwrap();
        if let Ok(p) = Program::parse(h, &phdr(kind, flags, o, v, f, m), TOP) {
            prop_assert!(p.span.0 < p.span.1 && p.span.1 <= TOP);
        }
    }
}
