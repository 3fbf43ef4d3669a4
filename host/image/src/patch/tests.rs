//! Crafted programs: what is patched, and what only looks as if it should be.
use doppel_abi_image::patch::SLOT;
use proptest::prelude::*;

use super::*;

/// Address the segment of a crafted program has.
const BASE: u64 = 0x40_0000;
/// Where its code starts in the file.
const TEXT: usize = 0x1000;

/// An ELF program with this code, whose first function is the entry point. `functions` are symbols.
fn program(code: &[u8], functions: &[(u64, u64)]) -> Vec<u8> {
    program_of(2, BASE, 5, code, functions)
}

fn program_of(kind: u16, base: u64, flags: u32, code: &[u8], functions: &[(u64, u64)]) -> Vec<u8> {
    let text = base + TEXT as u64;
    let mut strings = b"\0.text\0.symtab\0.strtab\0".to_vec();
    strings.resize(strings.len().next_multiple_of(8), 0);
    let mut symbols = vec![0; 24];
    for (start, len) in functions {
        symbols.extend([0, 0, 0, 0, 2, 0, 1, 0]);
        symbols.extend((text + start).to_le_bytes());
        symbols.extend(len.to_le_bytes());
    }
    let strings_at = TEXT + code.len().next_multiple_of(8);
    let symbols_at = strings_at + strings.len();
    let sections_at = symbols_at + symbols.len();
    let mut f = b"\x7fELF\x02\x01\x01".to_vec();
    f.resize(16, 0);
    let half = |f: &mut Vec<u8>, v: u16| f.extend(v.to_le_bytes());
    let word = |f: &mut Vec<u8>, v: u32| f.extend(v.to_le_bytes());
    let long = |f: &mut Vec<u8>, v: u64| f.extend(v.to_le_bytes());
    half(&mut f, kind);
    half(&mut f, 62);
    word(&mut f, 1);
    long(&mut f, text);
    long(&mut f, 64);
    long(&mut f, sections_at as u64);
    word(&mut f, 0);
    [64, 56, 1, 64, 4, 3].into_iter().for_each(|v| half(&mut f, v));
    word(&mut f, 1);
    word(&mut f, flags);
    let size = (TEXT + code.len()) as u64;
    [0, base, base, size, size, 0x1000].into_iter().for_each(|v| long(&mut f, v));
    f.resize(TEXT, 0);
    f.extend(code);
    f.resize(strings_at, 0);
    f.extend(&strings);
    f.extend(&symbols);
    f.resize(sections_at + 64, 0);
    let sections = [
        (1, 1, 6, text, TEXT, code.len(), 0, 0),
        (7, 2, 0, 0, symbols_at, symbols.len(), 3, 24),
        (15, 3, 0, 0, strings_at, strings.len(), 0, 0),
    ];
    for (name, kind, flags, address, offset, len, link, entry) in sections {
        word(&mut f, name);
        word(&mut f, kind);
        [flags, address, offset as u64, len as u64].into_iter().for_each(|v| long(&mut f, v));
        word(&mut f, link);
        word(&mut f, 1);
        long(&mut f, 1);
        long(&mut f, entry);
    }
    f
}

/// A program with one site of each rule.
pub(crate) fn sample() -> Vec<u8> {
    let (mut code, mut functions) = rule_b(&[0xcc; 5]);
    code.splice(10.., [0xb8, 39, 0, 0, 0, 0x0f, 0x05, RET]);
    functions[1].1 = 8;
    program(&code, &functions)
}

/// Scans, and checks what was patched against the original.
fn scanned(file: &[u8]) -> Scan {
    let s = scan(file).expect("is a program");
    if let Some(p) = &s.patched {
        let mut original = file[p.segment as usize..file.len().min(p.text.len())].to_vec();
        original.resize(p.text.len(), 0);
        assert_eq!(check(&original, &p.text, &p.trampolines, p.distance), Ok((p.rule_a, p.rule_b)));
    }
    s
}

/// Sites by rule a, by rule b, and reasons of the others.
fn outcome(code: &[u8], functions: &[(u64, u64)]) -> (u32, u32, Vec<Reason>) {
    let s = scanned(&program(code, functions));
    let (a, b) = s.patched.map_or((0, 0), |p| (p.rule_a, p.rule_b));
    (a, b, s.trapped.into_iter().map(|t| t.1).collect())
}

const RET: u8 = 0xc3;

#[test]
fn rule_a_as_the_contract_says() {
    // mov eax, 39; syscall; ret
    let code = [0xb8, 39, 0, 0, 0, 0x0f, 0x05, RET];
    let p = scanned(&program(&code, &[(0, 8)])).patched.unwrap();
    assert_eq!((p.segment, p.text.len(), p.distance), (0, 0x2000, 0x1000));
    let slot = &p.trampolines[..SLOT as usize];
    assert_eq!(slot[..5], code[..5]);
    // From slot + 12 to the byte after the site: distance + TEXT + 7.
    assert_eq!(slot[5..12], [0x48, 0x8d, 0x0d, 0xfb, 0x1f, 0, 0]);
    assert_eq!(slot[12..20], [0x65, 0xff, 0x24, 0x25, 48, 0, 0, 0]);
    assert!(p.trampolines[20..].iter().all(|b| *b == 0xcc));
    // From distance + TEXT + 5 back to 0; the syscall stays, for those who jump to it.
    assert_eq!(p.text[TEXT..TEXT + 8], [0xe9, 0xfb, 0xdf, 0xff, 0xff, 0x0f, 0x05, RET]);
}

#[test]
fn wide_moves_are_rule_a_too() {
    // mov rax, 39; syscall; ret
    let code = [0x48, 0xc7, 0xc0, 39, 0, 0, 0, 0x0f, 0x05, RET];
    let p = scanned(&program(&code, &[(0, 10)])).patched.unwrap();
    assert_eq!((p.rule_a, p.rule_b), (1, 0));
    // The trampoline has the short form, and returns behind the syscall: distance + TEXT + 9 from slot + 12.
    assert_eq!(p.trampolines[..5], [0xb8, 39, 0, 0, 0]);
    assert_eq!(p.trampolines[5..12], [0x48, 0x8d, 0x0d, 0xfd, 0x1f, 0, 0]);
    // The end of the operand and the syscall stay.
    assert_eq!(p.text[TEXT..TEXT + 10], [0xe9, 0xfb, 0xdf, 0xff, 0xff, 0, 0, 0x0f, 0x05, RET]);
    // mov rax, -1 is another number in eax.
    let code = [0x48, 0xc7, 0xc0, 0xff, 0xff, 0xff, 0xff, 0x0f, 0x05, RET];
    assert_eq!(outcome(&code, &[(0, 10)]), (0, 0, vec![Reason::NoHole]));
    // A branch into the operand that stays: two readings.
    let code = [0x74, 5, 0x48, 0xc7, 0xc0, 39, 0, 0x90, 0x90, 0x0f, 0x05, RET];
    assert_eq!(outcome(&code, &[(0, 12)]), (0, 0, vec![Reason::Ambiguous]));
}

/// A program with `mov rax, 15; syscall`, and an unwind table for it, with this augmentation and start.
fn signal_return(augmentation: &[u8], start: i64) -> Vec<u8> {
    // The byte before makes another instruction of it.
    let code = [RET, 0, 0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05, RET];
    let mut file = program(&code, &[(0, 1), (2, 10)]);
    // Found through PT_GNU_EH_FRAME: a version, an encoding, and the table's address relative to the third field.
    let table = file.len().next_multiple_of(8);
    file.resize(table, 0);
    file.extend([1, 0x1b, 0, 0, 4, 0, 0, 0]);
    // The common entry: id 0, version 1, augmentation, alignments 1 and -8, return address 16, its data: encoding.
    let mut cie = vec![0, 0, 0, 0, 1];
    cie.extend(augmentation);
    cie.extend([0, 1, 0x78, 16, 1, 0x1b]);
    cie.resize(cie.len().next_multiple_of(4), 0);
    file.extend((cie.len() as u32).to_le_bytes());
    file.extend(&cie);
    // The function: distance to the common entry, start relative to the field, length, no data.
    file.extend(16u32.to_le_bytes());
    file.extend((cie.len() as u32 + 8).to_le_bytes());
    let here = BASE as i64 + file.len() as i64;
    file.extend(((BASE as i64 + TEXT as i64 + start - here) as i32).to_le_bytes());
    file.extend([10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    // A second program header behind the first, and a segment that reaches to the end.
    let size = (file.len() as u64).to_le_bytes();
    file[96..104].copy_from_slice(&size);
    file[104..112].copy_from_slice(&size);
    file[56] = 2;
    file[120..124].copy_from_slice(&0x6474_e550u32.to_le_bytes());
    file[124..128].copy_from_slice(&4u32.to_le_bytes());
    file[128..136].copy_from_slice(&(table as u64).to_le_bytes());
    file[136..144].copy_from_slice(&(BASE + table as u64).to_le_bytes());
    file[152..160].copy_from_slice(&8u64.to_le_bytes());
    file
}

#[test]
fn signal_returns_need_an_unwind_table() {
    let s = scanned(&signal_return(b"zRS", 1));
    assert_eq!(s.patched.map(|p| (p.rule_a, p.rule_b)), Some((1, 0)));
    let s = scanned(&signal_return(b"zR", 2));
    assert_eq!((s.patched, s.trapped[0].1), (None, Reason::Excluded));
}

#[test]
fn calls_that_need_a_trap_are_left() {
    for number in [15, 56, 57, 58] {
        let code = [0xb8, number, 0, 0, 0, 0x0f, 0x05, RET];
        assert_eq!(outcome(&code, &[(0, 8)]), (0, 0, vec![Reason::Excluded]));
    }
    // clone3: mov eax, 435; mov edi, edi; syscall; ret; then a hole, and a function.
    let mut code = vec![0xb8, 0xb3, 1, 0, 0, 0x89, 0xff, 0x0f, 0x05, RET];
    code.resize(16, 0xcc);
    code.push(RET);
    assert_eq!(outcome(&code, &[(0, 10), (16, 1)]), (0, 0, vec![Reason::Excluded]));
}

/// xor eax,eax; syscall; ret, padding, a function.
fn rule_b(padding: &[u8]) -> (Vec<u8>, [(u64, u64); 2]) {
    let mut code = vec![0x31, 0xc0, 0x0f, 0x05, RET];
    code.extend(padding);
    code.push(RET);
    let next = code.len() as u64 - 1;
    (code, [(0, 5), (next, 1)])
}

#[test]
fn rule_b_as_the_contract_says() {
    let (code, functions) = rule_b(&[0xcc; 5]);
    let p = scanned(&program(&code, &functions)).patched.unwrap();
    assert_eq!((p.rule_a, p.rule_b), (0, 1));
    assert_eq!(p.trampolines[..5], [0x0f, 0x1f, 0x44, 0, 0]);
    // The site is at 2, the hole at 5.
    assert_eq!(p.text[TEXT..TEXT + 11], [0x31, 0xc0, 0xeb, 1, RET, 0xe9, 0xf6, 0xdf, 0xff, 0xff, RET]);
}

#[test]
fn only_dead_padding_is_used() {
    let nothing = (0, 0, vec![Reason::NoHole]);
    // Too short; not padding; zeros.
    for padding in [&[0xcc; 4][..], &[0xcc, 0x90, 0x50, 0xcc, 0xcc, 0xcc, 0xcc], &[0; 8]] {
        let (code, functions) = rule_b(padding);
        assert_eq!(outcome(&code, &functions), nothing, "{padding:x?}");
    }
    // No function follows.
    let (mut code, functions) = rule_b(&[0xcc; 5]);
    assert_eq!(outcome(&code, &functions[..1]), nothing);
    // The next function branches into it: jmp -4.
    code.splice(10.., [0xeb, 0xfa]);
    assert_eq!(outcome(&code, &[(0, 5), (10, 2)]), nothing);
    // Its address is taken: lea rax, [rip - 8]; ret.
    let (mut code, _) = rule_b(&[0xcc; 5]);
    code.splice(10.., [0x48, 0x8d, 0x05, 0xf8, 0xff, 0xff, 0xff, RET]);
    assert_eq!(outcome(&code, &[(0, 5), (10, 8)]), nothing);
    // The code before it falls through: no ret.
    let code = [0x31, 0xc0, 0x0f, 0x05, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, RET];
    assert_eq!(outcome(&code, &[(0, 4), (10, 1)]), nothing);
}

#[test]
fn padding_inside_a_function_must_be_understood() {
    // xor eax,eax; syscall; je +6; ret; five no-ops; ret
    let mut code = vec![0x31, 0xc0, 0x0f, 0x05, 0x74, 6, RET, 0x0f, 0x1f, 0x44, 0, 0, RET];
    assert_eq!(outcome(&code, &[(0, 13)]), (0, 1, vec![]));
    // The same with `jmp rax` at the end: who knows where that goes.
    code.splice(12.., [0xff, 0xe0]);
    assert_eq!(outcome(&code, &[(0, 14)]), (0, 0, vec![Reason::NoHole]));
    // Or with code nobody is seen to reach.
    code.splice(12.., [RET, 0x50, RET]);
    assert_eq!(outcome(&code, &[(0, 15)]), (0, 0, vec![Reason::NoHole]));
}

#[test]
fn holes_are_not_shared() {
    // Two sites, room for one.
    let mut code = vec![0x31, 0xc0, 0x0f, 0x05, 0x31, 0xc0, 0x0f, 0x05, RET];
    code.extend([0xcc; 9]);
    code.push(RET);
    assert_eq!(outcome(&code, &[(0, 9), (18, 1)]), (0, 1, vec![Reason::NoHole]));
    code.insert(10, 0xcc);
    assert_eq!(outcome(&code, &[(0, 9), (19, 1)]), (0, 2, vec![]));
}

#[test]
fn decoys_are_left_alone() {
    let nothing = (0, 0, vec![]);
    // In an immediate: mov eax, 0x050f.
    assert_eq!(outcome(&[0xb8, 0x0f, 0x05, 0, 0, RET], &[(0, 6)]), nothing);
    // The whole sequence in one: movabs rax, ...
    assert_eq!(outcome(&[0x48, 0xb8, 0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0x90, RET], &[(0, 11)]), nothing);
    // The mov's bytes belong to another instruction, and the syscall is real: mov dword [rax - 0x48], 39.
    assert_eq!(
        outcome(&[0xc7, 0x40, 0xb8, 39, 0, 0, 0, 0x0f, 0x05, RET], &[(0, 10)]),
        (0, 0, vec![Reason::NoHole])
    );
    // Data in text: jmp over it.
    let code = [0xeb, 7, 0xb8, 39, 0, 0, 0, 0x0f, 0x05, RET];
    assert_eq!(outcome(&code, &[(0, 10)]), (0, 0, vec![Reason::Unreached]));
    // Data between functions.
    let code = [RET, 0xb8, 39, 0, 0, 0, 0x0f, 0x05, RET];
    assert_eq!(outcome(&code, &[(0, 1), (8, 1)]), (0, 0, vec![Reason::Unreached]));
    // With a prefix: rex.w syscall.
    assert_eq!(
        outcome(&[0xb8, 39, 0, 0, 0, 0x48, 0x0f, 0x05, RET], &[(0, 9)]),
        (0, 0, vec![Reason::Prefixed])
    );
}

#[test]
fn branches_into_a_window() {
    // je to the syscall itself: it is still there.
    let code = [0x74, 5, 0xb8, 39, 0, 0, 0, 0x0f, 0x05, RET];
    assert_eq!(outcome(&code, &[(0, 10)]), (1, 0, vec![]));
    // je into the mov: two readings of the same bytes.
    let code = [0x74, 1, 0xb8, 0x90, 0x90, 0x90, 0x90, 0x0f, 0x05, RET];
    assert_eq!(outcome(&code, &[(0, 10)]), (0, 0, vec![Reason::Ambiguous]));
    // lea of its middle.
    let code = [0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0x48, 0x8d, 0x05, 0xf4, 0xff, 0xff, 0xff, RET];
    assert_eq!(outcome(&code, &[(0, 15)]), (0, 0, vec![Reason::NoHole]));
}

#[test]
fn segments_that_cannot_be_patched() {
    let code = [0xb8, 39, 0, 0, 0, 0x0f, 0x05, RET];
    let refusal = |file: &[u8]| scan(file).unwrap().refused;
    assert_eq!(refusal(&program(&code, &[])), None);
    assert_eq!(refusal(&program_of(2, 0x1_0000, 5, &code, &[])), Some(Refusal::NoRoom));
    assert_eq!(refusal(&program_of(3, 0, 5, &code, &[])), None);
    assert_eq!(refusal(&program_of(2, BASE, 7, &code, &[])), Some(Refusal::Writable));
    let mut other_machine = program(&code, &[]);
    other_machine[18] = 183;
    assert!(scan(&other_machine).is_none());
}

#[test]
fn a_wrong_copy_is_noticed() {
    let (code, functions) = rule_b(&[0xcc; 5]);
    let file = program(&code, &functions);
    let p = scanned(&file).patched.unwrap();
    let mut original = file.clone();
    original.resize(p.text.len().max(file.len()), 0);
    original.truncate(p.text.len());
    for at in TEXT..TEXT + code.len() {
        let mut copy = p.text.clone();
        copy[at] ^= 1;
        check(&original, &copy, &p.trampolines, p.distance).unwrap_err();
    }
    for at in 0..64 {
        let mut trampolines = p.trampolines.clone();
        trampolines[at] ^= 1;
        check(&original, &p.text, &trampolines, p.distance).unwrap_err();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Any code at all: nothing breaks, and what is patched is right.
    #[test]
    fn any_code(pieces in prop::collection::vec(prop::sample::select(vec![
        &[0xb8, 39, 0, 0, 0, 0x0f, 0x05][..], &[0x0f, 0x05], &[RET], &[0xcc; 7], &[0x0f, 0x1f, 0x44, 0, 0],
        &[0xeb], &[0x74], &[0xe8], &[0xb8], &[0x48], &[0], &[0xff], &[0xe0], &[3], &[0xf4], &[0x31, 0xc0],
    ]), 1..60), functions in prop::collection::vec((0..200u64, 0..40u64), 0..6)) {
        scanned(&program(&pieces.concat(), &functions));
    }

    /// Damaged headers: nothing breaks.
    #[test]
    fn any_header(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let (code, functions) = rule_b(&[0xcc; 5]);
        let mut file = program(&code, &functions);
        for (at, byte) in changes {
            // Headers and tables; the zeros between are of no interest.
            let at = at.index(120 + file.len() - TEXT);
            let at = if at < 120 { at } else { at - 120 + TEXT };
            file[at] = byte;
        }
        let _ = scan(&file);
    }
}
