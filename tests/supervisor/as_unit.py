#!/usr/bin/env python3
"""Runs a program as systemd would run a unit's, as far as its confinement goes: `as_unit.py UNIT[,DROPIN...] WRITABLE
PROGRAM...`.

systemd itself need not run: mounts, capabilities, file mode mask and system calls are made here from the unit's
settings. WRITABLE is a directory that stands for those that the unit may write. A setting this knows nothing of is an
error.
"""

import ctypes
import errno
import os
import pathlib
import platform
import struct
import subprocess
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
# What confines nobody.
OTHER = """Type ExecStart ExecReload Restart RestartSec KillMode Delegate LimitNOFILE TasksMax OOMScoreAdjust RuntimeDirectory
RuntimeDirectoryPreserve StateDirectory SystemCallErrorNumber DevicePolicy DeviceAllow PrivateMounts""".split()  # noqa: E501
NUMBERS = {
    "clone": 56,
    "unshare": 272,
    "setns": 308,
    "clone3": 435,
    "socket": 41,
    "sethostname": 170,
    "setdomainname": 171,
    "personality": 135,
}
FAMILIES = {"AF_UNIX": 1, "AF_INET": 2, "AF_INET6": 10, "AF_NETLINK": 16, "AF_PACKET": 17}
# Calls that give a mode, and which argument it is.
MODES = {
    "chmod": (90, 1),
    "fchmod": (91, 1),
    "fchmodat": (268, 2),
    "mkdir": (83, 1),
    "mkdirat": (258, 2),
    "mknod": (133, 1),
    "mknodat": (259, 2),
}


def call(name, *args):
    if getattr(LIBC, name)(*args) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}", str(args))


def settings(files):
    """Values of `[Service]`, in their order: lists add up, ~ takes away, an empty one begins anew."""
    found = {}
    for file in files:
        section = ""
        for line in pathlib.Path(file).read_text().splitlines():
            if line.startswith("["):
                section = line
            elif section == "[Service]" and "=" in line and not line.startswith("#"):
                name, value = line.split("=", 1)
                found[name] = [] if value == "" else [*found.get(name, []), value]
    return found


def names(values):
    """A list as a set; whether it says what is denied."""
    got, deny = set(), values[0].startswith("~") if values else False
    for value in values:
        words = set(value.lstrip("~").split())
        got = got - words if value.startswith("~") != deny else got | words
    return got, deny


def calls(group):
    """System calls of a group of systemd's."""
    if not group.startswith("@"):
        return {group}
    lines = subprocess.run(
        ["systemd-analyze", "syscall-filter", group], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    words = {line.strip() for line in lines[1:] if line.strip() and not line.strip().startswith("#")}
    return set().union(*(calls(word) for word in words))


def number_of(name):
    """A call's number on this machine; none if it has no such call."""
    for header in ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm/unistd_64.h"):
        if os.path.exists(header):
            for line in open(header):
                words = line.split()
                if words[:2] == ["#define", f"__NR_{name}"]:
                    return int(words[2])
            return None
    raise FileNotFoundError("asm/unistd_64.h")


def mount(source, target, kind=None, flags=0, data=None):
    encode = lambda text: text.encode() if text is not None else None
    call("mount", encode(source), encode(target), encode(kind), flags, encode(data))


BIND, REC, PRIVATE, RDONLY, REMOUNT, NOSUID, NODEV, NOEXEC = 0x1000, 0x4000, 0x40000, 1, 32, 2, 4, 8


def read_only(path, yes):
    """A mount and all below it."""
    attributes = struct.pack("QQQQ", 1 if yes else 0, 0 if yes else 1, 0, 0)
    if LIBC.syscall(442, -100, path.encode(), 0x8000, attributes, len(attributes)) < 0:
        raise OSError(ctypes.get_errno(), path)


def mounts(unit, writable):
    """Each directory that stays as it is becomes a mount of its own, then the root is made read-only around them."""
    yes = lambda name: unit.get(name, ["no"])[-1] in ("yes", "true")
    call("unshare", 0x20000)
    mount(None, "/", None, REC | PRIVATE)
    if unit.get("ProtectProc", ["default"])[-1] != "default":
        mount("proc", "/proc", "proc", NOSUID | NODEV | NOEXEC, f"hidepid={unit['ProtectProc'][-1]}")
    if yes("PrivateDevices"):
        devices = "/run/doppel-test-dev"
        os.makedirs(devices, exist_ok=True)
        mount("tmpfs", devices, "tmpfs", NOSUID, "mode=755")
        for name in ("null", "zero", "full", "random", "urandom", "tty"):
            open(f"{devices}/{name}", "w").close()
            mount(f"/dev/{name}", f"{devices}/{name}", None, BIND)
        os.symlink("/proc/self/fd", f"{devices}/fd")
        for name in ("shm", "pts", "mqueue"):
            if os.path.isdir(f"/dev/{name}"):
                os.mkdir(f"{devices}/{name}")
                mount(f"/dev/{name}", f"{devices}/{name}", None, BIND | REC)
        os.symlink("pts/ptmx", f"{devices}/ptmx")
        mount(devices, "/dev", None, BIND | REC)
    kept = ["/dev", "/proc", "/sys", "/run/doppel", writable]
    assert unit["ProtectSystem"][-1] == "strict"
    for path in kept:
        os.makedirs(path, exist_ok=True)
        if not os.path.ismount(path):
            mount(path, path, None, BIND | REC)
    read_only("/", True)
    for path in kept:
        read_only(path, False)
    if yes("PrivateTmp"):
        for path in ("/tmp", "/var/tmp"):
            mount("tmpfs", path, "tmpfs", NOSUID | NODEV)
    if unit.get("ProtectHome", ["no"])[-1] == "yes":
        for path in ("/home", "/root"):
            mount("tmpfs", path, "tmpfs", RDONLY, "mode=000")
    if yes("ProtectKernelTunables"):
        for path in ("/proc/sys", "/proc/irq", "/proc/fs", "/sys"):
            if path != "/sys" and os.path.isdir(path):
                mount(path, path, None, BIND | REC)
            read_only(path, True)
        if not yes("ProtectControlGroups"):
            read_only("/sys/fs/cgroup", False)


def load(number):
    return [(0x20, 0, 0, number)]


def filters(unit):
    """Instructions for seccomp; who gets past all of them may make the call."""
    yes = lambda name: unit.get(name, ["no"])[-1] in ("yes", "true")
    program = []
    refuse = lambda number: (0x06, 0, 0, 0x50000 | number)

    def rule(nr, *test):
        """A test is instructions whose last jumps over a refusal that follows."""
        program.extend([*load(0), (0x15, 0, len(test), nr), *test])

    denied, deny = names(unit.get("SystemCallFilter", []))
    assert deny or not denied
    for name in sorted(set().union(*map(calls, denied)) if denied else ()):
        if (nr := number_of(name)) is not None:
            rule(nr, refuse(errno.EPERM))
    families, deny = names(unit.get("RestrictAddressFamilies", []))
    assert families and not deny
    allowed = [FAMILIES[f] for f in sorted(families)]
    jumps = [(0x15, len(allowed) - i, 0, family) for i, family in enumerate(allowed)]
    rule(NUMBERS["socket"], *load(16), *jumps, refuse(errno.EAFNOSUPPORT))
    if yes("ProtectHostname"):
        for name in ("sethostname", "setdomainname"):
            rule(NUMBERS[name], refuse(errno.EPERM))
    if yes("LockPersonality"):
        rule(NUMBERS["personality"], *load(16), (0x15, 2, 0, 0), (0x15, 1, 0, 0xFFFFFFFF), refuse(errno.EPERM))
    if yes("RestrictSUIDSGID"):
        for nr, argument in MODES.values():
            rule(nr, *load(16 + 8 * argument), (0x45, 0, 1, 0o6000), refuse(errno.EPERM))
    return [*program, (0x06, 0, 0, 0x7FFF0000)]


def capabilities(unit):
    """Takes those away that the set has not; settings of systemd's take some, too."""
    kept, deny = names(unit["CapabilityBoundingSet"])
    assert not deny
    yes = lambda name: unit.get(name, ["no"])[-1] in ("yes", "true")
    if yes("PrivateDevices"):
        kept -= {"CAP_MKNOD", "CAP_SYS_RAWIO"}
    if yes("ProtectClock"):
        kept -= {"CAP_SYS_TIME", "CAP_WAKE_ALARM"}
    header = "/usr/include/linux/capability.h"
    numbers = dict(
        line.split()[1:3]
        for line in open(header)
        if line.startswith("#define CAP_") and line.split()[2:] and line.split()[2].isdigit()
    )
    keep = {int(numbers[name]) for name in kept}
    for capability in range(int(pathlib.Path("/proc/sys/kernel/cap_last_cap").read_text()) + 1):
        if capability not in keep:
            call("prctl", 24, capability, 0, 0, 0)
    # What execve gives root is bounded by that.


def main():
    files, writable, program = sys.argv[1].split(","), sys.argv[2], sys.argv[3:]
    assert platform.machine() == "x86_64"
    unit = settings(files)
    known = {
        "NoNewPrivileges",
        "CapabilityBoundingSet",
        "UMask",
        "ProtectSystem",
        "ProtectHome",
        "PrivateTmp",
        "PrivateDevices",
        "ProtectProc",
        "ProtectKernelTunables",
        "ProtectKernelModules",
        "ProtectKernelLogs",
        "ProtectClock",
        "ProtectHostname",
        "ProtectControlGroups",
        "LockPersonality",
        "RestrictAddressFamilies",
        "RestrictSUIDSGID",
        "SystemCallFilter",
        *OTHER,
    }
    assert set(unit) <= known, f"settings unknown here: {set(unit) - known}"
    instructions = filters(unit)
    mounts(unit, writable)
    capabilities(unit)
    if "UMask" in unit:
        os.umask(int(unit["UMask"][-1], 8))
    call("prctl", 38, 1, 0, 0, 0)
    code = b"".join(struct.pack("HBBI", *one) for one in instructions)
    memory = ctypes.create_string_buffer(code, len(code))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(instructions), ctypes.addressof(memory)))
    call("prctl", 22, 2, header, 0, 0)
    os.execv(program[0], program)


main()
