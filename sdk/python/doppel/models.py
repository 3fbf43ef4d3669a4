"""What the supervisor answers, as dataclasses.

Field for field the structs of the interface (`host/api`, `host/spec`); names are its own. Most are made of its schemas
by `generate.py`. `decode` makes them from JSON. Fields that a newer supervisor adds are ignored, and so are kinds it
adds to an enumeration: such a value is then a member made on the spot, so that an older client goes on reading.
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


# -- made by generate.py: change the interface (host/spec, host/api)


class DebugLevel(_Open):
    """How much an event of a guest kernel matters; a level includes those before it."""

    OFF = "off"
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    DEBUG = "debug"


class OnClone(_Open):
    """What a clone has of a volume of the domain that was frozen."""

    SHARE = "share"
    SNAPSHOT = "snapshot"
    FRESH = "fresh"


class MountKind(_Open):
    """What can be mounted."""

    TMPFS = "tmpfs"
    BIND = "bind"
    VOLUME = "volume"


class Kind(_Open):
    """Para or paene."""

    PARA = "para"
    PAENE = "paene"


class NetworkKind(_Open):
    """Kind of network."""

    NONE = "none"
    NAT = "nat"


class Protocol(_Open):
    """What travels through a port."""

    TCP = "tcp"
    UDP = "udp"


class RuleAction(_Open):
    """What a rule does."""

    ALLOW = "allow"
    DENY = "deny"


class RuleDirection(_Open):
    """Which way a rule looks."""

    OUT = "out"
    IN = "in"


class HealthState(_Open):
    """What the last checks said."""

    STARTING = "starting"
    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"


class HibernationReason(_Open):
    """Why a domain hibernates."""

    REQUEST = "request"
    IDLE = "idle"
    MEMORY = "memory"


class DomainState(_Open):
    """Where a domain is in its life."""

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    HIBERNATED = "hibernated"
    EXITED = "exited"
    RESTARTING = "restarting"
    DEAD = "dead"


class WaitingFor(_Open):
    """What a domain waits for that is to start or to wake."""

    MEMORY = "memory"


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
    ROLLBACK = "rollback"
    HIBERNATE = "hibernate"
    WAKE = "wake"
    WAITING = "waiting"
    IMAGE_PULL = "image_pull"
    IMAGE_PUSH = "image_push"
    IMAGE_IMPORT = "image_import"
    IMAGE_REMOVE = "image_remove"
    FIREWALL = "firewall"
    ADOPT = "adopt"


class FlowProtocol(_Open):
    """What travels."""

    TCP = "tcp"
    UDP = "udp"
    ICMP = "icmp"


class FlowState(_Open):
    """How far a flow is."""

    CONNECTING = "connecting"
    ESTABLISHED = "established"
    HALF_CLOSED = "half_closed"
    CLOSING = "closing"
    ACTIVE = "active"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockDevice:
    """A disk that a domain has."""

    #: The disk's name: 2 to 255 letters, digits, `-`, `_` and `.`.
    name: str
    #: The domain only reads it, as others may at the same time; else no other domain has it meanwhile.
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """Something that is mounted."""

    #: A para domain keeps what it has read of a bind for a second: names, attributes and pages. What others change
    #: there meanwhile it may see so much later.
    cached: bool = False
    #: A bind's source that is missing is made, a directory; else it is an error.
    create_source: bool = False
    #: A volume that is empty stays so; else it gets what the image has at the target.
    no_copy: bool = False
    #: What clones of the domain have of a volume. A domain that is hibernated wakes with the same one in any case.
    on_clone: OnClone = OnClone.SHARE
    #: Options as of mount(8): `ro`, `noexec`, `nosuid`, `nodev` and their opposites, `noatime`, `relatime`,
    #: `strictatime`; of a tmpfs `size` (bytes, with k, m, g or %), `mode` (octal), `uid`, `gid`, `nr_inodes`.
    options: list[str] = field(default_factory=list)
    #: Of a bind, an absolute path of the host: a directory or a file. Of a volume, its name: it is made at first use;
    #: without one it is a new volume, which goes with the domain.
    source: str | None = None
    #: Where: an absolute path, not the root.
    target: str
    #: What.
    type: MountKind = MountKind.TMPFS


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The domain's files."""

    #: Disks that it has, as `/dev/vda`, `/dev/vdb`, … in this order.
    disks: list[BlockDevice] = field(default_factory=list)
    #: It is kept under this name, and stays when the domain is removed: another one of the same image finds it again.
    #: One domain at a time can have it. 2 to 255 letters, digits, `-`, `_` and `.`.
    layer: str | None = None
    #: What is mounted before the program starts; directories that are missing are made.
    mounts: list[Mount] = field(default_factory=list)
    #: What the domain changes outside of its mounts is kept on disk: it finds it again whenever it is started, and it
    #: goes when the domain is removed. If it is false, that is in memory and ends with each run. If it is missing, it
    #: is kept unless the domain is removed when it ends (`auto_remove`), its root is `read_only`, or it is a paene
    #: domain with a limit on its disk.
    persist: bool | None = None
    #: The root file system is read-only; what is mounted on it is not.
    read_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """A command that tells whether a domain is well: exit code 0."""

    #: Command and arguments, run as an exec; empty turns the image's own off.
    command: list[str]
    #: Seconds between checks.
    interval_seconds: float = 30.0
    #: Failures in a row that make it unhealthy.
    retries: int = 3
    #: Seconds from the start in which failures do not count.
    start_period_seconds: float = 0.0
    #: Seconds after which a check has failed.
    timeout_seconds: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LogTarget:
    """Log file limits."""

    #: A log file that has grown to this is put aside.
    max_bytes: int = 10485760
    #: So many files are kept, the current one included.
    max_files: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkMembership:
    """A network of a domain's."""

    #: Further names by which others of this network find the domain.
    aliases: list[str] = field(default_factory=list)
    #: The domain's address there, out of the network's subnet of IPv4; the lowest free one if missing.
    ip4: str | None = None
    #: The same of IPv6.
    ip6: str | None = None
    #: Its name; `default` is that of domains that name none.
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PortMapping:
    """A port of the host that leads to one of the domain."""

    #: The host's address; all of its IPv4 addresses if missing.
    host_address: str | None = None
    #: The host's port; any free one if missing.
    host_port: int | None = None
    #: The domain's port.
    port: int
    #: TCP if missing.
    protocol: Protocol = Protocol.TCP


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRate:
    """Most bytes a second of a domain's data beyond its own loopback; as fast as it can if missing.

    A tenth of a second's bytes, or 64 KiB if that is more, may go at once.
    """

    #: What it receives.
    received: int | None = None
    #: What it sends.
    sent: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkRule:
    """What is to be done with some connections and datagrams."""

    #: What is done.
    action: RuleAction
    #: Which way; out if missing.
    direction: RuleDirection = RuleDirection.OUT
    #: An event (`firewall`) for each connection, and for each datagram that begins a flow or is refused; at most ten a
    #: second of one domain.
    log: bool = False
    #: What it is about: `any`, `ADDRESS[/BITS]`, or outbound `NAME` or `*.NAME`; then `:PORT` or `:FIRST-LAST`
    #: (outbound of the other end, inbound of the domain); then `/tcp`, `/udp` or `/icmp` (no port). `any` and names
    #: open nothing that is private.
    pattern: str
    #: Most new connections and flows of datagrams a second; those beyond are denied.
    rate: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """What a domain wants of the network."""

    #: Further names by which others of its networks find it; several domains may share one, and are all told then.
    aliases: list[str] = field(default_factory=list)
    #: Patterns of what it may connect to, after all `rules`; 10.88.0.1 is the host's loopback.
    allow: list[str] = field(default_factory=list)
    #: Who answers its questions about names, as `ADDRESS[:PORT]`; the host's name server if missing.
    dns: str | None = None
    #: So many bytes a second, sent and received together, are moved for it before others' are, whatever they weigh;
    #: more than the service can do is guaranteed to nobody.
    guarantee: int | None = None
    #: What it has beside its own loopback.
    kind: NetworkKind = NetworkKind.NONE
    #: Which network: those on one reach each other by address and by name, others not at all; `default` if missing. One
    #: that is not there is made, and goes with its last domain.
    name: str | None = None
    #: All of its networks, in place of `name`: it reaches those who are on one of them. None at all: it reaches nobody.
    networks: list[NetworkMembership] | None = None
    #: Ports of the host that lead to its own.
    ports: list[PortMapping] = field(default_factory=list)
    #: Of a new domain: those that its image exposes are published too, at any free ports of the host.
    publish_all: bool = False
    #: How fast its data goes.
    rate: NetworkRate = field(default_factory=NetworkRate)
    #: What may go out and come in: the first rule that fits decides. What none fits goes in, and out if it is public.
    rules: list[NetworkRule] = field(default_factory=list)
    #: Its share of the network service's work beside other domains of that service that have some to do, 1 to 10,000;
    #: 100 if missing.
    weight: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Residency:
    """When a domain hibernates by itself, and its place among others when memory is short."""

    #: Seconds without work after which it hibernates by itself; 0: never. If missing, the rules of `[gatekeeper]` in
    #: `doppeld.toml` count.
    hibernate_after_seconds: float | None = None
    #: It never hibernates unless somebody asks for it. If missing, the rules count, or false.
    pinned: bool | None = None
    #: Who waits for memory, and who gives it, -1000 to 1000: when it is short, higher ones start and wake first and
    #: hibernate last. If missing, the rules count, or 0.
    priority: int | None = None
    #: Most seconds that a start or wake which somebody asks for waits for memory; 0: it does not wait. If missing, what
    #: `[gatekeeper]` says.
    wait_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IoDevice:
    """Most that may be moved to and from a block device in a second; 0 is no limit."""

    #: The device: its file, or its number as `8:0`.
    device: str
    #: Bytes read.
    read_bps: int | None = None
    #: Read operations.
    read_iops: int | None = None
    #: Bytes written.
    write_bps: int | None = None
    #: Write operations.
    write_iops: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What a domain may use."""

    #: CPUs set aside; refused if the sum over all domains is above what the host has.
    cpu_reservation: float | None = None
    #: Share of the CPU when it is scarce, 1 to 10,000; 100 if missing.
    cpu_weight: int | None = None
    #: Most CPUs, fractions allowed (a cap).
    cpus: float | None = None
    #: Most bytes that files may hold beside the image. Of a paene domain they are in memory then, and half of the
    #: host's memory if it is missing; of a para domain those that it keeps are bounded.
    disk_bytes: int | None = None
    #: Most files and directories of that, of a paene domain.
    disk_inodes: int | None = None
    #: Limits of block I/O, a device each; refused where the host's control groups have none.
    io_devices: list[IoDevice] = field(default_factory=list)
    #: Share of block I/O, 1 to 10,000.
    io_weight: int | None = None
    #: Most memory, in bytes, at least 8 MiB; 0: no bound, not even that of `[domains] memory` in `doppeld.toml`, which
    #: counts if missing.
    memory_bytes: int | None = None
    #: Memory set aside, in bytes; refused if the sum over all domains is above what the host has.
    memory_reservation_bytes: int | None = None
    #: Memory and swap together, in bytes, as Docker counts: the swap region is what this is more than `memory_bytes`,
    #: and equal means none. If missing, a domain with a target has as much swap as memory, and others have none.
    memory_swap_bytes: int | None = None
    #: What the guest kernel should try to stay under, in bytes (the balloon's target).
    memory_target_bytes: int | None = None
    #: Most processes and threads, at least 2; 0, or if missing: as many as any domain may have.
    pids: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateDomain:
    """The image and what Docker's `create` takes, with its defaults."""

    #: Remove the domain when it ends.
    auto_remove: bool = False
    #: Command and arguments; empty: the image's own.
    command: list[str] = field(default_factory=list)
    #: Replaces the image's entrypoint.
    entrypoint: list[str] | None = None
    #: Environment, over the image's.
    env: dict[str, str] = field(default_factory=dict)
    #: Up to which level its guest kernel keeps events from the start (`GET .../debug/events`).
    events: DebugLevel = DebugLevel.OFF
    #: Further lines of its `/etc/hosts`: `NAME:ADDRESS`; the address may be `host-gateway`, that of the host's loopback
    #: in a network.
    extra_hosts: list[str] = field(default_factory=list)
    #: What is mounted.
    files: Files = field(default_factory=Files)
    #: Name of the frozen image it may make of itself (`/sys/power/state`).
    freeze_as: str | None = None
    #: How its health is looked after; the image's own if missing.
    health: HealthCheck | None = None
    #: Host name; the domain's name if missing.
    hostname: str | None = None
    #: Name of the root image, or the path of an EROFS file.
    image: str
    #: Para or paene.
    kind: Kind = Kind.PARA
    #: Key-value pairs for the caller's own use.
    labels: dict[str, str] = field(default_factory=dict)
    #: Log file limits.
    log: LogTarget = field(default_factory=LogTarget)
    #: Name; one is made up if it is missing. Letters, digits, `-`, `_`, `.`; at most 63.
    name: str | None = None
    #: Its network.
    network: Network = field(default_factory=Network)
    #: Leave the image's patched system calls unused.
    no_patch: bool = False
    #: When it hibernates by itself, and its place among others when memory is short.
    residency: Residency = field(default_factory=Residency)
    #: Limits, weights and reservations.
    resources: Resources = field(default_factory=Resources)
    #: When it is started again.
    restart: Any = "no"
    #: Keep standard input open for `POST .../input`.
    stdin: bool = False
    #: Signal that asks it to stop, by name or number; the image's or `SIGTERM`.
    stop_signal: str | None = None
    #: Seconds it gets for that before it is killed.
    stop_timeout_seconds: int | None = None
    #: Seconds after which it is stopped whatever it does.
    timeout_seconds: int | None = None
    #: Give the program a terminal.
    tty: bool = False
    #: `user[:group]`, numbers or names of the image; its own or root if missing.
    user: str | None = None
    #: Working directory; the image's or `/` if missing.
    working_dir: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitInfo:
    """How a domain ended."""

    #: When.
    at: datetime
    #: Exit code of its program, 128 + n if signal n ended it, 137 if memory ran out.
    exit_code: int
    #: Memory ran out.
    out_of_memory: bool
    #: Why, if it was not its program that ended.
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hibernation:
    """A hibernation (`GET /v1/domains/{domain}`)."""

    #: When.
    at: datetime
    #: Who had it hibernate: whoever asked, as `uid 1000`, or `gatekeeper`.
    by: str
    #: Bytes of memory that are on disk.
    memory_bytes: int
    #: Why.
    reason: HibernationReason
    #: When it wakes by itself, because a timer of it is due then. One that hibernates because somebody asked for it
    #: does not.
    wakes_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MountPoint:
    """What is mounted in a domain, in the words of Docker's `inspect`."""

    #: Where it is in the domain.
    destination: str
    #: Its options.
    mode: str
    #: Of a volume: its name.
    name: str | None = None
    #: It can be written to.
    rw: bool
    #: Of a bind or volume: where its files are on the supervisor's host.
    source: str | None = None
    #: What.
    type: MountKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """Where a running domain is in its network."""

    #: Its IPv4 address.
    ip4: str
    #: Its IPv6 address.
    ip6: str
    #: The networks it is on; missing if an older keeper has it, which knows of one alone.
    networks: list[str] | None = None
    #: Its published ports, with the host's address and port of each.
    ports: list[PortMapping]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStats:
    """Memory of a domain, in bytes."""

    #: Its limit, if it has one.
    limit_bytes: int | None = None
    #: Most there was.
    peak_bytes: int
    #: Its own pages.
    private_bytes: int
    #: Pages it has in common with others.
    shared_bytes: int
    #: What its swap region takes on the disk, if it has one.
    swap_bytes: int | None = None
    #: In use by its control group.
    usage_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrafficStats:
    """One direction of it."""

    #: Bytes of programs' data.
    bytes: int
    #: Connections and datagrams refused by a rule, and datagrams for which there was no room.
    drops: int
    #: Connections made (sent: by the domain), and pairs of addresses that began to exchange datagrams.
    flows: int
    #: Datagrams, and pieces of streams as the host moved them.
    packets: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkStats:
    """What a domain sent and received beyond its own loopback."""

    #: What it received.
    received: TrafficStats
    #: What it sent.
    sent: TrafficStats


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageStats:
    """What a storage service has done for a domain: a para domain's volumes."""

    #: Those that failed because of the host: it has no room, or is broken.
    errors: int
    #: Requests that were answered.
    operations: int
    #: Bytes read from files.
    read_bytes: int
    #: Seconds from when requests were taken until they were answered, all together.
    seconds: float
    #: Bytes written to files.
    written_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainStats:
    """What a domain uses now and has used."""

    #: When this was read.
    at: datetime
    #: System calls its guest kernel served, where it counts them.
    calls: int | None = None
    #: Bytes written to its console.
    console_bytes: int
    #: CPU time in seconds.
    cpu_seconds: float
    #: Its id.
    id: str
    #: Bytes read from and written to block devices, where the hierarchy tells.
    io_read_bytes: int | None = None
    #: As above.
    io_write_bytes: int | None = None
    #: Memory.
    memory: MemoryStats
    #: Its name.
    name: str
    #: What it sent and received, if it ever had a network.
    network: NetworkStats | None = None
    #: Kills for want of memory.
    oom_kills: int
    #: Memory in use times time in use, in pages of 4096 bytes times seconds.
    page_seconds: float
    #: Processes and threads.
    pids: int
    #: What its storage service has done, if it ever had volumes as a para domain.
    storage: StorageStats | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A start or wake that waits."""

    #: How much is wanted.
    memory_bytes: int
    #: Since when.
    since: str
    #: Until when at most; missing: as long as it takes.
    until: str | None = None
    #: What it waits for.
    what: WaitingFor


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain:
    """A domain, as `GET /v1/domains/{domain}` and the list give it."""

    #: Its addresses out of subnets of its networks, by network, whether it runs or not.
    addresses: dict[str, list[str]] = field(default_factory=dict)
    #: Frozen image it was cloned from.
    cloned_from: str | None = None
    #: What runs in it: its command, or that of the domain it was cloned from (empty if that is not known).
    command: list[str] = field(default_factory=list)
    #: What it was made with, defaults filled in, and what updates changed.
    config: CreateDomain
    #: When it was made.
    created_at: datetime
    #: When it will be stopped whatever it does (`timeout_seconds`).
    deadline: datetime | None = None
    #: How it ended last.
    exit: ExitInfo | None = None
    #: What its health checks say.
    health: HealthState | None = None
    #: The hibernation that it is in.
    hibernated: Hibernation | None = None
    #: 16 hexadecimal digits, unique for ever; a unique beginning is enough to name the domain.
    id: str
    #: Digest of the root image.
    image_digest: str
    #: What is mounted in it.
    mounts: list[MountPoint] = field(default_factory=list)
    #: Its name.
    name: str
    #: Its addresses and published ports while it runs, if it has a network.
    network: Attached | None = None
    #: Host process id of its first process while it runs.
    pid: int | None = None
    #: How often it was started again by its restart policy.
    restarts: int
    #: When it was last started.
    started_at: datetime | None = None
    #: Where it is in its life.
    state: DomainState
    #: What it has used in all its runs so far; kept after its end.
    usage: DomainStats | None = None
    #: What its start or wake waits for.
    waiting: Waiting | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessInfo:
    """A process of a domain (`GET .../top`)."""

    #: Command line.
    command: str
    #: CPU time in seconds.
    cpu_seconds: float
    #: Process id inside.
    pid: int
    #: Its parent's.
    ppid: int
    #: Resident memory in bytes.
    resident_bytes: int
    #: State as in `/proc/PID/stat`.
    state: str
    #: User id inside.
    uid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneReport:
    """What `POST /v1/domains/prune` removed."""

    #: Disk space that is free again.
    freed_bytes: int
    #: Ids of domains that had ended.
    removed: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    """What a file is."""

    #: Group.
    gid: int
    #: Kind.
    kind: FileKind
    #: Permission bits.
    mode: int
    #: Time of the last change.
    modified_at: datetime
    #: Its name in its directory.
    name: str
    #: Absolute path.
    path: str
    #: Bytes.
    size_bytes: int
    #: Where a symbolic link leads.
    target: str | None = None
    #: Owner.
    uid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """One line of `GET .../files/watch`: a change in the directory."""

    #: What happened.
    kind: FileChangeKind
    #: Name in the directory that is watched.
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FreezeReport:
    """What a freeze cost."""

    #: Bytes of memory in it.
    bytes: int
    #: Name of the frozen image.
    frozen: str
    #: Microseconds for which they did.
    pause_us: int
    #: Microseconds until all threads stood still.
    stop_us: int
    #: Bytes of that which were written; older images have the others.
    written_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenImage:
    """A frozen image."""

    #: Older images in whose files some of its memory is; these stay as long as it needs them, whether they have names
    #: or not.
    ancestors: int = 0
    #: Bytes of its memory in those.
    ancestors_bytes: int = 0
    #: Command of the domain that was frozen; empty if it is not known.
    command: list[str] = field(default_factory=list)
    #: When it was made.
    created_at: datetime
    #: Generation of that domain.
    generation: int
    #: Host name of the domain that was frozen.
    hostname: str
    #: Root image it needs.
    image: str
    #: Kept in memory instead of on disk.
    in_memory: bool
    #: Its name.
    name: str
    #: Bytes it takes.
    size_bytes: int
    #: Processes and threads in it.
    threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageConfig:
    """How an image's programs are run (OCI image configuration)."""

    #: Command, or arguments of the entrypoint.
    command: list[str] = field(default_factory=list)
    #: Entrypoint.
    entrypoint: list[str] = field(default_factory=list)
    #: Environment.
    env: dict[str, str] = field(default_factory=dict)
    #: Ports it serves, as `80/tcp`.
    exposed_ports: list[str] = field(default_factory=list)
    #: How its health is looked after.
    health: HealthCheck | None = None
    #: Labels.
    labels: dict[str, str] = field(default_factory=dict)
    #: Signal that asks it to stop.
    stop_signal: str = ""
    #: `user[:group]`.
    user: str = ""
    #: Working directory.
    working_dir: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageInfo:
    """A root image."""

    #: How its programs are run.
    config: ImageConfig
    #: When it was made here.
    created_at: datetime
    #: Digest of the EROFS file.
    digest: str
    #: Files in it.
    files: int
    #: Its name.
    name: str
    #: Bytes of the EROFS file.
    size_bytes: int
    #: Where it came from.
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far an operation is."""

    #: Done, in bytes.
    done_bytes: int
    #: What it does now.
    step: str
    #: Of so many, if known.
    total_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """Something that takes long. `GET /v1/operations/{id}?wait=true` answers when it has ended."""

    #: Its id.
    id: str
    #: What it is, as `image_pull`.
    kind: str
    #: Why it failed.
    problem: Any = None
    #: How far it is.
    progress: Progress
    #: What it gave.
    result: Any = None
    #: Where it is in its life.
    state: OperationState


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of `GET /v1/events`."""

    #: When.
    at: datetime
    #: What there is to know besides.
    attributes: dict[str, str] = field(default_factory=dict)
    #: What happened.
    kind: EventKind
    #: Name of the domain, if it is one.
    name: str | None = None
    #: Counts up by one; gaps mean that the reader was too slow.
    sequence: int
    #: Id of the domain, or name of the image.
    subject: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """`GET /v1/version`."""

    #: Version of this interface.
    api: str
    #: Digest of the guest kernel.
    kernel: str
    #: Version of the supervisor.
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryInfo:
    """What the gatekeeper knows of memory (`GET /v1/info`)."""

    #: What the host can give away without paging (`MemAvailable`), in bytes.
    available_bytes: int
    #: Most that all of them may use.
    budget_bytes: int | None = None
    #: What all domains use, as far as it was counted.
    domains_bytes: int
    #: What of it stays free: below this, domains hibernate and starts wait.
    reserve_bytes: int
    #: Starts and wakes that wait for memory.
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Info:
    """`GET /v1/info`."""

    #: Control group hierarchy: `v2`, `v1` or `none`.
    cgroups: str
    #: CPUs of the host.
    cpus: int
    #: Domains by state.
    domains: dict[str, int]
    #: What the gatekeeper knows of memory.
    memory: MemoryInfo
    #: Memory of the host in bytes.
    memory_bytes: int
    #: CPUs set aside by reservations.
    reserved_cpus: float
    #: Memory set aside by reservations, in bytes.
    reserved_memory_bytes: int
    #: Directory of images and state.
    store: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeInfo:
    """A volume."""

    #: It was made for a domain that gave no name.
    anonymous: bool
    #: When it was made.
    created_at: datetime
    #: Most files and directories.
    inodes: int | None = None
    #: Key-value pairs for the user's own use.
    labels: dict[str, str]
    #: Where its files are on the supervisor's host.
    mountpoint: str
    #: Its name.
    name: str
    #: Most bytes of the host's disk that its files may take.
    size_bytes: int | None = None
    #: It is a snapshot: domains only read it.
    snapshot: bool = False
    #: Ids of domains that have it, running or not.
    used_by: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumePruneReport:
    """What `POST /v1/volumes/prune` removed."""

    #: Names of volumes that no domain had.
    removed: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskInfo:
    """A disk."""

    #: When it was made.
    created_at: datetime
    #: A domain runs with it.
    in_use: bool
    #: Layers it is made of: each snapshot or clone puts one more below.
    layers: int
    #: Its name.
    name: str
    #: Its size.
    size_bytes: int
    #: It is a snapshot: domains only read it.
    snapshot: bool
    #: What its own part takes on the host; what it has in common with others is not counted.
    used_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSubnet:
    """A subnet of a network."""

    #: The host, as domains of the network see it: what 10.88.0.1 is everywhere. The first address if missing.
    gateway: str | None = None
    #: Domains that ask for no address have one of these; of all of the subnet if missing.
    ip_range: str | None = None
    #: As `ADDRESS/BITS`. It must not overlap with those of the owner's other networks, nor with a network of the host's
    #: own.
    subnet: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkInfo:
    """A network: domains that are on it reach each other, by address and by name."""

    #: Addresses out of these, by the domain's id; a domain keeps them while it is stopped.
    addresses: dict[str, list[str]] = field(default_factory=dict)
    #: When it was made, if it is known.
    created_at: datetime | None = None
    #: Nothing goes out of it to the outside, or comes in from there.
    internal: bool
    #: Key-value pairs for the user's own use.
    labels: dict[str, str]
    #: Its name.
    name: str
    #: Its subnets, out of which domains on it have their addresses; without one they have those of 10.88.0.0/16 and
    #: fd88:d0bb:e1::/48.
    subnets: list[NetworkSubnet] = field(default_factory=list)
    #: A domain made it by its name: it goes with the last domain that is on it.
    transient: bool
    #: Ids of domains that are on it, running or not.
    used_by: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPruneReport:
    """What `POST /v1/networks/prune` removed."""

    #: Names of networks that no domain was on.
    removed: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """A connection, or a pair of addresses that exchange datagrams or echoes."""

    #: For how long it has been there.
    age_seconds: float
    #: Who began: the domain (out), or the other end (in).
    direction: RuleDirection
    #: The domain's id.
    domain: str
    #: The host's address and port from which it leaves; missing if it does not leave the virtual network.
    host: str | None = None
    #: The domain's address and port.
    local: str
    #: Its name.
    name: str
    #: The other end's, as the domain knows it.
    peer: str
    #: Of which protocol.
    protocol: FlowProtocol
    #: Those it has received.
    received_bytes: int
    #: Bytes of programs' data that the domain has sent.
    sent_bytes: int
    #: How far it is.
    state: FlowState
    #: The published port through which it came, as it was called.
    through: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowList:
    """Some flows."""

    #: By the domain's id, then by its sockets.
    flows: list[Flow]
    #: Peers of datagram sockets that are not told: of one socket the latest 64 are.
    left_out: int
    #: For `after` of the next request; missing: there are no others.
    next: str | None = None


# -- end of what is made


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
