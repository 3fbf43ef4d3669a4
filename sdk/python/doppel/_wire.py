"""How values are written for the interface: commands, sizes, addresses, bodies."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any
from urllib.parse import quote

from .models import NetworkMembership, NetworkRate, NetworkRule

#: A command as a list is run as it is; as text it is run by the sandbox's own `/bin/sh -c`.
Command = str | Sequence[str]

DEFAULT_SOCKET = "/run/doppel/doppeld.sock"

#: What a sandbox runs if nothing else is asked for: a first process that collects orphans and ends when told to.
KEEP_ALIVE = ["/bin/sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 86400 & wait; done"]

_UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def argv(command: Command) -> list[str]:
    """Arguments of a command."""
    if isinstance(command, str):
        return ["/bin/sh", "-c", command]
    return list(command)


def size(value: int | str | None) -> int | None:
    """Bytes of a size as Docker writes it: `256m`, `1.5g`, or a number."""
    if value is None or isinstance(value, int):
        return value
    m = re.fullmatch(r"(\d+(?:\.\d+)?) ?([kmgt]?)i?b?", value.strip().lower())
    if not m:
        raise ValueError(f"{value!r} is not a size; say 268435456, '256m' or '1.5g'")
    return int(float(m[1]) * _UNITS[m[2]])


def present(**values: Any) -> dict[str, Any]:
    """The fields that were given: absent ones are left out of a body."""
    return {k: v for k, v in values.items() if v is not None}


def resources(
    cpus: float | None = None,
    memory: int | str | None = None,
    pids: int | None = None,
    cpu_weight: int | None = None,
    cpu_reservation: float | None = None,
    memory_reservation: int | str | None = None,
    disk: int | str | None = None,
) -> dict[str, Any]:
    """`Resources` of the interface. No bound: 0, or `unlimited` for memory and -1 for pids, as Docker says it."""
    return present(
        cpus=cpus,
        memory_bytes=0 if memory == "unlimited" else size(memory),
        pids=0 if pids == -1 else pids,
        cpu_weight=cpu_weight,
        cpu_reservation=cpu_reservation,
        memory_reservation_bytes=size(memory_reservation),
        disk_bytes=size(disk),
    )


def residency(
    hibernate_after: float | None = None,
    priority: int | None = None,
    pinned: bool | None = None,
    memory_wait: float | None = None,
) -> dict[str, Any] | None:
    """`Residency` of the interface, if anything is asked for."""
    asked = present(
        hibernate_after_seconds=hibernate_after, priority=priority, pinned=pinned, wait_seconds=memory_wait
    )
    return asked or None


#: Where files in memory are mounted: paths, or for each path its options as of mount(8) (`size=64m,exec`).
Tmpfs = Sequence[str] | Mapping[str, str]


#: Where volumes are mounted: for each path the name of a volume, or an absolute path of the supervisor's host; options
#: may follow a colon (`data:ro`).
Volumes = Mapping[str, str]


def _volume(target: str, text: str) -> dict[str, Any]:
    source, _, options = text.partition(":")
    bind = source.startswith("/")
    words = [o for o in options.split(",") if o]
    on_clone = [o.removeprefix("on-clone=") for o in words if o.startswith("on-clone=")]
    return present(
        type="bind" if bind else "volume",
        source=source or None,
        target=target,
        options=[o for o in words if o not in ("nocopy", "cached") and not o.startswith("on-clone=")],
        cached=(bind and "cached" in words) or None,
        no_copy="nocopy" in words or None,
        on_clone=on_clone[-1] if on_clone else None,
    )


def mounted(
    read_only: bool,
    tmpfs: Tmpfs,
    volumes: Volumes | None = None,
    persist: bool | str | None = None,
    disks: Sequence[str] = (),
) -> dict[str, Any] | None:
    """`Files` of the interface; none if nothing was said."""
    given = tmpfs if isinstance(tmpfs, Mapping) else dict.fromkeys(tmpfs, "")
    mounts = [
        {"type": "tmpfs", "target": target, "options": [o for o in options.split(",") if o]}
        for target, options in given.items()
    ]
    mounts += [_volume(target, text) for target, text in (volumes or {}).items()]
    layer = persist if isinstance(persist, str) else None
    kept = None if persist is None else bool(persist)
    devices = [present(name=disk.removesuffix(":ro"), read_only=disk.endswith(":ro") or None) for disk in disks]
    files = present(
        read_only=read_only or None,
        mounts=mounts or None,
        persist=kept,
        layer=layer,
        disks=devices or None,
    )
    return files or None


#: Ports of a sandbox to publish: any free port of the host for each, or for each port of the sandbox the host's.
Ports = Sequence[int] | Mapping[int, int | None]


#: Whether a sandbox has a network, which one by name, or several; with further names and addresses there.
Networks = bool | str | NetworkMembership | Sequence[str | NetworkMembership] | None


def membership(network: NetworkMembership) -> dict[str, Any]:
    """`NetworkMembership` of the interface."""
    return present(name=network.name, aliases=network.aliases or None, ip4=network.ip4, ip6=network.ip6)


def rules_of(rules: Sequence[NetworkRule]) -> list[dict[str, Any]]:
    """`NetworkRule`s of the interface."""
    return [present(**{f.name: getattr(rule, f.name) for f in fields(rule)}) for rule in rules]


def rate_of(rate: NetworkRate | None) -> dict[str, Any] | None:
    """`NetworkRate` of the interface."""
    return None if rate is None else present(sent=rate.sent, received=rate.received)


def network(
    ports: Ports | None,
    rules: Sequence[NetworkRule],
    allow: Sequence[str],
    dns: str | None,
    rate: NetworkRate | None,
    wanted: Networks,
    weight: int | None = None,
    guarantee: int | None = None,
) -> dict[str, Any] | None:
    """`Network` of the interface; none if nothing of it is asked for."""
    given = bool(ports or rules or allow) or any(one is not None for one in (dns, rate, weight, guarantee))
    if wanted is False or (wanted is None and not given):
        if given:
            raise ValueError("ports, rules, allow, network_rate and dns need a network; leave network=False out")
        return None
    pairs = ports.items() if isinstance(ports, Mapping) else ((p, None) for p in ports or ())
    mappings = [present(port=port, host_port=host_port) for port, host_port in pairs]
    name = wanted if isinstance(wanted, str) else None
    several = None
    if wanted is not None and not isinstance(wanted, str | bool):
        all_of_them = [wanted] if isinstance(wanted, NetworkMembership) else wanted
        several = [{"name": one} if isinstance(one, str) else membership(one) for one in all_of_them]
    return present(
        kind="nat",
        name=name,
        networks=several,
        ports=mappings,
        rules=rules_of(rules),
        allow=list(allow),
        rate=rate_of(rate),
        dns=dns,
        weight=weight,
        guarantee=guarantee,
    )


def strings(values: Mapping[str, str] | None) -> dict[str, str]:
    """Environment or labels."""
    return dict(values or {})


def seconds(value: float | None) -> int | None:
    """Whole seconds, rounded up: what takes half a second gets one."""
    return None if value is None else -int(-value // 1)


def segment(name: str) -> str:
    """A name as one segment of a path."""
    if not name or name in (".", ".."):
        raise ValueError(f"{name!r} is not a name")
    return quote(name, safe="")


def address(host: str | None) -> tuple[str | None, str]:
    """Socket (if it is one) and base URL of a supervisor: `unix:///path`, `/path`, `http(s)://host:port`."""
    host = host or os.environ.get("DOPPEL_HOST") or DEFAULT_SOCKET
    if host.startswith("unix://"):
        host = host.removeprefix("unix://")
    if host.startswith("/"):
        return host, "http://doppel"
    if not re.match(r"https?://[^/]", host):
        raise ValueError(f"{host!r} is no address; say unix:///path or https://host:port")
    return None, host.rstrip("/")
