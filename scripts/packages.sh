# Package lists shared by the set-up scripts. Sourced, not run.

# What the host needs. A path per package tells whether it is installed without asking dpkg.
host_packages=(mmdebstrap erofs-utils busybox-static musl-tools strace gdb runc crun python3-pytest gcc g++ libc6-dev make
    curl ca-certificates zstd docker-registry skopeo umoci)
host_files=(/usr/bin/mmdebstrap /usr/bin/mkfs.erofs /bin/busybox /usr/bin/musl-gcc /usr/bin/strace /usr/bin/gdb
    /usr/sbin/runc /usr/bin/crun /usr/bin/pytest-3 /usr/bin/gcc /usr/bin/g++ /usr/include/stdio.h /usr/bin/make
    /usr/bin/curl /etc/ssl/certs/ca-certificates.crt /usr/bin/zstd /usr/bin/docker-registry /usr/bin/skopeo /usr/bin/umoci)

# What the image `debian` holds beside the essential packages.
image_suite=bookworm
image_packages=(busybox bash coreutils findutils grep sed mawk tar gzip perl-base python3 libpython3-stdlib
    git gcc libc6-dev sqlite3 procps curl file less diffutils make xz-utils netbase ca-certificates)

# What the image `servers` holds beside the essential packages.
servers_packages=(redis-server redis-tools nginx-light wrk apache2-utils postgresql-15 postgresql-contrib sqlite3
    openssh-server openssh-client rsync stress-ng sysbench procps curl python3-minimal bash coreutils util-linux
    iproute2 ca-certificates busybox passwd dbench apache2-bin mariadb-server-core)

# What the image `runtimes` holds beside the essential packages: language runtimes, build tools, debuggers.
runtimes_packages=(busybox bash coreutils procps netbase python3-numpy libpython3.11-testsuite gcc libc6-dev make cmake perl
    tcl ruby php-cli openjdk-17-jdk-headless nodejs python3-pip python3-requests strace gdb libc6-dbg)
# What the image `browsers` holds: of its 1.3 GiB only the tests of `make test-all` need something.
browsers_packages=(chromium firefox-esr fonts-dejavu-core procps)

# Installs python3-venv where it is missing. Usage: need_venv WHO
need_venv() {
    python3 -c 'import ensurepip, venv' 2>/dev/null && return
    local sudo=()
    [ "$(id -u)" = 0 ] || sudo=(sudo)
    echo "$1: installing python3-venv"
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -qq -y \
        install --no-install-recommends python3-venv >/dev/null
}

# Makes target/NAME-venv with packages from PyPI, for scripts/setup-NAME. Quick when all is there; safe to run again.
# Usage: make_venv NAME PACKAGE..., in the repository's folder
make_venv() {
    local name=$1 venv=target/$1-venv
    shift
    [ -e "$venv/.done" ] && [ ! sdk/python/pyproject.toml -nt "$venv/.done" ] &&
        [ ! "scripts/setup-$name" -nt "$venv/.done" ] && return
    need_venv "setup-$name"
    echo "setup-$name: installing $* in $venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$@"
    touch "$venv/.done"
}
