"""Instances that others reach from outside."""
import copy
import socket
from typing import Any

from harness.runtimes import Bubblewrap, Oci


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def on_host(runtime: Any) -> Any:
    """The runtime with the host's network, if it has none that publishes ports."""
    one = copy.copy(runtime)
    if isinstance(runtime, Oci):
        one.config = copy.deepcopy(runtime.config)
        spaces = one.config["linux"]["namespaces"]
        one.config["linux"]["namespaces"] = [n for n in spaces if n["type"] != "network"]
        one.options = [o.replace("--network=none", "--network=host") for o in one.options]
    if isinstance(runtime, Bubblewrap):
        one.network = []
    return one
