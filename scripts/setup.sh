#!/bin/bash
# Installs the Debian packages that building and testing Doppel needs, and checks for Rust.
# Quick when all is there; safe to run again.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/packages.sh

missing=()
for i in "${!host_packages[@]}"; do
    [ -e "${host_files[$i]}" ] || missing+=("${host_packages[$i]}")
done
if [ ${#missing[@]} -gt 0 ]; then
    command -v apt-get >/dev/null || {
        echo "setup: this host has no apt-get; install the equivalents of: ${missing[*]}" >&2
        exit 1
    }
    sudo=()
    [ "$(id -u)" = 0 ] || sudo=(sudo)
    echo "setup: installing ${missing[*]}"
    install=(env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq -y
        install --no-install-recommends "${missing[@]}")
    # The package lists may be old or empty: fetch them only when the first try fails.
    "${sudo[@]}" "${install[@]}" >/dev/null 2>&1 || {
        "${sudo[@]}" apt-get -o DPkg::Lock::Timeout=300 -qq update
        "${sudo[@]}" "${install[@]}" >/dev/null
    }
fi
export PATH="$HOME/.cargo/bin:$PATH"
if ! command -v cargo >/dev/null; then
    # Rustup then fetches the version rust-toolchain.toml names, at the first build.
    echo "setup: installing Rust with rustup"
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y -q --profile minimal --default-toolchain none
fi
# The guest kernel is built for this target (rust-toolchain.toml). Without it the build falls back to a slower one.
bare=x86_64-unknown-none
if command -v rustup >/dev/null && [ ! -d "$(rustc --print target-libdir --target $bare 2>/dev/null)" ]; then
    echo "setup: installing the Rust target $bare"
    rustup target add $bare || echo "setup: cannot; the guest kernel will save vector registers at every call" >&2
fi
echo "setup: done"
