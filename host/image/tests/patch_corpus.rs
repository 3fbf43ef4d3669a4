//! Patching real programs: what differs is only what the trampolines stand for, and another run gives the same.
//!
//! Files that are not on this machine are passed over, which the test says. With `--nocapture`, prints the table of `docs/images.md`.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use doppel_image::patch::{Scan, check, scan};
use iced_x86::{Decoder, DecoderOptions, Mnemonic};

/// Disassembles what was patched, independently of the code that wrote it.
fn jumps_land(patched: &doppel_image::patch::Patched, original: &[u8]) {
    let decode = |bytes: &[u8], ip: u64| Decoder::with_ip(64, bytes, ip, DecoderOptions::NONE).decode();
    let slots = u64::from(patched.rule_a + patched.rule_b);
    let mut used = vec![false; slots as usize];
    let mut at = 0;
    while at < original.len() {
        if original[at] == patched.text[at] {
            at += 1;
            continue;
        }
        // The first byte that differs is the opcode, except where only an operand does: neither rule does that.
        let ip = patched.distance + at as u64;
        let jump = decode(&patched.text[at..], ip);
        assert_eq!(jump.mnemonic(), Mnemonic::Jmp, "at {at:#x}");
        let mut target = jump.near_branch_target();
        if jump.len() == 2 {
            let hole = target - patched.distance;
            let far = decode(&patched.text[hole as usize..], target);
            assert_eq!((far.mnemonic(), far.len()), (Mnemonic::Jmp, 5));
            target = far.near_branch_target();
        }
        assert_eq!(target % 32, 0);
        let slot = target / 32;
        assert!(slot < slots, "jump at {at:#x} leaves the trampolines");
        let wide = original[at..].starts_with(&[0x48, 0xc7, 0xc0]);
        if jump.len() == 2 || original[at] == 0xb8 || wide {
            assert!(!used[slot as usize], "two sites share a trampoline");
            used[slot as usize] = true;
        }
        let code = &patched.trampolines[target as usize..];
        let load = decode(code, target);
        assert!(matches!(load.mnemonic(), Mnemonic::Mov | Mnemonic::Nop));
        let lea = decode(&code[5..], target + 5);
        assert_eq!((lea.mnemonic(), lea.len()), (Mnemonic::Lea, 7));
        let back = lea.ip_rel_memory_address();
        assert_eq!(original[(back - patched.distance) as usize - 2..][..2], [0x0f, 0x05]);
        let go = decode(&code[12..], target + 12);
        assert_eq!((go.mnemonic(), go.len(), go.memory_displacement64()), (Mnemonic::Jmp, 8, 48));
        if wide {
            // The same number in the trampoline, sign-extended or not; and the rest of the instruction stays.
            let number = decode(&original[at..], ip).immediate(1);
            assert_eq!(load.immediate(1), number);
            assert_eq!(patched.text[at + 5..at + 9], original[at + 5..at + 9]);
        }
        at += jump.len();
    }
    assert!(used.iter().all(|u| *u), "a trampoline nobody jumps to");
}

fn round_trip(name: &str, path: &Path) -> Option<Scan> {
    let file = fs::read(path).ok()?;
    let scan_of = scan(&file).unwrap_or_else(|| panic!("{name} is an ELF file"));
    let again = scan(&file).unwrap();
    assert_eq!(scan_of.patched, again.patched, "{name}: two runs differ");
    if let Some(p) = &scan_of.patched {
        let end = file.len().min(p.segment as usize + p.text.len());
        let mut original = file[p.segment as usize..end].to_vec();
        original.resize(p.text.len(), 0);
        assert_eq!(check(&original, &p.text, &p.trampolines, p.distance), Ok((p.rule_a, p.rule_b)), "{name}");
        jumps_land(p, &original);
        assert_eq!(p.rule_a + p.rule_b + scan_of.trapped.len() as u32, scan_of.sites, "{name}");
    }
    Some(scan_of)
}

/// Builds small programs with the toolchains that are here.
fn built(dir: &Path) -> Vec<(&'static str, PathBuf)> {
    fs::write(dir.join("a.c"), "#include <stdio.h>\nint main(void) { return puts(\"hello\") < 0; }\n")
        .unwrap();
    fs::write(dir.join("a.rs"), "fn main() { println!(\"hello\"); }\n").unwrap();
    fs::write(
        dir.join("a.go"),
        "package main\nimport (\"fmt\"; \"net\"; \"os\")\nfunc main() { fmt.Println(os.Args); net.Dial(\"tcp\", \"[::1]:1\") }\n",
    )
    .unwrap();
    let mut made = Vec::new();
    let commands: [(&str, &[&str], &str); 4] = [
        ("musl static (musl-gcc)", &["musl-gcc", "-static", "-O2", "-o", "musl", "a.c"], "musl"),
        ("Rust", &["rustc", "-O", "-o", "rust", "a.rs"], "rust"),
        ("Go, static", &["go", "build", "-o", "go", "a.go"], "go"),
        ("Go, static, stripped", &["go", "build", "-ldflags=-s -w", "-o", "gos", "a.go"], "gos"),
    ];
    for (name, command, out) in commands {
        let cache = std::env::temp_dir().join("doppel-go-cache");
        let mut c = Command::new(command[0]);
        c.args(&command[1..]).current_dir(dir).env("CGO_ENABLED", "0").env("GOCACHE", cache);
        match c.output() {
            Ok(o) if o.status.success() => made.push((name, dir.join(out))),
            Ok(o) => println!("absent: {name}: {} fails: {}", command[0], String::from_utf8_lossy(&o.stderr)),
            Err(e) => println!("absent: {name}: no {}: {e}", command[0]),
        }
    }
    made
}

#[test]
fn real_programs() {
    let temp = tempfile::tempdir().unwrap();
    let java = "/usr/lib/jvm/java-17-openjdk-amd64/lib";
    let mut files: Vec<(&str, PathBuf)> = vec![
        ("glibc `libc.so.6`", "/lib/x86_64-linux-gnu/libc.so.6".into()),
        ("glibc `ld.so`", "/lib64/ld-linux-x86-64.so.2".into()),
        ("busybox, static", "/bin/busybox".into()),
        ("musl `libc.so`", "/lib/x86_64-linux-musl/libc.so".into()),
    ];
    files.extend(built(temp.path()));
    files.extend([
        ("Node.js", "/usr/bin/node".into()),
        ("Node.js `libuv.so`", "/usr/lib/x86_64-linux-gnu/libuv.so.1".into()),
        ("Node.js `libnode.so`", "/usr/lib/x86_64-linux-gnu/libnode.so.108".into()),
        ("OpenJDK `libjvm.so`", format!("{java}/server/libjvm.so").into()),
        ("OpenJDK `libjava.so`", format!("{java}/libjava.so").into()),
        ("Temurin 25 `libjvm.so`", "/usr/lib/jvm/temurin-25-jdk-amd64/lib/server/libjvm.so".into()),
        ("GCC `libgomp.so`", "/usr/lib/x86_64-linux-gnu/libgomp.so.1".into()),
        ("GCC `libasan.so`", "/usr/lib/x86_64-linux-gnu/libasan.so.8".into()),
        ("gdb", "/usr/bin/gdb".into()),
    ]);
    let mut seen = 0;
    println!("| file | sites | rule a | rule b | trap | why |\n|---|---|---|---|---|---|");
    for (name, path) in files {
        let Some(s) = round_trip(name, &path) else {
            println!("absent: {name}: no {}", path.display());
            continue;
        };
        seen += 1;
        let (a, b) = s.patched.as_ref().map_or((0, 0), |p| (p.rule_a, p.rule_b));
        assert!(s.refused.is_none(), "{name}: {:?}", s.refused);
        let mut count: BTreeMap<String, u32> = BTreeMap::new();
        for (_, reason) in &s.trapped {
            *count.entry(format!("{reason:?}")).or_default() += 1;
        }
        let why: Vec<_> = count.iter().map(|(why, n)| format!("{n} {why}")).collect();
        println!("| {name} | {} | {a} | {b} | {} | {} |", s.sites, s.trapped.len(), why.join(", "));
    } // glibc's library and loader are wherever this test runs.
    assert!(seen >= 2);
}
