"""Frozen images, and clones made of them."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .._wire import Command, Networks, Ports, argv, present, residency, resources, seconds, segment, strings
from .._wire import network as wire_network
from ..errors import ApiError, CloneError, from_problem
from ..models import Domain, FreezeReport, FrozenImage, NetworkRate, NetworkRule, decode
from .client import AsyncClient, connection

if TYPE_CHECKING:
    from .sandbox import AsyncSandbox


class AsyncTemplate:
    """A frozen image by its name: a sandbox with its programs running, of which clones are made."""

    def __init__(self, name: str, *, client: AsyncClient | None = None) -> None:
        self._path = f"/v1/frozen/{segment(name)}"
        self._client = connection(client)
        self._closed = False
        #: Its name.
        self.name = name
        #: What freezing it cost, if that was done here.
        self.report: FreezeReport | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    async def __aenter__(self) -> AsyncTemplate:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Ends the connection; the frozen image stays."""
        if not self._closed:
            self._closed = True
            await self._client.close()

    @staticmethod
    async def list(*, client: AsyncClient | None = None) -> builtins.list[FrozenImage]:
        """All frozen images."""
        async with connection(client) as http:
            return decode(list[FrozenImage], await http.request("GET", "/v1/frozen"))

    async def info(self) -> FrozenImage:
        """What it is."""
        return decode(FrozenImage, await self._client.request("GET", self._path))

    async def remove(self) -> None:
        """Removes it; refused (`InUse`) while a clone lives on it."""
        await self._client.request("DELETE", self._path)

    async def clone(
        self,
        count: int = 1,
        *,
        name: str | None = None,
        args: Sequence[str] = (),
        command: Command | None = None,
        env: Mapping[str, str] | None = None,
        cpus: float | None = None,
        memory: int | str | None = None,
        pids: int | None = None,
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
    ) -> builtins.list[AsyncSandbox]:
        """Makes clones, which go on where it was frozen; each has a name, a clock and a randomness of its own.

        `name` gets -1, -2... behind it for several. `args` are the lines a clone reads in `/sys/doppel/args`;
        `command` runs beside what was frozen, and the clone ends with it. If some cannot be made, `CloneError`
        has those that could. Each has a network of its own, or none, as `AsyncSandbox.create` says: servers that were
        frozen listen there again, connections are reset.
        """
        body = present(
            count=count,
            name=name,
            args=list(args),
            command=None if command is None else argv(command),
            env=strings(env),
            resources=resources(cpus, memory, pids),
            timeout_seconds=seconds(timeout),
            labels=strings(labels),
            auto_remove=auto_remove,
            network=wire_network(
                ports, rules, allow, dns, network_rate, network, network_weight, network_guarantee
            ),
            residency=residency(hibernate_after, priority, pinned, memory_wait),
        )
        answer = await self._client.request("POST", f"{self._path}/clone", json=body, unlimited=True)
        from .sandbox import AsyncSandbox

        sandboxes: list[AsyncSandbox] = []
        errors: list[ApiError] = []
        for result in answer["results"]:
            if "domain" in result:
                domain = decode(Domain, result["domain"])
                sandboxes.append(AsyncSandbox(self._client.share(), domain, owned=True))
            else:
                errors.append(from_problem(result["problem"]))
        if errors:
            raise CloneError(sandboxes, errors)
        return sandboxes

    async def fork(self, **options: Any) -> AsyncSandbox:
        """One clone; options as for `clone`."""
        return (await self.clone(1, **options))[0]
