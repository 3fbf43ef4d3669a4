# Doppel. `make demo` and `make test` set everything up themselves.

DOPPEL := target/release/doppel
PYTEST := python3 -m pytest -q
# Where rustup puts cargo when `setup` installs it.
export PATH := $(HOME)/.cargo/bin:$(PATH)

.PHONY: setup build image image-servers demo test check bench

# Debian packages and the Rust toolchain.
setup:
	scripts/setup.sh

# The command, at target/release/doppel.
build: setup
	cargo build --release --locked -p doppel-cli

# The root images `debian` and `busybox`, in the image store.
image: build
	scripts/mkimages $(DOPPEL)

# The root image `servers`: databases, web servers, ssh, load generators.
image-servers: build
	scripts/mkimages $(DOPPEL) servers

# The main job: unmodified Debian programs in a domain.
demo: image
	scripts/demo $(DOPPEL)

test: image
	cargo test --workspace --locked --exclude doppel-guest-image
	$(PYTEST) tests

check: setup
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --exclude doppel-guest-image --locked -- -D warnings
	cargo clippy -p doppel-guest-image --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings -A rustdoc::private-intra-doc-links' cargo doc --workspace --no-deps --document-private-items --locked --quiet
	cargo run --quiet --locked -p xtask -- deny
	cargo run --quiet --locked -p xtask -- compat --check

bench: image
	python3 bench/run.py $(DOPPEL)
