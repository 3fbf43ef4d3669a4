"""Sandboxes: domains that programs are run in."""

from __future__ import annotations

import builtins
import uuid
import weakref
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from types import TracebackType
from typing import Any

from .._output import Output
from .._wire import (
    KEEP_ALIVE,
    Command,
    Networks,
    Ports,
    Tmpfs,
    Volumes,
    argv,
    mounted,
    present,
    rate_of,
    residency,
    resources,
    rules_of,
    seconds,
    segment,
    strings,
)
from .._wire import network as wire_network
from ..errors import DoppelError, InUse, NotFound
from ..models import (
    Domain,
    DomainState,
    DomainStats,
    ExitInfo,
    FlowList,
    FreezeReport,
    Kind,
    NetworkRate,
    NetworkRule,
    decode,
)
from .client import AsyncClient, connection
from .commands import AsyncCommands
from .files import AsyncFiles
from .pty import AsyncPty
from .tasks import AsyncTask, sleep
from .template import AsyncTemplate

#: Seconds for which a fork lives without a word of the program that made it.
LEASE = 120
#: Where a port published at all addresses is reached.
LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}


class AsyncSandbox:
    """A running domain. Made by `create`, `connect`, `Template.clone` or `fork`, not by its constructor.

    As a context manager it is killed at the end if it was made here; one that was connected to lives on.
    """

    def __init__(self, client: AsyncClient, domain: Domain, *, owned: bool, fork: str | None = None) -> None:
        self._client = client
        self._owned = owned
        self._fork = fork
        self._leased = False
        self._asked: int | None = None
        self._path = f"/v1/domains/{domain.id}"
        self._closed = False
        #: Unique for ever.
        self.id = domain.id
        #: Name when it was made or connected to.
        self.name = domain.name
        #: What the supervisor could not enforce although nobody asked for it.
        self.warnings: list[str] = []
        #: Programs in it.
        self.commands = AsyncCommands(client, domain.id)
        #: Files in it.
        self.files = AsyncFiles(client, domain.id)
        #: Terminals in it.
        self.pty = AsyncPty(client, domain.id)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {self.id}>"

    @classmethod
    async def create(
        cls,
        image: str,
        *,
        kind: Kind | str | None = None,
        name: str | None = None,
        command: Command | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        user: str | None = None,
        hostname: str | None = None,
        cpus: float | None = None,
        memory: int | str | None = None,
        pids: int | None = None,
        cpu_weight: int | None = None,
        cpu_reservation: float | None = None,
        memory_reservation: int | str | None = None,
        disk: int | str | None = None,
        read_only: bool = False,
        tmpfs: Tmpfs = (),
        volumes: Volumes | None = None,
        persist: bool | str | None = None,
        disks: Sequence[str] = (),
        timeout: float | None = None,
        labels: Mapping[str, str] | None = None,
        auto_remove: bool = True,
        network: Networks = None,
        ports: Ports | None = None,
        rules: Sequence[NetworkRule] = (),
        allow: Sequence[str] = (),
        dns: str | None = None,
        network_rate: NetworkRate | None = None,
        network_weight: int | None = None,
        network_guarantee: int | None = None,
        hibernate_after: float | None = None,
        priority: int | None = None,
        pinned: bool | None = None,
        memory_wait: float | None = None,
        client: AsyncClient | None = None,
    ) -> AsyncSandbox:
        """Makes a sandbox from a root image and starts it.

        It runs until it is killed, or for `timeout` seconds. `command` is its first program, with which it ends:
        without one it just stays up, `[]` is the image's own. `memory` is bytes or as `512m`. With `auto_remove`
        off its record and logs stay after its end.

        Its `kind` is "para" (a guest kernel) unless asked for: "paene" is the host's own kernel, whose programs may
        write `disk` bytes beside the image, and which cannot be frozen nor have a network yet.

        With `read_only` its root file system cannot be changed, but for what is mounted on it: `tmpfs` names
        directories with files in memory, from which no program runs unless asked for (`["/tmp"]`, or
        `{"/tmp": "size=64m,exec"}`). `volumes` names what is kept apart from sandboxes, by where it is mounted:
        `{"/data": "results", "/src": "/home/me/src:ro"}` (see `AsyncVolume`; a path is one of the supervisor's host).
        With `persist` (and, if nothing is said, without `auto_remove`) all other files that it changes are on disk, and
        there again when it starts again; with `False` they are in memory. With a name
        (`persist="build"`) also in the next sandbox of this image and name, when this one is removed.
        `disks=["db", "tools:ro"]` are disks of the supervisor's (`doppel disk`), as `/dev/vda`, `/dev/vdb`, ….

        It has no network unless asked for: with `network` (`True`, or the name of one, whose sandboxes find each other
        by name; a `NetworkMembership` for an address out of its subnet or further names; or several), or by publishing
        `ports` (`[80]`, or `{80: 8080}` for a certain port of the host; see `get_host`), it reaches public addresses,
        and private ones that `allow` names (`10.0.0.0/8:443`). `rules` come before those: the first that fits decides.
        `dns` is another name server than the host's, `network_rate` the most bytes a second,
        `network_weight` (100 unless said) its share of the network service's work beside others that are busy, and
        `network_guarantee` bytes a second that go before that share is looked at.

        After `hibernate_after` seconds without work it hibernates by itself, and wakes when it is used, called over its
        network, or a timer of it is due; not if it is `pinned`. When the host is short of memory, those of higher
        `priority` start first and hibernate last; a start waits for memory for `memory_wait` seconds at most.
        """
        body: dict[str, Any] = present(
            image=image,
            kind=None if kind is None else Kind(kind).value,
            name=name,
            command=KEEP_ALIVE if command is None else argv(command),
            entrypoint=[] if command is None or command else None,
            env=strings(env),
            working_dir=cwd,
            user=user,
            hostname=hostname,
            labels=strings(labels),
            resources=resources(cpus, memory, pids, cpu_weight, cpu_reservation, memory_reservation, disk),
            files=mounted(read_only, tmpfs, volumes, persist, disks),
            timeout_seconds=seconds(timeout),
            auto_remove=auto_remove,
            network=wire_network(
                ports, rules, allow, dns, network_rate, network, network_weight, network_guarantee
            ),
            residency=residency(hibernate_after, priority, pinned, memory_wait),
        )
        http = connection(client)
        try:
            answer = await http.request(
                "POST", "/v1/domains", json=body, params={"start": True}, unlimited=True
            )
        except BaseException:
            await http.close()
            raise
        sandbox = cls(http, decode(Domain, answer["domain"]), owned=True)
        sandbox.warnings = list(answer.get("warnings", ()))
        return sandbox

    @classmethod
    async def connect(cls, name: str, *, client: AsyncClient | None = None) -> AsyncSandbox:
        """A sandbox that is there, by its name, its id, or a unique beginning of that."""
        http = connection(client)
        try:
            answer = await http.request("GET", f"/v1/domains/{segment(name)}")
        except BaseException:
            await http.close()
            raise
        return cls(http, decode(Domain, answer), owned=False)

    @staticmethod
    async def list(
        *,
        all: bool = False,
        labels: Mapping[str, str] | None = None,
        name: str | None = None,
        state: DomainState | str | None = None,
        limit: int | None = None,
        client: AsyncClient | None = None,
    ) -> builtins.list[Domain]:
        """The sandboxes that run, or with `all` those that do not too.

        Only those with all these `labels`, with this text in the `name`, in this `state`.
        """
        params = present(
            all=all,
            label=",".join(f"{k}={v}" if v else k for k, v in labels.items()) if labels else None,
            name=name,
            state=None if state is None else str(state),
            limit=limit,
        )
        async with connection(client) as http:
            return decode(list[Domain], await http.request("GET", "/v1/domains", params=params))

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._owned:
                await self.kill()
        finally:
            await self.close()

    async def close(self) -> None:
        """Ends the connection; the sandbox lives on."""
        if not self._closed:
            self._closed = True
            try:
                if self._leased:
                    with suppress(NotFound):
                        await self.set_timeout(None)
            finally:
                await self._client.close()

    async def kill(self) -> bool:
        """Ends it at once and removes it. `False` if it was gone already."""
        self._leased = False
        try:
            await self._client.request("DELETE", self._path, params={"force": True}, unlimited=True)
        except NotFound:
            return False
        finally:
            if self._fork is not None:
                await _drop(self._client, self._fork)
        return True

    async def stop(self, timeout: float | None = None) -> Domain:
        """Asks its first program to end, and kills it after `timeout` seconds (10 if missing)."""
        body = present(timeout_seconds=seconds(timeout))
        return await self._domain("POST", "stop", body)

    async def wait(self, timeout: float | None = None) -> ExitInfo:
        """Waits for its end; after `timeout` seconds `DoppelTimeout` is raised."""
        answer = await self._client.request("POST", f"{self._path}/wait", unlimited=True, timeout=timeout)
        return decode(ExitInfo, answer["exit"])

    async def pause(self) -> None:
        """Makes it stand still; it keeps its memory."""
        await self._domain("POST", "pause")

    async def resume(self) -> None:
        """Lets it go on after `pause`."""
        await self._domain("POST", "unpause")

    async def hibernate(self) -> FreezeReport:
        """Puts its memory on disk; it uses none until `wake`."""
        answer = await self._client.request("POST", f"{self._path}/hibernate", unlimited=True)
        return decode(FreezeReport, answer["report"])

    async def wake(self) -> None:
        """Lets it go on after `hibernate`."""
        await self._domain("POST", "wake")

    async def rollback(self, frozen: str | AsyncTemplate) -> Domain:
        """Has it go back to a frozen image of it: programs, memory and files are as they were then.

        The image may also be the one that it was cloned from. Sessions of `exec` and their programs are gone; volumes
        stay as they are.
        """
        name = frozen.name if isinstance(frozen, AsyncTemplate) else frozen
        return await self._domain("POST", "rollback", {"frozen": name})

    async def freeze(
        self, name: str, *, stop: bool = False, in_memory: bool = False, whole: bool = False
    ) -> AsyncTemplate:
        """Makes a frozen image of it, programs and memory and all, from which clones are made.

        It goes on afterwards, unless `stop`. What its last image has already is not written again, unless it is to be
        `whole`.
        """
        return await self._freeze(name, stop=stop, in_memory=in_memory, whole=whole)

    async def _freeze(
        self,
        name: str,
        *,
        stop: bool = False,
        in_memory: bool = False,
        whole: bool = False,
        temporary: bool = False,
    ) -> AsyncTemplate:
        body = {"frozen": name, "stop": stop, "in_memory": in_memory}
        body |= present(whole=whole or None, temporary=temporary or None)
        answer = await self._client.request("POST", f"{self._path}/freeze", json=body, unlimited=True)
        template = AsyncTemplate(name, client=self._client)
        template.report = decode(FreezeReport, answer)
        return template

    async def fork(
        self,
        count: int = 1,
        *,
        args: Sequence[str] = (),
        network: Networks = None,
        ports: Ports | None = None,
        rules: Sequence[NetworkRule] = (),
        allow: Sequence[str] = (),
        dns: str | None = None,
        network_rate: NetworkRate | None = None,
        network_weight: int | None = None,
        network_guarantee: int | None = None,
    ) -> AsyncForks:
        """Makes copies of it as it is now, which go on independently.

        They are a list, and as a context manager are killed together at its end. They live as long as this program
        holds them: a lease of `LEASE` seconds is renewed all the while, so that those of a program that died end.
        `set_timeout` or `close` of one ends its lease, and it lives as that says. It is frozen in memory for that; the
        image goes by itself with the last copy. Networks are as for `AsyncTemplate.clone`.
        """
        name = f"fork-{self.id}-{uuid.uuid4().hex[:8]}"
        template = await self._freeze(name, in_memory=True, temporary=True)
        try:
            clones = await template.clone(
                count,
                args=args,
                timeout=LEASE,
                network=network,
                ports=ports,
                rules=rules,
                allow=allow,
                dns=dns,
                network_rate=network_rate,
                network_weight=network_weight,
                network_guarantee=network_guarantee,
            )
        except BaseException:
            await _drop(self._client, name)
            raise
        finally:
            await template.close()
        forks = AsyncForks(clones)
        for clone in forks:
            clone._fork = name
            clone._leased = True
        forks._hold()
        return forks

    async def set_timeout(self, timeout: float | None) -> None:
        """Has it end `timeout` seconds from now, instead of what was said before; `None`: never."""
        self._leased = False
        self._asked = 0 if timeout is None else max(1, seconds(timeout) or 0)
        await self._patch(timeout_seconds=self._asked)

    async def update(
        self,
        *,
        cpus: float | None = None,
        memory: int | str | None = None,
        pids: int | None = None,
        cpu_weight: int | None = None,
        labels: Mapping[str, str] | None = None,
        rules: Sequence[NetworkRule] | None = None,
        network_rate: NetworkRate | None = None,
        network_weight: int | None = None,
        network_guarantee: int | None = None,
        hibernate_after: float | None = None,
        priority: int | None = None,
        pinned: bool | None = None,
        memory_wait: float | None = None,
    ) -> Domain:
        """Changes its limits, at once, its labels, the rules and rates of its network, and when it hibernates.

        `rules` are in place of all it had, `allow` included; connections that they forbid end. `network_rate` is in
        place of both rates it had.
        """
        limits = resources(cpus, memory, pids, cpu_weight)
        return await self._patch(
            resources=limits or None,
            labels=None if labels is None else dict(labels),
            network=present(
                rules=None if rules is None else rules_of(rules),
                rate=rate_of(network_rate),
                weight=network_weight,
                guarantee=network_guarantee,
            )
            or None,
            residency=residency(hibernate_after, priority, pinned, memory_wait),
        )

    async def info(self) -> Domain:
        """What it is, how it was made, and how it is."""
        return await self._domain("GET", "")

    async def get_host(self, port: int) -> str:
        """Where the host reaches a published port of it, as `127.0.0.1:32768`; `ValueError` if it is not published."""
        attached = (await self.info()).network
        for mapping in attached.ports if attached else ():
            if mapping.port == port:
                address = mapping.host_address or "0.0.0.0"
                return f"{LOOPBACK.get(address, address)}:{mapping.host_port}"
        raise ValueError(f"port {port} is not published; give `ports=[{port}]` when the sandbox is made")

    async def stats(self) -> DomainStats:
        """What it uses and has used."""
        return decode(DomainStats, await self._client.request("GET", f"{self._path}/stats"))

    async def flows(self, *, limit: int | None = None, after: str | None = None) -> FlowList:
        """Its connections and flows of datagrams: at most `limit` (1,000 if not said), behind the last `next`."""
        params = present(limit=limit, after=after)
        return decode(FlowList, await self._client.request("GET", f"{self._path}/flows", params=params))

    async def is_running(self) -> bool:
        """Whether it runs; not if it is paused, hibernated, or gone."""
        try:
            return (await self.info()).state == DomainState.RUNNING
        except NotFound:
            return False

    async def logs(self, tail: int | None = None) -> str:
        """What its first program has printed, errors among it; only the last `tail` lines if given."""
        pieces: list[str] = []
        async with self.follow(tail=tail, follow=False) as texts:
            async for text in texts:
                pieces.append(text)
        return "".join(pieces)

    @asynccontextmanager
    async def follow(
        self, *, tail: int | None = None, follow: bool = True
    ) -> AsyncIterator[AsyncIterator[str]]:
        """What its first program prints, as it comes, from its start or the last `tail` lines on."""
        params = present(follow=follow, tail=tail)
        async with self._client.lines(f"{self._path}/logs", params) as lines:
            yield _texts(lines)

    async def _domain(self, method: str, verb: str, body: dict[str, Any] | None = None) -> Domain:
        path = f"{self._path}/{verb}" if verb else self._path
        answer = await self._client.request(method, path, json=body, unlimited=method == "POST")
        return decode(Domain, answer)

    async def _patch(self, **fields: Any) -> Domain:
        answer = await self._client.request("PATCH", self._path, json=present(**fields))
        return decode(Domain, answer)


class AsyncForks(list[AsyncSandbox]):
    """The copies that `fork` made: a list, whose sandboxes are killed when it is left as a context manager."""

    _keeper: AsyncTask[None] | None = None

    def _hold(self) -> None:
        """Renews their leases as long as somebody has them."""
        self._keeper = AsyncTask(_renew, [weakref.ref(sandbox) for sandbox in self])

    async def __aenter__(self) -> AsyncForks:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        failed: BaseException | None = None
        for sandbox in self:
            try:
                await sandbox.__aexit__(kind, error, trace)
            except Exception as one:  # the others are killed all the same
                failed = one
        if failed is not None:
            raise failed


async def _renew(held: builtins.list[weakref.ref[AsyncSandbox]]) -> None:
    while held:
        await sleep(LEASE / 4)
        still = []
        for ref in held:
            sandbox = ref()
            if sandbox is None or not sandbox._leased:
                continue
            try:
                await sandbox._patch(timeout_seconds=LEASE)
                if sandbox._asked is not None:  # meanwhile: that counts, not this
                    await sandbox._patch(timeout_seconds=sandbox._asked)
            except NotFound:
                continue
            except DoppelError:  # the supervisor may come back in time
                pass
            still.append(ref)
        sandbox = None  # or it would be held here
        held = still


async def _drop(client: AsyncClient, frozen: str) -> None:
    """Removes the frozen image that a fork was made from, unless another fork of it lives."""
    with suppress(InUse, NotFound):
        await client.request("DELETE", f"/v1/frozen/{segment(frozen)}")


async def _texts(lines: AsyncIterator[Any]) -> AsyncIterator[str]:
    output = Output(keep=False)
    async for line in lines:
        for _, text in output.feed(line):
            yield text
