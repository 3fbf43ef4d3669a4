# Made by generate.py of doppel/_async/virtual_network.py: change that.
"""Networks: sandboxes that are on one reach each other."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import Any

from .._wire import present, segment, strings
from ..models import Domain, NetworkInfo, NetworkPruneReport, NetworkSubnet, decode
from .client import Client, connection
from .sandbox import Sandbox


def _name(sandbox: Sandbox | str) -> str:
    return sandbox if isinstance(sandbox, str) else sandbox.id


class VirtualNetwork:
    """What can be done with networks; `Sandbox.create(network="NAME")` puts a sandbox on one."""

    @staticmethod
    def create(
        name: str,
        *,
        labels: Mapping[str, str] | None = None,
        internal: bool = False,
        subnets: Sequence[str | NetworkSubnet] = (),
        client: Client | None = None,
    ) -> NetworkInfo:
        """Makes a network; `NameInUse` if it is there. Of networks that are all `internal` nothing leads outside.

        `subnets`: its sandboxes have addresses out of these, as `172.20.0.0/16`; one of IPv4 and one of IPv6 at most.
        """
        asked = [NetworkSubnet(subnet=one) if isinstance(one, str) else one for one in subnets]
        spaces = [present(subnet=one.subnet, ip_range=one.ip_range, gateway=one.gateway) for one in asked]
        body: dict[str, Any] = present(
            name=name, labels=strings(labels), internal=internal, subnets=spaces or None
        )
        with connection(client) as http:
            return decode(NetworkInfo, http.request("POST", "/v1/networks", json=body))

    @staticmethod
    def list(*, client: Client | None = None) -> builtins.list[NetworkInfo]:
        """All networks, those too that sandboxes made by naming them."""
        with connection(client) as http:
            return decode(list[NetworkInfo], http.request("GET", "/v1/networks"))

    @staticmethod
    def get(name: str, *, client: Client | None = None) -> NetworkInfo:
        """The network of this name."""
        with connection(client) as http:
            return decode(NetworkInfo, http.request("GET", f"/v1/networks/{segment(name)}"))

    @staticmethod
    def remove(name: str, *, force: bool = False, client: Client | None = None) -> None:
        """Removes a network; refused (`InUse`) while a sandbox is on it. With `force` it may be missing."""
        with connection(client) as http:
            http.request("DELETE", f"/v1/networks/{segment(name)}", params={"force": force})

    @staticmethod
    def prune(*, label: str | None = None, client: Client | None = None) -> builtins.list[str]:
        """Removes networks that no sandbox is on. Names of those removed."""
        with connection(client) as http:
            answer = http.request("POST", "/v1/networks/prune", params=present(label=label))
            return decode(NetworkPruneReport, answer).removed

    @staticmethod
    def connect(
        name: str,
        sandbox: Sandbox | str,
        *,
        aliases: Sequence[str] = (),
        ip4: str | None = None,
        ip6: str | None = None,
        client: Client | None = None,
    ) -> Domain:
        """Puts a sandbox on a network, whether it runs or not; others find it there by its name and `aliases`.

        `ip4`, `ip6`: addresses that it is to have out of the network's subnets; the lowest free ones otherwise.
        """
        body = present(domain=_name(sandbox), aliases=list(aliases), ip4=ip4, ip6=ip6)
        with connection(client) as http:
            return decode(Domain, http.request("POST", f"/v1/networks/{segment(name)}/connect", json=body))

    @staticmethod
    def disconnect(
        name: str, sandbox: Sandbox | str, *, force: bool = False, client: Client | None = None
    ) -> Domain:
        """Takes a sandbox off a network: its connections over that end. With `force` it need not be on it."""
        body = {"domain": _name(sandbox), "force": force}
        with connection(client) as http:
            return decode(Domain, http.request("POST", f"/v1/networks/{segment(name)}/disconnect", json=body))
