//! Links the guest kernel at its fixed address, without libc or start files: code and constants in one segment of
//! whole 2 MiB blocks, data behind it, so that the host can map the first with huge pages.
fn main() {
    let base = 0x7e80_0000_0000u64; // common/abi/machine layout::KERNEL_BASE
    let bare = std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "none");
    // The linker itself for the bare target, the C compiler in front of it otherwise.
    let linker = ["--build-id=none", "-znorelro", "-znoexecstack", "-no-pie"];
    for arg in linker {
        match bare || arg == "-no-pie" {
            true => println!("cargo:rustc-link-arg-bins={arg}"),
            false => println!("cargo:rustc-link-arg-bins=-Wl,{arg}"),
        }
    }
    if bare {
        println!("cargo:rustc-link-arg-bins=--image-base={base:#x}");
        // Functions with the same code are one (generic ones of many types are): the less there is, the
        // more of it the CPU's caches hold. Nothing compares addresses of functions.
        let layout =
            ["--no-rosegment", "-zmax-page-size=0x200000", "-zseparate-loadable-segments", "--icf=all"];
        for arg in layout {
            println!("cargo:rustc-link-arg-bins={arg}");
        }
    } else {
        for arg in ["-nostartfiles", "-nostdlib", "-static"] {
            println!("cargo:rustc-link-arg-bins={arg}");
        }
        println!("cargo:rustc-link-arg-bins=-Wl,--image-base={base:#x}");
    }
    println!("cargo:rerun-if-changed=build.rs");
}
