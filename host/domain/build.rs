//! Builds the guest kernel ELF, which this crate embeds.
//!
//! It is a separate program with a profile of its own, so it is built by a second cargo in a target
//! directory of its own (the outer one is locked). Debug builds of the host embed no kernel unless
//! `DOPPEL_EMBED_KERNEL=1`, so that checking the host does not compile the guest; such a binary needs
//! `doppel run --kernel FILE`.

#[path = "src/launch/elf.rs"]
mod elf;
#[path = "src/launch/symbols.rs"]
mod symbols;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where the compiler uses no vector registers by itself: the fast entry then need not save any.
const BARE: &str = "x86_64-unknown-none";
/// Where it does; the kernel's entry code then keeps xmm0-15 (guest/machine/src/cpu/fast.rs).
const WITH_SSE: &str = "x86_64-unknown-linux-gnu";

fn main() {
    let var = |name: &str| std::env::var(name).unwrap_or_default();
    let root = PathBuf::from(var("CARGO_MANIFEST_DIR")).join("../..");
    let out = PathBuf::from(var("OUT_DIR"));
    println!("cargo::rerun-if-env-changed=DOPPEL_EMBED_KERNEL");
    println!("cargo::rerun-if-changed=build.rs");

    let embed = match var("DOPPEL_EMBED_KERNEL").as_str() {
        "1" => true,
        "0" => false,
        _ => var("PROFILE") == "release",
    };
    println!("cargo::rerun-if-changed=src/launch/elf.rs");
    println!("cargo::rerun-if-changed=src/launch/symbols.rs");
    let (bytes, gates) = if embed {
        for path in [
            "guest",
            "common/abi",
            "common/ring",
            "common/erofs",
            "common/layer",
            "common/tar",
            "common/unwind",
            "Cargo.toml",
            "Cargo.lock",
            "rust-toolchain.toml",
        ] {
            println!("cargo::rerun-if-changed={}", root.join(path).display());
        }
        let path = build_kernel(&root, &out, &var("CARGO"));
        let bytes = std::fs::read(&path).expect("cannot read the guest kernel");
        let gates = elf::gates(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let table = symbols::table(&bytes).expect("was parsed before");
        let trimmed = elf::trim(bytes).expect("was parsed before");
        let wide = elf::widen(trimmed).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let whole = symbols::attach(wide, &table).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        (whole, gates)
    } else {
        (Vec::new(), elf::Gates { syscall: 0, syscall_end: 0, sigreturn_end: 0 })
    };
    let write =
        |name: &str, bytes: &[u8]| std::fs::write(out.join(name), bytes).expect("cannot write to OUT_DIR");
    write("kernel.elf", &bytes);
    write("kernel_digest.rs", format!("{:#x}", elf::digest(&bytes)).as_bytes());
    write("kernel_gates.rs", format!("{gates:?}").as_bytes());
}

/// Whether the standard libraries of a target are installed (rust-toolchain.toml and scripts/setup.sh see to it).
fn has_target(target: &str) -> bool {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(["--print", "target-libdir", "--target", target]).output();
    output.is_ok_and(|o| {
        o.status.success() && Path::new(String::from_utf8_lossy(&o.stdout).trim()).join("").is_dir()
    })
}

fn build_kernel(root: &Path, out: &Path, cargo: &str) -> PathBuf {
    // OUT_DIR is <target>/<profile>/build/<package>/out.
    let target = out.ancestors().nth(4).unwrap_or(out).join("kernel");
    let bare = has_target(BARE);
    if !bare {
        println!(
            "cargo::warning=the guest kernel is slower than it could be: `rustup target add {BARE}` is missing"
        );
    }
    let mut command = Command::new(cargo);
    command
        .current_dir(root)
        .args([
            "build",
            "--profile",
            "kernel",
            "-p",
            "doppel-guest-image",
            "--target",
            if bare { BARE } else { WITH_SSE },
        ])
        .args(["--message-format", "json-render-diagnostics", "--target-dir"])
        .arg(&target)
        .stderr(Stdio::inherit());
    // The outer cargo's settings are for the host program.
    for (name, _) in std::env::vars() {
        let ours = ["CARGO_HOME", "CARGO_BUILD_JOBS", "CARGO_NET_OFFLINE", "CARGO_TERM_COLOR"];
        if (name.starts_with("CARGO") && !ours.contains(&name.as_str()) && !name.starts_with("CARGO_REGISTR"))
            || ["RUSTFLAGS", "RUSTC", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "CLIPPY_ARGS"]
                .contains(&name.as_str())
        {
            command.env_remove(name);
        }
    }
    // Long loops are not written out many times, as opt-level 3 has them: 20 KiB of code less. With opt-level 2 small reads and writes take a third longer.
    command.env("RUSTFLAGS", "-Cllvm-args=-unroll-threshold=40");
    let output = command.output().unwrap_or_else(|error| panic!("cannot run {cargo}: {error}"));
    assert!(output.status.success(), "building the guest kernel failed: see the messages above");
    // One JSON message a line; only the one program has an "executable".
    let messages = String::from_utf8(output.stdout).expect("cargo writes UTF-8");
    let executable = messages.lines().find_map(|line| {
        let (_, rest) = line.split_once("\"executable\":\"")?;
        rest.split_once('"').map(|(path, _)| PathBuf::from(path))
    });
    executable.expect("cargo named no executable")
}
