//! The image read back the way C libraries read it.

use super::*;

fn rd(b: &[u8], at: usize, n: usize) -> u64 {
    b[at..at + n].iter().rev().fold(0, |v, &x| v << 8 | u64::from(x))
}

fn dynamic(b: &[u8], tag: u64) -> usize {
    let at = rd(b, 64 + 56 + 8, 8) as usize;
    (0..).map(|i| at + i * 16).find(|&e| rd(b, e, 8) == tag).map(|e| rd(b, e + 8, 8) as usize).unwrap()
}

fn name(b: &[u8], at: usize) -> &str {
    let s = dynamic(b, 5) + at;
    core::str::from_utf8(&b[s..s + b[s..].iter().position(|&c| c == 0).unwrap()]).unwrap()
}

#[test]
fn symbols_and_versions() {
    let code = [0xc3u8; 40];
    let f = [
        Function { name: "__vdso_clock_gettime", offset: 0, size: 16 },
        Function { name: "__vdso_time", offset: 16, size: 24 },
    ];
    let (b, at) = build(&code, &f);
    assert_eq!(&b[at..], &code);
    assert_eq!(elf_hash("LINUX_2.6"), 0x3ae75f6);
    let (hash, sym) = (dynamic(&b, 4), dynamic(&b, 6));
    assert_eq!(rd(&b, hash + 4, 4), 3);
    let mut i = rd(&b, hash + 8, 4) as usize;
    let mut seen = Vec::new();
    while i != 0 {
        let s = sym + i * 24;
        seen.push((name(&b, rd(&b, s, 4) as usize), rd(&b, s + 8, 8) as usize - at));
        assert_eq!(rd(&b, dynamic(&b, 0x6fff_fff0) + 2 * i, 2), 2);
        i = rd(&b, hash + 12 + 4 * i, 4) as usize;
    }
    assert_eq!(seen, [("__vdso_time", 16), ("__vdso_clock_gettime", 0)]);
    let def = dynamic(&b, 0x6fff_fffc) + 28;
    assert_eq!(rd(&b, def + 4, 2), 2);
    assert_eq!(rd(&b, def + 8, 4), 0x3ae75f6);
    assert_eq!(name(&b, rd(&b, def + 20, 4) as usize), "LINUX_2.6");
    assert_eq!(rd(&b, 64 + 32, 8) as usize, b.len());
}

#[test]
fn fits_in_a_page() {
    let (b, _) = build(&[0x90; 1024], &[Function { name: "f", offset: 0, size: 1024 }; 5]);
    assert!(b.len() < 4096);
}
