"""Servers of the image `servers`, driven by a load generator inside the same domain.

`rates` runs a bash script, in a runtime, that prints lines "row: figure"; a script begins with HELPERS. Everything
is in /tmp, a file system in memory, and speaks over loopback or AF_UNIX, so that only the kernels differ: the
programs are the same files for all runtimes.
"""
from typing import Any

IMAGE = "servers"
HELPERS = r"""
set -eu
# Runs a command until it succeeds, for at most 30 s.
wait_for() {
    local end=$((SECONDS + 30))
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || { echo "in vain: $*" >&2; exit 1; }
        sleep 0.05
    done
}
"""


def rates(runtime: Any, script: str, timeout: float = 300) -> Any:
    """What the script measured: {row: figure}."""
    out = runtime.run("/bin/bash", "-c", HELPERS + script, image=IMAGE, timeout=timeout)
    lines = (line.rpartition(": ") for line in out.splitlines() if ": " in line)
    return {name: float(figure) for name, _, figure in lines}
