# Doppel. `make demo` and `make test` set everything up themselves.

DOPPEL := target/release/doppel
PYTEST := scripts/pytest -q
SDK_PYTEST := target/sdk-venv/bin/python -m pytest -q
# Where the tests keep their images, away from those of this host's user.
TEST_STORE := $(or $(DOPPEL_TEST_STORE),/var/lib/doppel-tests)
CARGO_TEST := cargo test --workspace --locked --no-fail-fast --exclude doppel-guest-image
# Where rustup puts cargo when `setup` installs it.
export PATH := $(HOME)/.cargo/bin:$(PATH)

.PHONY: setup build install image image-servers image-runtimes image-browsers test-images demo soak test test-quick test-linux test-system test-sdk test-all test-cgroup2 loom sanitize check bench

# Debian packages and the Rust toolchain.
setup:
	scripts/setup.sh

# The command and the supervisor, at target/release/doppel and doppeld.
build: setup
	cargo build --release --locked -p doppel-cli -p doppel-supervisor

# Both, with manual pages, completions and systemd units, below PREFIX (/usr/local).
install: build
	scripts/install target/release

# The root images `debian` and `busybox`, in the image store.
image: build
	scripts/mkimages $(DOPPEL)

# The root image `servers`: databases, web servers, ssh, load generators.
image-servers: build
	scripts/mkimages $(DOPPEL) servers

# The root image `runtimes`: language runtimes, build tools, debuggers.
image-runtimes: build
	scripts/mkimages $(DOPPEL) runtimes

# The root image `browsers` in that of the tests, for tests/domain/test_browsers.py, which only `make test-all` runs.
image-browsers: export DOPPEL_STORE = $(TEST_STORE)
image-browsers: build
	scripts/mkimages $(DOPPEL) browsers

# All of them, in the tests' own store.
test-images: export DOPPEL_STORE := $(TEST_STORE)
test-images: build
	scripts/mkimages $(DOPPEL) debian busybox servers runtimes

# The main job: unmodified Debian programs in a domain.
demo: image
	scripts/demo $(DOPPEL)

# The tests are built while images are made, which is mostly waiting.
test: export DOPPEL_STORE := $(TEST_STORE)
test: build
	$(CARGO_TEST) --no-run & $(MAKE) test-images && wait $$!
	$(MAKE) -j2 --output-sync loom test-sdk
	cargo run --quiet --locked -p xtask -- vectors
	$(CARGO_TEST); rust=$$?; scripts/test-python && exit $$rust

# The layers of `make test` one by one (docs/testing.md), each with its duration.
# Unit tests, among them those of the guest kernel's algorithms and file systems: no image, no domain, no root.
test-quick:
	scripts/timed 'unit tests' $(CARGO_TEST) --lib --bins
	scripts/timed 'file systems, processes' cargo test --locked -p doppel-erofs -p doppel-sys --tests

# The conformance suites in C, natively and in a domain.
test-linux: export DOPPEL_STORE := $(TEST_STORE)
test-linux: build
	scripts/timed 'conformance' $(PYTEST) --durations=10 tests/linux

# The other Python tests: programs, networks, supervisor, security. They take the images of the tests (`make test-images`).
test-system: export DOPPEL_STORE := $(TEST_STORE)
test-system: test-images
	scripts/timed 'system' scripts/test-python --ignore=tests/linux

# The Python SDK: its tests, mypy and ruff.
test-sdk: test-images
	scripts/setup-sdk
	$(SDK_PYTEST) sdk/python/tests

# The scheduler's wait protocol and the rings under all interleavings (guest/algo/src/park/model.rs, common/ring/src/model.rs).
loom: setup
	RUSTFLAGS='--cfg loom' cargo test --quiet --release --locked --lib -p doppel-algo --target-dir target/loom park::model
	RUSTFLAGS='--cfg loom' cargo test --quiet --release --locked --lib -p doppel-ring --target-dir target/loom model

# With the tests that take too long for every day.
test-all: export TEST_ALL = 1
test-all: test

# Limits and accounts in a virtual machine with control groups v2 alone, emulated: half an hour; no part of CI.
test-cgroup2: test-images
	scripts/test-cgroup2 $(DOPPEL)

# The tests of rings, channels and the network service with AddressSanitizer; no part of CI.
sanitize: setup
	scripts/sanitize

check: setup
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --exclude doppel-guest-image --locked -- -D warnings
	cargo clippy -p doppel-guest-image --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings -A rustdoc::private-intra-doc-links' cargo doc --workspace --no-deps --document-private-items --locked --quiet
	cargo run --quiet --locked -p xtask -- deny
	cargo run --quiet --locked -p xtask -- compat --check
	cargo run --quiet --locked -p xtask -- layers
	scripts/check_docs.py
	scripts/check-fuzz
	cargo test --quiet --locked -p doppel-supervisor --lib the_sdk
	scripts/lint-python
	$(PYTEST) --quiet --collect-only tests

bench: image image-servers image-runtimes
	scripts/bench-setup
	cargo build --release --locked -p doppel-net --example byzantine
	python3 bench/run.py $(DOPPEL)

# Servers and stressors for about an hour in one domain, 10,000 freezes with clones, 100 deaths of the supervisor in the
# middle of each of its operations, 200 kills of the keeper of 50 busy
# domains, 10,000 domains made and removed, 1,000 at once, with and without networks, 10,000
# connections to one; each with a look for leaks.
# Fuzz targets for ten minutes each, and the supervisor's interface from its OpenAPI document.
soak: export DOPPEL_STORE := $(TEST_STORE)
soak: test-images
	DOPPEL_FAULT_ROUNDS=100 DOPPEL_FAULT_CYCLES=10000 DOPPEL_SERVERS=1000 $(PYTEST) tests/supervisor/test_supervisor_faults.py \
	    tests/supervisor/test_pull_faults.py tests/supervisor/test_repeated.py tests/supervisor/test_many_servers.py \
	    tests/supervisor/test_networked_domains.py
	DOPPEL_KEEPER_KILLS=200 DOPPEL_KEPT_DOMAINS=50 $(PYTEST) tests/supervisor/test_keeper_kills.py tests/supervisor/test_exec_kills.py \
	    tests/supervisor/test_networked_kills.py
	DOPPEL_CONNECTIONS=10000 $(PYTEST) tests/domain/test_network_programs.py -k many_connections
	DOPPEL_DATABASE_KILLS=200 $(PYTEST) tests/supervisor/test_kept_databases.py
	DOPPEL_LAYER_KILLS=200 $(PYTEST) tests/domain/test_layer_memory.py
	DOPPEL_POWER_CUTS=200 cargo test --locked -p doppel-layer --test power_cut
	scripts/fuzz 600
	tests/soak_api.py --minutes 10
	tests/soak_freezer.py $(DOPPEL)
	tests/soak.py $(DOPPEL)
