use super::*;

/// Decodes what `iced` holds for valid in the same way, for a million pseudo-random instructions.
#[test]
fn lengths_agree_with_a_disassembler() {
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let prefixes = [0x66, 0x48, 0x41, 0xf3, 0xf2, 0x0f, 0x67, 0xc5, 0xc4, 0x62, 0x44, 0x64];
    let (mut both, mut refused) = (0u32, 0u32);
    for round in 0..1_000_000u32 {
        let mut code = [0u8; 24];
        for part in code.chunks_exact_mut(8) {
            part.copy_from_slice(&random().to_le_bytes());
        }
        for byte in code.iter_mut().take(round as usize % 4) {
            *byte = prefixes[(random() % prefixes.len() as u64) as usize];
        }
        let theirs = iced_x86::Decoder::new(64, &code, 0).decode();
        if theirs.is_invalid() {
            continue;
        }
        let Some(ours) = decode(&code) else {
            refused += 1;
            continue;
        };
        both += 1;
        assert_eq!(ours.len, theirs.len(), "{code:02x?} {:?}", theirs.code());
        use iced_x86::FlowControl as F;
        // Programs cannot execute it.
        if theirs.mnemonic() == iced_x86::Mnemonic::Skinit {
            continue;
        }
        let near = || theirs.near_branch_target().wrapping_sub(theirs.len() as u64).cast_signed();
        let next = match theirs.flow_control() {
            F::ConditionalBranch => Next::Branch(near()),
            F::UnconditionalBranch => Next::Jump(near()),
            F::Return | F::IndirectBranch | F::Exception => Next::Away,
            F::Interrupt if theirs.mnemonic() == iced_x86::Mnemonic::Int3 => Next::Away,
            _ => continue,
        };
        assert_eq!(ours.next, next, "{code:02x?} {:?}", theirs.code());
    }
    assert!(both > 4 * refused, "{both} agreed, {refused} refused");
}

const GETPID: [u8; 8] = [0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xc3];

#[test]
fn a_plain_function_reaches_its_call() {
    assert!(reaches(&GETPID, 0, 5));
    // endbr64; test edi, edi; jz over the call.
    let code = [&[0xf3, 0x0f, 0x1e, 0xfa, 0x85, 0xff, 0x74, 7][..], &GETPID].concat();
    assert!(reaches(&code, 8, 5));
}

#[test]
fn the_middle_of_another_instruction_is_no_site() {
    // mov r8d, 39; syscall.
    let code = [&[0x41][..], &GETPID].concat();
    assert!(!reaches(&code, 1, 5));
    // lea edi, [rax+39]; syscall.
    let code = [&[0x8d][..], &GETPID].concat();
    assert!(!reaches(&code, 1, 5));
}

#[test]
fn a_jump_into_the_mov_is_no_site() {
    // jz to the third byte of the mov.
    let code = [&[0x74, 2][..], &GETPID].concat();
    assert!(!reaches(&code, 2, 5));
    // To the syscall itself it may jump: that traps.
    let code = [&[0x74, 5][..], &GETPID].concat();
    assert!(reaches(&code, 2, 5));
}

#[test]
fn what_lies_behind_a_return_is_not_reached() {
    let code = [&[0xc3][..], &GETPID].concat();
    assert!(!reaches(&code, 1, 5));
    // jmp [rax], and then the site.
    let code = [&[0xff, 0x20][..], &GETPID].concat();
    assert!(!reaches(&code, 2, 5));
}

#[test]
fn what_may_move_does_the_same_elsewhere() {
    // cmp rax, -4095; mov rdi, rax; test rax, rax; mov [rsp+8], rax; mov eax, [rbx+rcx*4]; neg eax; lea rdi, [rsp+16].
    for code in [
        &[0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff][..],
        &[0x48, 0x89, 0xc7],
        &[0x48, 0x85, 0xc0],
        &[0x48, 0x89, 0x44, 0x24, 0x08],
        &[0x8b, 0x04, 0x8b],
        &[0xf7, 0xd8],
        &[0x48, 0x8d, 0x7c, 0x24, 0x10],
    ] {
        assert_eq!(movable(code), Some(code.len()), "{code:02x?}");
    }
    // mov rax, [rip+8]; a call; a jump; a branch; ret; syscall; int3; a prefix; rep movsb; half an instruction.
    for code in [
        &[0x48, 0x8b, 0x05, 8, 0, 0, 0][..],
        &[0xe8, 0, 0, 0, 0],
        &[0xeb, 3, 0],
        &[0x73, 1, 0],
        &[0xc3, 0, 0],
        &[0x0f, 0x05, 0],
        &[0xcc, 0, 0],
        &[0x64, 0x8b, 0x00],
        &[0xf3, 0xa4, 0],
        &[0x48, 0x3d, 0x01],
    ] {
        assert_eq!(movable(code), None, "{code:02x?}");
    }
}

/// Whatever may move has a length and an operand as a disassembler sees them.
#[test]
fn what_may_move_agrees_with_a_disassembler() {
    let mut seed = 0x1234_5678_9abc_def1u64;
    let mut random = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    let mut moved = 0;
    for _ in 0..500_000 {
        let mut code = [0u8; 16];
        code[..8].copy_from_slice(&random().to_le_bytes());
        code[8..].copy_from_slice(&random().to_le_bytes());
        let theirs = iced_x86::Decoder::new(64, &code, 0).decode();
        let Some(len) = movable(&code).filter(|_| !theirs.is_invalid()) else { continue };
        moved += 1;
        assert_eq!(len, theirs.len(), "{code:02x?}");
        assert!(!theirs.is_ip_rel_memory_operand(), "{code:02x?}");
        assert_eq!(theirs.flow_control(), iced_x86::FlowControl::Next, "{code:02x?} {:?}", theirs.code());
    }
    assert!(moved > 50_000, "{moved}");
}
