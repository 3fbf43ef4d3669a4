//! The memory functions that the compiler calls: the guest kernel has no C library, and no SSE registers.
//!
//! String instructions take 9 to 12 ns to start from 128 bytes on (AMD EPYC with ERMS and FSRM, measured), backwards they move a byte
//! at a time, and structures of system calls are of some hundred bytes. So general registers move up to where both are as
//! quick, and all that goes backwards.

core::arch::global_asm!(
    ".pushsection .text.doppel_mem,\"ax\",@progbits",
    // memmove(dst, src, len) -> dst. Upwards into what is still to be read: from the end on.
    ".global doppel_memmove",
    "doppel_memmove:",
    "mov rax, rdi",
    "sub rax, rsi",
    "cmp rax, rdx",
    "jae doppel_memcpy",
    "mov rax, rdi",
    "cmp rdx, 8",
    "jb 5f",
    // The first 8 bytes are read before anything is written, and may be written twice.
    "mov r11, [rsi]",
    "sub rdx, 32",
    "jb 2f",
    "1: mov rcx, [rsi+rdx+24]",
    "mov r8, [rsi+rdx+16]",
    "mov r9, [rsi+rdx+8]",
    "mov r10, [rsi+rdx]",
    "mov [rdi+rdx+24], rcx",
    "mov [rdi+rdx+16], r8",
    "mov [rdi+rdx+8], r9",
    "mov [rdi+rdx], r10",
    "sub rdx, 32",
    "jae 1b",
    "2: add rdx, 24",
    "js 3f",
    "6: mov rcx, [rsi+rdx]",
    "mov [rdi+rdx], rcx",
    "sub rdx, 8",
    "jae 6b",
    "3: mov [rdi], r11",
    "ret",
    // memcpy(dst, src, len) -> dst. The last 8 bytes are read before anything is written, and may be written twice. It is right for
    // downward moves too.
    ".global doppel_memcpy",
    "doppel_memcpy:",
    "mov rax, rdi",
    "cmp rdx, 8",
    "jb 5f",
    "cmp rdx, 768",
    "ja 4f",
    "mov r11, [rsi+rdx-8]",
    "lea r10, [rdi+rdx-8]",
    "sub rdx, 32",
    "jb 2f",
    "1: mov rcx, [rsi]",
    "mov r8, [rsi+8]",
    "mov r9, [rsi+16]",
    "mov [rdi], rcx",
    "mov rcx, [rsi+24]",
    "mov [rdi+8], r8",
    "mov [rdi+16], r9",
    "mov [rdi+24], rcx",
    "add rsi, 32",
    "add rdi, 32",
    "sub rdx, 32",
    "jae 1b",
    // 32 too few are left; whole words of them go on.
    "2: add rdx, 24",
    "js 3f",
    "6: mov rcx, [rsi]",
    "mov [rdi], rcx",
    "add rsi, 8",
    "add rdi, 8",
    "sub rdx, 8",
    "jae 6b",
    "3: mov [r10], r11",
    "ret",
    "4: mov rcx, rdx",
    "rep movsb",
    "ret",
    "5: cmp edx, 4",
    "jb 7f",
    "mov ecx, [rsi]",
    "mov r8d, [rsi+rdx-4]",
    "mov [rdi], ecx",
    "mov [rdi+rdx-4], r8d",
    "ret",
    // Of one, two or three bytes: the first, the middle and the last one.
    "7: test edx, edx",
    "jz 8f",
    "movzx ecx, byte ptr [rsi]",
    "movzx r8d, byte ptr [rsi+rdx-1]",
    "mov r10d, edx",
    "shr r10d",
    "movzx r9d, byte ptr [rsi+r10]",
    "mov [rdi], cl",
    "mov [rdi+r10], r9b",
    "mov [rdi+rdx-1], r8b",
    "8: ret",
    // memset(dst, byte, len) -> dst.
    ".global doppel_memset",
    "doppel_memset:",
    "movzx eax, sil",
    "movabs rsi, 0x0101010101010101",
    "imul rsi, rax",
    "mov rax, rdi",
    "cmp rdx, 8",
    "jb 5f",
    "cmp rdx, 512",
    "ja 4f",
    "mov [rdi+rdx-8], rsi",
    "sub rdx, 32",
    "jb 2f",
    "1: mov [rdi], rsi",
    "mov [rdi+8], rsi",
    "mov [rdi+16], rsi",
    "mov [rdi+24], rsi",
    "add rdi, 32",
    "sub rdx, 32",
    "jae 1b",
    "2: add rdx, 24",
    "js 8f",
    "6: mov [rdi], rsi",
    "add rdi, 8",
    "sub rdx, 8",
    "jae 6b",
    "8: ret",
    "4: mov r8, rax",
    "mov eax, esi",
    "mov rcx, rdx",
    "rep stosb",
    "mov rax, r8",
    "ret",
    "5: test edx, edx",
    "jz 8b",
    "7: mov [rdi], sil",
    "inc rdi",
    "dec edx",
    "jnz 7b",
    "ret",
    ".popsection",
);

// Programs that test this crate have the C library's.
#[cfg(target_os = "none")]
core::arch::global_asm!(
    ".global memcpy",
    ".set memcpy, doppel_memcpy",
    ".global memmove",
    ".set memmove, doppel_memmove",
    ".global memset",
    ".set memset, doppel_memset",
);

/// # Safety
/// As C's `memcmp`.
#[cfg(any(test, target_os = "none"))]
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
unsafe extern "C" fn memcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    let mut i = 0;
    while i + 8 <= n {
        // SAFETY: forwarded contract.
        let (x, y) =
            unsafe { (a.add(i).cast::<u64>().read_unaligned(), b.add(i).cast::<u64>().read_unaligned()) };
        if x != y {
            return if x.swap_bytes() < y.swap_bytes() { -1 } else { 1 };
        }
        i += 8;
    }
    while i < n {
        // SAFETY: forwarded contract.
        let (x, y) = unsafe { (*a.add(i), *b.add(i)) };
        if x != y {
            return i32::from(x) - i32::from(y);
        }
        i += 1;
    }
    0
}

/// # Safety
/// As C's `bcmp`.
#[cfg(any(test, target_os = "none"))]
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
unsafe extern "C" fn bcmp(a: *const u8, b: *const u8, n: usize) -> i32 {
    // SAFETY: forwarded contract.
    unsafe { memcmp(a, b, n) }
}

/// # Safety
/// As C's `strlen`.
#[cfg(target_os = "none")]
#[unsafe(no_mangle)]
unsafe extern "C" fn strlen(s: *const u8) -> usize {
    let mut n = 0;
    // SAFETY: forwarded contract.
    while unsafe { *s.add(n) } != 0 {
        n += 1;
    }
    n
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    unsafe extern "C" {
        fn doppel_memcpy(dst: *mut u8, src: *const u8, len: usize) -> *mut u8;
        fn doppel_memmove(dst: *mut u8, src: *const u8, len: usize) -> *mut u8;
        fn doppel_memset(dst: *mut u8, byte: i32, len: usize) -> *mut u8;
    }

    /// Around every bound, at every alignment, with what lies before and behind.
    #[test]
    fn every_length_at_every_alignment() {
        let src: Vec<u8> = (0..2048u32).map(|i| (i * 7 + 3) as u8).collect();
        let lengths = (0..200).chain([255, 256, 511, 512, 513, 519, 767, 768, 769, 1000]);
        for len in lengths {
            for (to, from) in (0..16).flat_map(|t| [(t, 0), (t, 5)]) {
                let mut dst = vec![0xaa_u8; 2048];
                // SAFETY: both buffers are longer than the bytes told.
                let p = unsafe { doppel_memcpy(dst[16 + to..].as_mut_ptr(), src[from..].as_ptr(), len) };
                assert_eq!(p.cast_const(), dst[16 + to..].as_ptr());
                assert_eq!(dst[16 + to..16 + to + len], src[from..from + len], "copy of {len} to {to}");
                assert!(
                    dst[..16 + to].iter().chain(&dst[16 + to + len..]).all(|b| *b == 0xaa),
                    "{len} to {to}"
                );

                // SAFETY: as before.
                let p = unsafe { doppel_memset(dst[16 + to..].as_mut_ptr(), 0x15c, len) };
                assert_eq!(p.cast_const(), dst[16 + to..].as_ptr());
                assert!(dst[16 + to..16 + to + len].iter().all(|b| *b == 0x5c), "fill of {len} at {to}");
                assert!(
                    dst[..16 + to].iter().chain(&dst[16 + to + len..]).all(|b| *b == 0xaa),
                    "{len} at {to}"
                );
            }
        }
    }
    /// Both ways, by every distance that matters.
    #[test]
    fn moves_within_a_buffer() {
        for len in (0..140).chain([256, 511, 768, 769, 1000]) {
            for (to, from) in (0..40).flat_map(|d| [(100 + d, 100), (100, 100 + d)]) {
                let mut buffer: Vec<u8> = (0..2048u32).map(|i| (i * 7 + 3) as u8).collect();
                let mut expected = buffer.clone();
                expected.copy_within(from..from + len, to);
                let base = buffer.as_mut_ptr();
                // SAFETY: both ranges lie in the buffer.
                let p = unsafe { doppel_memmove(base.add(to), base.add(from), len) };
                assert_eq!(p.cast_const(), buffer[to..].as_ptr());
                assert_eq!(buffer, expected, "{len} from {from} to {to}");
            }
        }
    }

    #[test]
    fn compares_as_bytes() {
        let a: Vec<u8> = (0..64).collect();
        for len in 0..64 {
            for at in 0..len {
                let mut b = a.clone();
                b[at] ^= 0x80;
                let expected = a[..len].cmp(&b[..len]) as i32;
                // SAFETY: both are longer than that.
                let found = unsafe { super::memcmp(a.as_ptr(), b.as_ptr(), len) };
                assert_eq!(found.signum(), expected, "{at} of {len}");
                // SAFETY: as before.
                assert_ne!(unsafe { super::bcmp(a.as_ptr(), b.as_ptr(), len) }, 0);
            }
            let mut b = a.clone();
            b[len] = 0xff;
            // SAFETY: as before.
            assert_eq!(unsafe { super::memcmp(a.as_ptr(), b.as_ptr(), len) }, 0);
        }
    }
}
