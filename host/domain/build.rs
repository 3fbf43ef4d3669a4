//! Builds the guest kernel ELF, which this crate embeds.
//!
//! It is a separate program with a profile of its own, so it is built by a second cargo in a target
//! directory of its own (the outer one is locked). Debug builds of the host embed no kernel unless
//! `DOPPEL_EMBED_KERNEL=1`, so that checking the host does not compile the guest; such a binary needs
//! `doppel run --kernel FILE`.

use std::path::{Path, PathBuf};
use std::process::Command;

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
    let kernel = if embed {
        for path in ["guest", "abi", "Cargo.toml", "Cargo.lock", "rust-toolchain.toml"] {
            println!("cargo::rerun-if-changed={}", root.join(path).display());
        }
        build_kernel(&root, &out, &var("CARGO"))
    } else {
        let empty = out.join("no-kernel");
        std::fs::write(&empty, []).expect("cannot write to OUT_DIR");
        empty
    };
    println!("cargo::rustc-env=DOPPEL_KERNEL_ELF={}", kernel.display());
}

fn build_kernel(root: &Path, out: &Path, cargo: &str) -> PathBuf {
    // OUT_DIR is <target>/<profile>/build/<package>/out.
    let target = out.ancestors().nth(4).unwrap_or(out).join("kernel");
    let mut command = Command::new(cargo);
    command
        .current_dir(root)
        .args(["build", "--profile", "kernel", "-p", "doppel-guest-image", "--target-dir"])
        .arg(&target);
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
    let status = command.status().unwrap_or_else(|error| panic!("cannot run {cargo}: {error}"));
    assert!(status.success(), "building the guest kernel failed: see the messages above");
    let kernel = target.join("kernel/doppel-kernel");
    assert!(kernel.is_file(), "the guest kernel is not at {}", kernel.display());
    kernel
}
