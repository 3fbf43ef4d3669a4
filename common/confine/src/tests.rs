//! The compiled program, run in an interpreter over the cases that matter.

use std::collections::BTreeSet;

use crate::bpf::{
    ALLOW, AND, ARCH_I386, ARCH_X86_64, JUMP, JUMP_EQ, JUMP_SET, KILL_PROCESS, LOAD, NO_SUCH_CALL, REFUSE,
    RETURN, TRAP,
};
use crate::service::{NETWORK, Service};
use crate::{ALLOWED, Instruction, STORAGE, Site, Sites, compile, host_call_table, service_call_table};

const SITES: Sites = Sites { gate_end: 0x7e80_0000_1234, sigreturn_end: 0x7e80_0000_5678 };

struct Call {
    nr: u32,
    arch: u32,
    ip: u64,
    args: [u64; 6],
}

impl Call {
    fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend(self.nr.to_le_bytes());
        out.extend(self.arch.to_le_bytes());
        out.extend(self.ip.to_le_bytes());
        for arg in self.args {
            out.extend(arg.to_le_bytes());
        }
        out
    }
}

fn interpret(program: &[Instruction], call: &Call) -> u32 {
    let data = call.bytes();
    let (mut pc, mut acc) = (0usize, 0u32);
    loop {
        let i = program[pc];
        pc += 1;
        match i.code {
            LOAD => {
                let at = i.k as usize;
                acc = u32::from_le_bytes(data[at..at + 4].try_into().unwrap());
            }
            AND => acc &= i.k,
            JUMP => pc += i.k as usize,
            JUMP_EQ => pc += usize::from(if acc == i.k { i.jt } else { i.jf }),
            JUMP_SET => pc += usize::from(if acc & i.k != 0 { i.jt } else { i.jf }),
            RETURN => return i.k,
            other => panic!("instruction {other:#x}"),
        }
    }
}

fn gate(nr: u32, args: [u64; 6]) -> u32 {
    interpret(&compile(ALLOWED, SITES), &Call { nr, arch: ARCH_X86_64, ip: SITES.gate_end, args })
}

fn from(ip: u64, nr: u32) -> u32 {
    let args = [0, 128, 0, 0, 0, 0];
    interpret(&compile(ALLOWED, SITES), &Call { nr, arch: ARCH_X86_64, ip, args })
}

#[test]
fn the_list_is_short_and_explained() {
    println!("{}", host_call_table());
    assert!(ALLOWED.iter().all(|rule| !rule.why.is_empty() && !rule.arguments.is_empty()));
    assert_eq!(ALLOWED.len(), 17);
    assert!(compile(ALLOWED, SITES).len() < 1024, "fits the control area");
}

#[test]
fn place_decides() {
    assert_eq!(from(SITES.gate_end, 202), ALLOW);
    for ip in
        [0, SITES.gate_end - 2, SITES.gate_end + 1, SITES.gate_end + (1 << 32), SITES.gate_end & 0xffff_ffff]
    {
        assert_eq!(from(ip, 202), TRAP, "{ip:#x}");
        assert_eq!(from(ip, 15), TRAP, "{ip:#x}");
    }
    assert_eq!(from(SITES.sigreturn_end, 15), ALLOW);
    assert_eq!(from(SITES.sigreturn_end + (1 << 32), 15), TRAP);
    assert_eq!(from(SITES.gate_end, 15), REFUSE);
    for nr in (0..600).filter(|n| *n != 15) {
        assert_eq!(from(SITES.sigreturn_end, nr), TRAP, "{nr}");
    }
}

#[test]
fn other_abis_are_refused() {
    let program = compile(ALLOWED, SITES);
    for arch in [0, 0xc000_00b7, u32::MAX] {
        let call = Call { nr: 202, arch, ip: SITES.gate_end, args: [0; 6] };
        assert_eq!(interpret(&program, &call), KILL_PROCESS);
    }
    for ip in [SITES.gate_end, SITES.sigreturn_end, 0x40_0000] {
        for nr in 0..600 {
            let call = Call { nr, arch: ARCH_I386, ip, args: [0; 6] };
            assert_eq!(interpret(&program, &call), TRAP, "{nr}");
        }
    }
    for nr in [0x4000_0000 | 202, 0x4000_0000 | 1, u32::MAX, 0x7fff_ffff] {
        assert_eq!(from(SITES.gate_end, nr), TRAP, "x32 {nr:#x}");
    }
}

#[test]
fn nothing_else_passes_the_gate() {
    let listed: Vec<u32> = ALLOWED.iter().filter(|r| r.site == Site::Gate).map(|r| r.number).collect();
    for nr in (0..1024).filter(|n| !listed.contains(n)) {
        assert_eq!(gate(nr, [0; 6]), REFUSE, "{nr}");
    }
}

#[test]
fn futex_operations() {
    for op in [0u64, 1, 9, 128, 129, 137] {
        assert_eq!(gate(202, [0, op, 0, 0, 0, 0]), ALLOW, "{op}");
    }
    // FD, REQUEUE, CMP_REQUEUE, WAKE_OP, LOCK_PI, ..., CLOCK_REALTIME, high half.
    for op in [2u64, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 130, 256, 256 + 9, 1 << 32, (1 << 32) | 128, u64::MAX]
    {
        assert_eq!(gate(202, [0, op, 0, 0, 0, 0]), REFUSE, "{op}");
    }
}

#[test]
fn waiting_for_two_words() {
    assert_eq!(gate(449, [0, 2, 0, 0, 1, 0]), ALLOW);
    for args in [[0, 3, 0, 0, 1, 0], [0, 2, 1, 0, 1, 0], [0, 2, 0, 0, 0, 0], [0, (1 << 32) | 2, 0, 0, 1, 0]] {
        assert_eq!(gate(449, args), REFUSE, "{args:?}");
    }
}

#[test]
fn clocks_of_cpu_time_only() {
    let clock = |id: i64| gate(228, [id as u64, 0, 0, 0, 0, 0]);
    for pid in [0i64, 1, 7, 4_194_304] {
        for kind in 0..3 {
            assert_eq!(clock(!pid << 3 | kind), ALLOW, "process {pid}, kind {kind}");
        }
        // Of a descriptor, and of a thread.
        for kind in 3..8 {
            assert_eq!(clock(!pid << 3 | kind), REFUSE, "{pid}, kind {kind}");
        }
    }
    assert_eq!(clock(3), ALLOW);
    for id in [0i64, 1, 2, 4, 5, 6, 7, 8, 9, 11, 1 << 32 | 3, i64::MIN, i64::MIN | 2, 0xffff_fffa] {
        assert_eq!(clock(id), REFUSE, "{id:#x}");
    }
}

#[test]
fn mmap_descriptors_and_flags() {
    let map = |prot: u64, flags: u64, fd: u64| gate(9, [0x1000, 0x1000, prot, flags, fd, 0]);
    let minus_one = u64::MAX;
    assert_eq!(map(7, 0x32, minus_one), ALLOW);
    assert_eq!(map(3, 0x32 | 0x4000 | 0x8000, 0xffff_ffff), ALLOW);
    assert_eq!(map(3, 0x32 | 0x100, minus_one), REFUSE, "GROWSDOWN");
    assert_eq!(map(3, 0x32 | 0x2_0000, minus_one), REFUSE, "STACK");
    assert_eq!(map(3, 0x22, minus_one), REFUSE, "not fixed");
    assert_eq!(map(3, 0x31, minus_one), REFUSE, "shared anonymous");
    assert_eq!(map(3, 0x32, 0), REFUSE, "anonymous with a descriptor");
    assert_eq!(map(3, 0x32 | 0x4_0000, minus_one), REFUSE, "huge pages");
    assert_eq!(map(3, 0x32 | 0x2000, minus_one), REFUSE, "locked");
    assert_eq!(map(3, 0x32 | 0x10_0000, minus_one), REFUSE, "FIXED_NOREPLACE is not FIXED");
    assert_eq!(map(8, 0x32, minus_one), REFUSE, "PROT_SEM");
    assert_eq!(map(0x0100_0000, 0x32, minus_one), REFUSE, "PROT_GROWSDOWN");
    assert_eq!(map(1 << 32, 0x32, minus_one), REFUSE);
    for flags in [0x11, 0x12] {
        assert_eq!(map(7, flags, 2), ALLOW, "page file");
        for fd in [0, 1, 4, 7, 1000, 1 << 32, (1 << 32) | 2] {
            assert_eq!(map(1, flags, fd), REFUSE, "fd {fd}");
        }
    }
    assert_eq!(map(7, 0x12, 5), ALLOW, "frozen image, private");
    assert_eq!(map(1, 0x11, 5), REFUSE, "frozen image, shared");
    for fd in 13..20 {
        assert_eq!(map(7, 0x12, fd), ALLOW, "ancestor of the frozen image, private");
        assert_eq!(map(1, 0x11, fd), REFUSE, "ancestor of the frozen image, shared");
        assert_eq!(map(7, 0x12, fd | 1 << 32), REFUSE);
    }
    assert_eq!(map(7, 0x12, 6), ALLOW, "share file, private");
    assert_eq!(map(1, 0x11, 6), REFUSE, "share file, shared");
    assert_eq!(map(3, 0x11, 6), REFUSE, "share file, shared and writable");
    for flags in [0x11, 0x12] {
        assert_eq!(map(7, flags, 12), ALLOW, "swap region");
        for fd in [10, 11, 20, 12 | 1 << 32] {
            assert_eq!(map(1, flags, fd), REFUSE, "fd {fd}");
        }
    }
    assert_eq!(map(7, 0x13, 2), REFUSE, "SHARED_VALIDATE");
    assert_eq!(map(7, 0x12, 3), ALLOW, "image, private");
    assert_eq!(map(5, 0x11, 3), ALLOW, "image, shared");
    assert_eq!(map(3, 0x11, 3), REFUSE, "image, shared and writable");
    assert_eq!(map(2, 0x11, 3), REFUSE, "image, shared and writable");
}

#[test]
fn other_arguments() {
    assert_eq!(gate(1, [4, 0, 8, 0, 0, 0]), ALLOW);
    for (fd, len) in [(0, 8), (1, 8), (2, 8), (3, 8), (5, 8), (4, 7), (4, 4096), (4 | (1 << 32), 8)] {
        assert_eq!(gate(1, [fd, 0, len, 0, 0, 0]), REFUSE);
    }
    // Holes are punched in the arena, the page file and the swap region, and nothing else is done to any file.
    for (fd, mode, verdict) in [
        (1, 3, ALLOW),
        (2, 3, ALLOW),
        (12, 3, ALLOW),
        (12, 0, REFUSE),
        (12, 2, REFUSE),
        (10, 3, REFUSE),
        (1, 0, REFUSE),
        (1, 2, REFUSE),
        (2, 0, REFUSE),
        (2, 1, REFUSE),
        (0, 3, REFUSE),
        (3, 3, REFUSE),
        (5, 3, REFUSE),
        ((1 << 32) | 1, 3, REFUSE),
    ] {
        assert_eq!(gate(285, [fd, mode, 0, 0, 0, 0]), verdict, "fd {fd}, mode {mode}");
    }
    for (flags, verdict) in [
        (0x10_0611, ALLOW),
        (0x10_8611, ALLOW),
        (0x15_0f00, ALLOW),
        (0, REFUSE),
        (17, REFUSE),
        (0x8011, REFUSE),
        (0x10_4611, REFUSE),
        (0x1010_0611, REFUSE),
        (0x2010_0611, REFUSE),
        (0x15_0f00 | 0x8_0000, REFUSE),
        ((1 << 32) | 0x10_0611, REFUSE),
    ] {
        assert_eq!(gate(56, [flags, 0, 0, 0, 0, 0]), verdict, "{flags:#x}");
    }
    for (signal, verdict) in [(23, ALLOW), (0, REFUSE), (9, REFUSE), (19, REFUSE), ((1 << 32) | 23, REFUSE)] {
        assert_eq!(gate(234, [1, 1, signal, 0, 0, 0]), verdict);
    }
    for advice in 0..=200 {
        let allowed = matches!(advice, 4 | 8 | 18 | 19 | 22 | 23 | 25);
        assert_eq!(gate(28, [0, 0, advice, 0, 0, 0]) == ALLOW, allowed, "advice {advice}");
    }
    assert_eq!(gate(10, [0, 0, 7, 0, 0, 0]), ALLOW);
    assert_eq!(gate(10, [0, 0, 8, 0, 0, 0]), REFUSE);
    assert_eq!(gate(25, [0, 0, 0, 7, 0, 0]), ALLOW);
    assert_eq!(gate(25, [0, 0, 0, 8, 0, 0]), REFUSE);
    assert_eq!(gate(61, [u64::MAX, 0, 0x4000_0001, 0, 0, 0]), ALLOW);
    assert_eq!(gate(61, [u64::MAX, 0, 2, 0, 0, 0]), REFUSE);
    for (command, verdict) in
        [(0, ALLOW), (8, ALLOW), (16, ALLOW), (1, REFUSE), (2, REFUSE), (32, REFUSE), (128, REFUSE)]
    {
        assert_eq!(gate(324, [command, 0, 0, 0, 0, 0]), verdict);
    }
}

#[test]
fn the_document_shows_the_list() {
    let document = include_str!("../../../SECURITY.md");
    assert!(
        document.contains(&host_call_table()),
        "copy the output of `doppel debug host-calls` to SECURITY.md"
    );
}

fn container(nr: u32, first: u64) -> u32 {
    let args = [first, 0, 0, 0, 0, 0];
    interpret(&crate::container::filter(), &Call { nr, arch: ARCH_X86_64, ip: 0x40_0000, args })
}

#[test]
fn our_own_processes_attach_loop_devices() {
    let call = Call { nr: 16, arch: ARCH_X86_64, ip: 0, args: [3, 0x4c0a, 0, 0, 0, 0] };
    assert_eq!(interpret(&crate::supervisor::filter(), &call), ALLOW);
}

#[test]
fn a_containers_list_is_dockers_without_what_few_need() {
    for nr in [0, 1, 59, 202, 257, 439] {
        assert_eq!(container(nr, 0), ALLOW, "{nr}");
    }
    // mount, unshare, setns, init_module, bpf, add_key, keyctl, userfaultfd, io_uring_setup, reboot, kexec_load.
    for nr in [165, 272, 308, 175, 321, 248, 250, 323, 425, 169, 246, 600] {
        assert_eq!(container(nr, 0), REFUSE, "{nr}");
    }
    assert_eq!(container(56, 0x11 | 0x100), ALLOW, "a thread");
    assert_eq!(container(56, 0x1000_0000), REFUSE, "a user namespace");
    assert_eq!(container(435, 0), NO_SUCH_CALL, "clone3");
    assert_eq!(container(0x4000_0001, 0), NO_SUCH_CALL, "x32");
    // Local, Internet, netlink, packet; AX.25, AF_ALG, AF_VSOCK, AF_XDP, none.
    for family in [1, 2, 10, 16, 17] {
        assert_eq!(container(41, family), ALLOW, "family {family}");
    }
    for family in [3, 21, 29, 31, 38, 40, 43, 44, 99, 1 << 32 | 1] {
        assert_eq!(container(41, family), REFUSE, "family {family}");
    }
    // Routes, sockets, events, generic; IPsec, netfilter.
    for (protocol, verdict) in
        [(0, ALLOW), (4, ALLOW), (9, ALLOW), (15, ALLOW), (16, ALLOW), (6, REFUSE), (12, REFUSE)]
    {
        let call = Call { nr: 41, arch: ARCH_X86_64, ip: 0, args: [16, 3, protocol, 0, 0, 0] };
        assert_eq!(interpret(&crate::container::filter(), &call), verdict, "netlink {protocol}");
    }
    let ioctl = |request: u64| {
        let call = Call { nr: 16, arch: ARCH_X86_64, ip: 0x40_0000, args: [3, request, 0, 0, 0, 0] };
        interpret(&crate::container::filter(), &call)
    };
    // A terminal's, a socket's, and a disk's size and discard.
    for request in [0x5401, 0x5413, 0x8912, 0x8008_1272, 0x1277, 0x301] {
        assert_eq!(ioctl(request), ALLOW, "ioctl {request:#x}");
    }
    // A loop device's: the host's kernel looks at the lower half alone.
    for request in [0x4c00, 0x4c01, 0x4c04, 0x4c05, 0x4c0a, 0x4c82, 0x4cff, 1 << 32 | 0x4c04] {
        assert_eq!(ioctl(request), REFUSE, "ioctl {request:#x}");
    }
    assert_eq!(container(447, 0), REFUSE, "memfd_secret");
    assert_eq!(container(135, 0xffff_ffff), ALLOW);
    assert_eq!(container(135, 0x4_0000), REFUSE, "no randomness");
    let other = Call { nr: 0, arch: 0x4000_0003, ip: 0, args: [0; 6] };
    assert_eq!(interpret(&crate::container::filter(), &other), KILL_PROCESS);
    assert!(crate::container::filter().len() < 4096, "the kernel's limit");
}

fn of_service(nr: u32, args: [u64; 6]) -> u32 {
    interpret(&NETWORK.filter(), &Call { nr, arch: ARCH_X86_64, ip: 0x40_0000, args })
}

#[test]
fn a_services_list_is_short_and_explained() {
    let document = include_str!("../../../docs/services.md");
    for service in [NETWORK, STORAGE] {
        let Service { tasks, capabilities, .. } = service;
        let allowed = service.allowed();
        println!("{}", service_call_table(&service));
        assert!(tasks <= 32);
        assert!(
            document.contains(&service_call_table(&service)),
            "copy the output of `doppel debug service-calls` to docs/services.md"
        );
        assert!(allowed.iter().all(|rule| !rule.why.is_empty() && !rule.arguments.is_empty()));
        // The filter decides by the first rule of a call: another one would be read and not hold.
        let numbers: BTreeSet<u32> = allowed.iter().map(|rule| rule.number).collect();
        assert_eq!(numbers.len(), allowed.len(), "a call has one rule");
        assert!(capabilities.iter().all(|c| c.number <= 4), "of files alone");
        let filter = service.filter();
        for nr in (0..600).filter(|nr| allowed.iter().all(|rule| rule.number != *nr)) {
            let call = Call { nr, arch: ARCH_X86_64, ip: 0x40_0000, args: [0; 6] };
            assert_eq!(interpret(&filter, &call), REFUSE, "{nr}");
        }
        let other = Call { nr: 0, arch: 0x4000_0003, ip: 0, args: [0; 6] };
        assert_eq!(interpret(&filter, &other), KILL_PROCESS);
        assert!(filter.len() < 4096, "the kernel's limit");
    }
}

#[test]
fn a_service_makes_internet_sockets_only() {
    for (domain, kind, protocol) in
        [(2, 1, 0), (10, 0x80801, 6), (2, 0x80002, 17), (10, 2, 58), (2, 0x802, 1)]
    {
        assert_eq!(of_service(41, [domain, kind, protocol, 0, 0, 0]), ALLOW, "{domain} {kind:#x} {protocol}");
    }
    // Raw ones, packets, netlink, local ones, VSOCK; MPTCP and SCTP; ICMP as a stream.
    for (domain, kind, protocol) in
        [(2, 3, 1), (17, 3, 3), (16, 2, 0), (1, 1, 0), (40, 1, 0), (2, 1, 262), (2, 1, 132), (2, 1, 1)]
    {
        assert_eq!(
            of_service(41, [domain, kind, protocol, 0, 0, 0]),
            REFUSE,
            "{domain} {kind:#x} {protocol}"
        );
    }
    assert_eq!(of_service(53, [1, 0x80801, 0, 0, 0, 0]), ALLOW);
    assert_eq!(of_service(53, [1, 5, 0, 0, 0, 0]), REFUSE);
    // TCP_NODELAY; SO_ATTACH_FILTER, SO_MARK, SO_BINDTODEVICE, TCP_ULP, IPT_SO_SET_REPLACE.
    assert_eq!(of_service(54, [9, 6, 1, 0, 0, 0]), ALLOW);
    for (level, option) in [(1, 26), (1, 36), (1, 25), (6, 31), (0, 64), (255, 1)] {
        assert_eq!(of_service(54, [9, level, option, 0, 0, 0]), REFUSE, "{level} {option}");
    }
}

#[test]
fn a_service_makes_no_code_and_signals_nobody() {
    assert_eq!(of_service(9, [0, 4096, 3, 0x22, u64::MAX, 0]), ALLOW);
    assert_eq!(of_service(9, [0, 4096, 7, 0x22, u64::MAX, 0]), REFUSE);
    assert_eq!(of_service(10, [0, 4096, 5, 0, 0, 0]), REFUSE);
    assert_eq!(of_service(234, [1, 1, 6, 0, 0, 0]), ALLOW);
    assert_eq!(of_service(234, [1, 1, 9, 0, 0, 0]), REFUSE);
    assert_eq!(of_service(62, [1, 9, 0, 0, 0, 0]), REFUSE);
}
