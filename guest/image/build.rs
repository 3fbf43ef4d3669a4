//! Links the guest kernel at its fixed address, without libc or start files.
fn main() {
    let base = 0x7e80_0000_0000u64; // abi/machine layout::KERNEL_BASE
    for arg in [
        "-nostartfiles",
        "-nostdlib",
        "-static",
        "-no-pie",
        "-Wl,--build-id=none",
        "-Wl,-z,norelro",
        "-Wl,-z,noexecstack",
    ] {
        println!("cargo:rustc-link-arg-bins={arg}");
    }
    println!("cargo:rustc-link-arg-bins=-Wl,--image-base={base:#x}");
    println!("cargo:rerun-if-changed=build.rs");
}
