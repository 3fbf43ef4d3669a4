"""Networks: sandboxes that are on one reach each other."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import Any

from .._wire import present, segment, strings
from ..models import Domain, NetworkInfo, NetworkPruneReport, NetworkSubnet, decode
from .client import AsyncClient, connection
from .sandbox import AsyncSandbox


def _name(sandbox: AsyncSandbox | str) -> str:
    return sandbox if isinstance(sandbox, str) else sandbox.id


class AsyncVirtualNetwork:
    """What can be done with networks; `AsyncSandbox.create(network="NAME")` puts a sandbox on one."""

    @staticmethod
    async def create(
        name: str,
        *,
        labels: Mapping[str, str] | None = None,
        internal: bool = False,
        subnets: Sequence[str | NetworkSubnet] = (),
        client: AsyncClient | None = None,
    ) -> NetworkInfo:
        """Makes a network; `NameInUse` if it is there. Of networks that are all `internal` nothing leads outside.

        `subnets`: its sandboxes have addresses out of these, as `172.20.0.0/16`; one of IPv4 and one of IPv6 at most.
        """
        asked = [NetworkSubnet(subnet=one) if isinstance(one, str) else one for one in subnets]
        spaces = [present(subnet=one.subnet, ip_range=one.ip_range, gateway=one.gateway) for one in asked]
        body: dict[str, Any] = present(
            name=name, labels=strings(labels), internal=internal, subnets=spaces or None
        )
        async with connection(client) as http:
            return decode(NetworkInfo, await http.request("POST", "/v1/networks", json=body))

    @staticmethod
    async def list(*, client: AsyncClient | None = None) -> builtins.list[NetworkInfo]:
        """All networks, those too that sandboxes made by naming them."""
        async with connection(client) as http:
            return decode(list[NetworkInfo], await http.request("GET", "/v1/networks"))

    @staticmethod
    async def get(name: str, *, client: AsyncClient | None = None) -> NetworkInfo:
        """The network of this name."""
        async with connection(client) as http:
            return decode(NetworkInfo, await http.request("GET", f"/v1/networks/{segment(name)}"))

    @staticmethod
    async def remove(name: str, *, force: bool = False, client: AsyncClient | None = None) -> None:
        """Removes a network; refused (`InUse`) while a sandbox is on it. With `force` it may be missing."""
        async with connection(client) as http:
            await http.request("DELETE", f"/v1/networks/{segment(name)}", params={"force": force})

    @staticmethod
    async def prune(*, label: str | None = None, client: AsyncClient | None = None) -> builtins.list[str]:
        """Removes networks that no sandbox is on. Names of those removed."""
        async with connection(client) as http:
            answer = await http.request("POST", "/v1/networks/prune", params=present(label=label))
            return decode(NetworkPruneReport, answer).removed

    @staticmethod
    async def connect(
        name: str,
        sandbox: AsyncSandbox | str,
        *,
        aliases: Sequence[str] = (),
        ip4: str | None = None,
        ip6: str | None = None,
        client: AsyncClient | None = None,
    ) -> Domain:
        """Puts a sandbox on a network, whether it runs or not; others find it there by its name and `aliases`.

        `ip4`, `ip6`: addresses that it is to have out of the network's subnets; the lowest free ones otherwise.
        """
        body = present(domain=_name(sandbox), aliases=list(aliases), ip4=ip4, ip6=ip6)
        async with connection(client) as http:
            return decode(Domain, await http.request("POST", f"/v1/networks/{segment(name)}/connect", json=body))

    @staticmethod
    async def disconnect(
        name: str, sandbox: AsyncSandbox | str, *, force: bool = False, client: AsyncClient | None = None
    ) -> Domain:
        """Takes a sandbox off a network: its connections over that end. With `force` it need not be on it."""
        body = {"domain": _name(sandbox), "force": force}
        async with connection(client) as http:
            return decode(Domain, await http.request("POST", f"/v1/networks/{segment(name)}/disconnect", json=body))
