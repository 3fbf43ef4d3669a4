"""What the supervisor answers, as dataclasses.

Field for field the structs of the interface (`host/api`, `host/spec`); names are its own. `decode` makes them from
JSON. Fields that a newer supervisor adds are ignored, and so are kinds it adds to an enumeration: such a value is
then a member made on the spot, so that an older client goes on reading.
"""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")


class _Open(enum.StrEnum):
    """An enumeration that may grow."""

    @classmethod
    def _missing_(cls, value: object) -> _Open | None:
        if not isinstance(value, str):
            return None
        member = str.__new__(cls, value)
        member._name_ = value.upper()
        member._value_ = value
        return member


class Kind(_Open):
    """Sort of domain."""

    PARA = "para"
    PAENE = "paene"


class DomainState(_Open):
    """Where a sandbox is in its life."""

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    HIBERNATED = "hibernated"
    EXITED = "exited"
    RESTARTING = "restarting"
    DEAD = "dead"


class HealthState(_Open):
    """What the last health checks said."""

    STARTING = "starting"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


class NetworkKind(_Open):
    """What a sandbox has beside its own loopback."""

    NONE = "none"
    NAT = "nat"


class RuleAction(_Open):
    """What a rule of the network does."""

    ALLOW = "allow"
    DENY = "deny"


class RuleDirection(_Open):
    """Which way a rule of the network looks."""

    OUT = "out"
    IN = "in"


class Protocol(_Open):
    """What travels through a port."""

    TCP = "tcp"
    UDP = "udp"


class FileKind(_Open):
    """Kind of a file."""

    FILE = "file"
    DIRECTORY = "directory"
    SYMLINK = "symlink"
    OTHER = "other"


class FileChangeKind(_Open):
    """What happened to a file."""

    CREATED = "created"
    MODIFIED = "modified"
    REMOVED = "removed"


class OperationState(_Open):
    """Where an operation is in its life."""

    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class EventKind(_Open):
    """What happened."""

    CREATE = "create"
    START = "start"
    DIE = "die"
    OOM = "oom"
    STOP = "stop"
    KILL = "kill"
    PAUSE = "pause"
    UNPAUSE = "unpause"
    RESTART = "restart"
    RENAME = "rename"
    UPDATE = "update"
    REMOVE = "remove"
    EXEC_START = "exec_start"
    EXEC_DIE = "exec_die"
    HEALTH = "health"
    FREEZE = "freeze"
    CLONE = "clone"
    HIBERNATE = "hibernate"
    WAKE = "wake"
    IMAGE_PULL = "image_pull"
    IMAGE_PUSH = "image_push"
    IMAGE_IMPORT = "image_import"
    IMAGE_REMOVE = "image_remove"
    FIREWALL = "firewall"
    ADOPT = "adopt"


@dataclass(frozen=True, slots=True, kw_only=True)
class IoDevice:
    """Most that may be moved to and from a block device in a second; 0 is no limit."""

    device: str
    read_bps: int | None = None
    write_bps: int | None = None
    read_iops: int | None = None
    write_iops: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a sandbox may use; `None` is without limit."""

    cpus: float | None = None
    cpu_weight: int | None = None
    cpu_reservation: float | None = None
    memory_bytes: int | None = None
    memory_reservation_bytes: int | None = None
    memory_target_bytes: int | None = None
    pids: int | None = None
    io_weight: int | None = None
    io_devices: list[IoDevice] = field(default_factory=list)
    disk_bytes: int | None = None
    disk_inodes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """A command that tells whether a sandbox is well: exit code 0."""

    command: list[str]
    interval_seconds: float = 30.0
    timeout_seconds: float = 30.0
    start_period_seconds: float = 0.0
    retries: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTarget:
    """Limits of the log files."""

    max_bytes: int = 10 << 20
    max_files: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PortMapping:
    """A port of the host that leads to one of a sandbox."""

    port: int
    host_port: int | None = None
    host_address: str | None = None
    protocol: Protocol = Protocol.TCP


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRule:
    """What is done with the connections and datagrams that fit a pattern; `rate` is of new ones, in a second."""

    action: RuleAction
    pattern: str = "any"
    direction: RuleDirection = RuleDirection.OUT
    log: bool = False
    rate: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRate:
    """Most bytes a second that a sandbox sends and receives beyond its loopback; `None`: as fast as it can."""

    sent: int | None = None
    received: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What a sandbox was to have of the network."""

    kind: NetworkKind = NetworkKind.NONE
    name: str | None = None
    ports: list[PortMapping] = field(default_factory=list)
    rules: list[NetworkRule] = field(default_factory=list)
    allow: list[str] = field(default_factory=list)
    rate: NetworkRate = field(default_factory=NetworkRate)
    dns: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """Where a running sandbox is in its network."""

    ip4: str
    ip6: str
    ports: list[PortMapping]


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDomain:
    """What a sandbox was made with."""

    image: str
    name: str | None = None
    command: list[str] = field(default_factory=list)
    entrypoint: list[str] | None = None
    env: dict[str, str] = field(default_factory=dict)
    working_dir: str | None = None
    user: str | None = None
    hostname: str | None = None
    tty: bool = False
    stdin: bool = False
    auto_remove: bool = False
    #: `no`, `always`, `unless_stopped`, or `{"on_failure": {"max_retries": n}}`.
    restart: Any = "no"
    labels: dict[str, str] = field(default_factory=dict)
    resources: Resources = field(default_factory=Resources)
    health: HealthCheck | None = None
    stop_signal: str | None = None
    stop_timeout_seconds: int | None = None
    timeout_seconds: int | None = None
    log: LogTarget = field(default_factory=LogTarget)
    freeze_as: str | None = None
    no_patch: bool = False
    kind: Kind = Kind.PARA
    network: Network = field(default_factory=Network)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitInfo:
    """How a sandbox ended."""

    exit_code: int
    at: datetime
    out_of_memory: bool = False
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStats:
    """Memory of a sandbox, in bytes."""

    usage_bytes: int
    peak_bytes: int
    private_bytes: int
    shared_bytes: int
    limit_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficStats:
    """What went one way: bytes of data, packets (datagrams and pieces of streams), flows, and what was dropped."""

    bytes: int
    packets: int
    flows: int
    drops: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkStats:
    """What a sandbox sent and received."""

    sent: TrafficStats
    received: TrafficStats


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainStats:
    """What a sandbox uses now and has used."""

    id: str
    name: str
    at: datetime
    cpu_seconds: float
    memory: MemoryStats
    page_seconds: float
    pids: int
    console_bytes: int
    oom_kills: int
    calls: int | None = None
    io_read_bytes: int | None = None
    io_write_bytes: int | None = None
    network: NetworkStats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """A sandbox as the supervisor sees it."""

    id: str
    name: str
    state: DomainState
    config: CreateDomain
    image_digest: str
    created_at: datetime
    restarts: int = 0
    started_at: datetime | None = None
    pid: int | None = None
    exit: ExitInfo | None = None
    health: HealthState | None = None
    cloned_from: str | None = None
    command: list[str] = field(default_factory=list)
    deadline: datetime | None = None
    network: Attached | None = None
    usage: DomainStats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessInfo:
    """A process of a sandbox."""

    pid: int
    ppid: int
    uid: int
    state: str
    cpu_seconds: float
    resident_bytes: int
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneReport:
    """What was removed."""

    removed: list[str]
    freed_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    """What a file is."""

    name: str
    path: str
    kind: FileKind
    size_bytes: int
    mode: int
    uid: int
    gid: int
    modified_at: datetime
    target: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """A change in a directory that is watched."""

    kind: FileChangeKind
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeReport:
    """What a freeze cost."""

    frozen: str
    bytes: int
    stop_us: int
    pause_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenImage:
    """A frozen image."""

    name: str
    size_bytes: int
    in_memory: bool
    image: str
    hostname: str
    generation: int
    threads: int
    created_at: datetime
    command: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageConfig:
    """How an image's programs are run."""

    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    working_dir: str = ""
    user: str = ""
    exposed_ports: list[str] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    stop_signal: str = ""
    health: HealthCheck | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageInfo:
    """A root image."""

    name: str
    digest: str
    size_bytes: int
    files: int
    created_at: datetime
    source: str
    config: ImageConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far an operation is."""

    step: str
    done_bytes: int
    total_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """Something that takes long."""

    id: str
    kind: str
    state: OperationState
    progress: Progress
    result: Any = None
    problem: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What happened to a domain or an image."""

    sequence: int
    at: datetime
    kind: EventKind
    subject: str
    name: str | None = None
    attributes: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """Versions of the supervisor."""

    version: str
    api: str
    kernel: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Info:
    """Capacity of the host and what is set aside of it."""

    cpus: int
    memory_bytes: int
    reserved_cpus: float
    reserved_memory_bytes: int
    cgroups: str
    domains: dict[str, int]
    store: str


@dataclass(frozen=True, slots=True)
class PtySize:
    """Size of a terminal."""

    rows: int = 24
    columns: int = 80


@dataclass(frozen=True, slots=True)
class CommandResult:
    """What a command left behind."""

    exit_code: int
    stdout_bytes: bytes = b""
    stderr_bytes: bytes = b""
    #: Why it ended, if not by itself.
    reason: str | None = None
    #: Bytes of output that were lost because they were read too late.
    lost_bytes: int = 0

    @property
    def stdout(self) -> str:
        """Standard output as text."""
        return self.stdout_bytes.decode(errors="replace")

    @property
    def stderr(self) -> str:
        """Standard error as text."""
        return self.stderr_bytes.decode(errors="replace")


@cache
def _hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def decode(kind: type[T], value: Any) -> T:
    """Makes a `kind` of what JSON gave."""
    return typing.cast(T, _decode(kind, value))


def _decode(kind: Any, value: Any) -> Any:
    if kind is Any:
        return value
    origin = typing.get_origin(kind)
    if origin is types.UnionType:  # only `X | None` occurs
        return None if value is None else _decode(typing.get_args(kind)[0], value)
    if origin is list:
        return [_decode(typing.get_args(kind)[0], v) for v in value]
    if origin is dict:
        return {k: _decode(typing.get_args(kind)[1], v) for k, v in value.items()}
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        hints = _hints(kind)
        return kind(**{k: _decode(hints[k], v) for k, v in value.items() if k in hints})
    if kind is datetime:
        return datetime.fromisoformat(value)
    return kind(value)
