# Made by generate.py of doppel/_async/virtual_network.py: change that.
"""Networks: sandboxes that are on one reach each other."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import Any

from .._wire import present, segment, strings
from ..models import Domain, NetworkInfo, NetworkPruneReport, decode
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
        client: Client | None = None,
    ) -> NetworkInfo:
        """Makes a network; `NameInUse` if it is there. Of networks that are all `internal` nothing leads outside."""
        body: dict[str, Any] = present(name=name, labels=strings(labels), internal=internal)
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
        name: str, sandbox: Sandbox | str, *, aliases: Sequence[str] = (), client: Client | None = None
    ) -> Domain:
        """Puts a sandbox on a network, whether it runs or not; others find it there by its name and `aliases`."""
        body = {"domain": _name(sandbox), "aliases": list(aliases)}
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
