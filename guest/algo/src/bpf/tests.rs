use super::*;
use alloc::vec;

fn i(code: u16, jt: u8, jf: u8, k: u32) -> Insn {
    Insn { code, jt, jf, k }
}

#[test]
fn errno_for_one_number() {
    let p = Program::check(vec![i(0x20, 0, 0, 0), i(0x15, 0, 1, 39), i(6, 0, 0, 7), i(6, 0, 0, 1)]);
    let p = p.expect("a good program");
    let mut data = [0; 16];
    assert_eq!(p.run(&data), 1);
    data[0] = 39;
    assert_eq!(p.run(&data), 7);
}

#[test]
fn refuses_what_could_run_away() {
    for bad in [
        vec![],
        vec![i(0x20, 0, 0, 0)],
        vec![i(0x05, 0, 0, 1), i(6, 0, 0, 0)],
        vec![i(0x05, 0, 0, u32::MAX), i(6, 0, 0, 0)],
        vec![i(0x15, 9, 0, 0), i(6, 0, 0, 0)],
        vec![i(0x20, 0, 0, 64), i(6, 0, 0, 0)],
        vec![i(0x20, 0, 0, u32::MAX), i(6, 0, 0, 0)],
        vec![i(0x02, 0, 0, 16), i(6, 0, 0, 0)],
        vec![i(0x28, 0, 0, 0), i(6, 0, 0, 0)],
        vec![i(0x94, 0, 0, 2), i(6, 0, 0, 0)], // modulo: not for seccomp
        vec![i(0x55, 0, 0, 0), i(6, 0, 0, 0)],
    ] {
        assert!(Program::check(bad.clone()).is_none(), "{bad:?}");
    }
    assert!(Program::check(vec![i(6, 0, 0, 0); MAX_INSNS + 1]).is_none());
}

#[test]
fn a_cell_must_be_written_on_every_way() {
    // One branch stores, the other does not.
    let p = vec![i(0x15, 0, 1, 0), i(0x02, 0, 0, 0), i(0x60, 0, 0, 0), i(0x16, 0, 0, 0)];
    assert!(Program::check(p).is_none());
    let p = vec![i(0x02, 0, 0, 0), i(0x15, 0, 0, 0), i(0x60, 0, 0, 0), i(0x16, 0, 0, 0)];
    assert!(Program::check(p).is_some());
}

#[test]
fn arithmetic_wraps_and_division_by_zero_ends() {
    let run = |code: u16, a: u32, x: u32| {
        let p = vec![i(0, 0, 0, a), i(1, 0, 0, x), i(code, 0, 0, 0), i(0x16, 0, 0, 0)];
        Program::check(p).expect("a good program").run(&[0; 16])
    };
    assert_eq!(run(0x0c, u32::MAX, 2), 1);
    assert_eq!(run(0x1c, 1, 2), u32::MAX);
    assert_eq!(run(0x3c, 9, 0), 0);
    assert_eq!(run(0x3c, 9, 2), 4);
    assert_eq!(run(0x6c, 1, 33), 2);
    assert_eq!(run(0xac, 6, 3), 5);
}

fn packet(bytes: &[u8], start: usize) -> Packet<'_> {
    let kind = Kind { protocol: 0x800, interface: 1, hardware: 772, mark: 5, cpu: 2, random: 9 };
    Packet { bytes, start, kind }
}

fn over(p: Vec<Insn>, bytes: &[u8], start: usize) -> u32 {
    Program::check_socket(p).expect("a good program").run(&packet(bytes, start))
}

#[test]
fn loads_from_packets() {
    let b = [0x45, 1, 2, 3, 0x81, 0x82, 0x83, 0x84, 0x85];
    let load = |code, k| over(vec![i(code, 0, 0, k), i(0x16, 0, 0, 0)], &b, 4);
    assert_eq!(load(0x20, 0), 0x8182_8384);
    assert_eq!(load(0x28, 3), 0x8485);
    assert_eq!(load(0x30, 4), 0x85);
    // Beyond the end, and before the beginning.
    for (code, k) in [(0x20, 2), (0x28, 4), (0x30, 5), (0x20, u32::MAX - 0x2000), (0x20, 0x7fff_ffff)] {
        assert_eq!(load(code, k), 0, "{code:x} {k:x}");
    }
    // The header of the network.
    assert_eq!(load(0x30, 0xfff0_0000), 0x45);
    assert_eq!(load(0x20, 0xfff0_0001), 0x0102_0381);
    assert_eq!(load(0x80, 0), 5);
    // With X, which may point backwards.
    let at = |x, code, k| over(vec![i(1, 0, 0, x), i(code, 0, 0, k), i(0x16, 0, 0, 0)], &b, 4);
    assert_eq!(at(2, 0x50, 1), 0x84);
    assert_eq!(at(u32::MAX, 0x50, 2), 0x82);
    assert_eq!(at(u32::MAX, 0x50, 0xfff0_0001), 0x45);
    assert_eq!(over(vec![i(0xb1, 0, 0, 0xfff0_0000), i(0x87, 0, 0, 0), i(0x16, 0, 0, 0)], &b, 4), 20);
}

#[test]
fn extensions() {
    let ask = |n: u32| over(vec![i(1, 0, 0, 3), i(0x20, 0, 0, 0xffff_f000 + n), i(0x16, 0, 0, 0)], &[1], 0);
    assert_eq!([0, 4, 8, 20, 28, 36, 40, 44, 56].map(ask), [0x800, 0, 1, 5, 772, 2, 3, 0, 9]);
    for bad in [1, 64, 0xfff] {
        assert!(Program::check_socket(vec![i(0x20, 0, 0, 0xffff_f000 + bad), i(6, 0, 0, 0)]).is_none());
    }
    // Without an interface the program ends with what it has.
    let p = Program::check_socket(vec![i(0, 0, 0, 77), i(0x20, 0, 0, 0xffff_f008), i(6, 0, 0, 1)]);
    let none = Packet { bytes: &[], start: 0, kind: Kind::default() };
    assert_eq!(p.expect("a good program").run(&none), 77);
}

#[test]
fn what_sockets_may_and_seccomp_may_not() {
    for (good, code, k) in [
        (true, 0x94, 2),
        (false, 0x94, 0),
        (true, 0x9c, 0),
        (true, 0x28, 1),
        (true, 0xb1, 0),
        (true, 0x40, 9),
    ] {
        let p = || vec![i(code, 0, 0, k), i(6, 0, 0, 0)];
        assert_eq!(Program::check_socket(p()).is_some(), good, "{code:x}");
        assert!(Program::check(p()).is_none(), "{code:x}");
    }
    for bad in [0x8c, 0xa1, 0x68, 0x10, 0x0e, 0x120, 0xb0, 0x91, 0xa5, 0xffff] {
        assert!(Program::check_socket(vec![i(bad, 0, 0, 1), i(6, 0, 0, 0)]).is_none(), "{bad:x}");
    }
    assert_eq!(over(vec![i(0, 0, 0, 9), i(0x94, 0, 0, 4), i(0x16, 0, 0, 0)], &[], 0), 1);
    assert_eq!(over(vec![i(0, 0, 0, 9), i(0x9c, 0, 0, 0), i(6, 0, 0, 7)], &[], 0), 0);
}

/// Whatever the check accepts runs to an end without a panic; what it refuses would not need to.
#[test]
fn nothing_that_passes_runs_away() {
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = move || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    const CODES: [u16; 24] = [
        0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x80, 0x00, 0x60, 0x81, 0x01, 0x61, 0xb1, 0x02, 0x03, 0x04, 0x1c,
        0x3c, 0x9c, 0x05, 0x15, 0x2d, 0x87, 0x07,
    ];
    let (mut socket, mut seccomp) = (0, 0);
    for _ in 0..200_000 {
        let len = 1 + next() as usize % 8;
        let mut p: Vec<Insn> = (0..len)
            .map(|_| {
                let r = next();
                let code = if r & 15 == 0 { (r >> 8) as u16 } else { CODES[(r >> 8) as usize % CODES.len()] };
                let k = match r >> 32 & 7 {
                    0 => next() as u32,
                    1 => 0xffff_f000 | next() as u32,
                    2 => 0xfff0_0000 | next() as u32 & 63,
                    _ => next() as u32 & 15,
                };
                i(code, next() as u8 & 3, next() as u8 & 3, k)
            })
            .collect();
        p.push(i(if next() & 1 == 0 { 6 } else { 0x16 }, 0, 0, next() as u32));
        let bytes = next().to_le_bytes();
        if let Some(p) = Program::check_socket(p.clone()) {
            p.run(&packet(&bytes, next() as usize % 9));
            socket += 1;
        }
        if let Some(p) = Program::check(p) {
            p.run(&[next() as u32; 16]);
            seccomp += 1;
        }
    }
    assert!(socket > 1000 && seccomp > 100, "{socket} {seccomp}");
}
