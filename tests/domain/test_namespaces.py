"""Namespaces inside a domain, by Debian's own tools: unshare, nsenter, lsns, ipcs."""

from typing import Any

import pytest

# What a command prints.
SAYS = {
    "root of a user namespace": ("unshare -Ur id -u", "0\n"),
    "nobody without a map": ("unshare -U id -u", "65534\n"),
    "an ordinary user": ("setpriv --reuid 1000 --regid 1000 --clear-groups unshare -Ur id -u", "0\n"),
    "the first process": ("unshare -pf --kill-child sh -c 'echo $$'", "1\n"),
    "the first process of a user": ("unshare -Urpf --kill-child sh -c 'echo $$'", "1\n"),
    "init cannot be killed": ("unshare -pf sh -c 'kill -9 $$; echo lives'", "lives\n"),
    "its end ends all": ("unshare -pf sh -c 'sleep 99 & sleep 99 & exit 3'; echo $?; pgrep -c sleep; true", "3\n0\n"),
    "a host name of its own": ("hostname out; unshare -u sh -c 'hostname in; hostname'; hostname", "in\nout\n"),
    "queues of its own": ("ipcmk -Q > /dev/null; unshare -i ipcs -q | grep -c 0x; ipcs -q | grep -c 0x", "0\n1\n"),
    "all capabilities in it": ("unshare -Ur grep -c CapEff:.000001ffffffffff /proc/self/status", "1\n"),
    "who enters": (
        "unshare -u sh -c 'hostname there; echo $$ > /tmp/pid; sleep 1000' & "
        "while ! [ -s /tmp/pid ]; do sleep 0.05; done; P=$(cat /tmp/pid); nsenter -t $P -u hostname; "
        "lsns -t uts -n -o NPROCS,TYPE | wc -l; kill $P; pkill sleep",
        "there\n2\n",
    ),
    "who enters a PID namespace": (
        "unshare -pf sh -c 'sleep 1000; :' & while ! P=$(pgrep -x sleep); do sleep 0.05; done; "
        "I=$(ps -o ppid= $P | tr -d ' '); nsenter -t $I -p sh -c 'echo $$'; "
        "grep NSpid /proc/$I/status | awk '{print $3}'; kill -9 $I",
        "3\n1\n",
    ),
}


@pytest.mark.parametrize("what", SAYS)
def test_tools(domain: Any, what: str) -> None:
    command, says = SAYS[what]
    out = domain.run("sh", "-c", command).ok()
    assert out == says


def test_nested_roots_do_what_they_like(domain: Any, need: Any) -> None:
    """Random calls of namespaces and mounts: they end by themselves, and the domain goes on."""
    need("nested")
    out = domain.run("/t/nested", "4", "1", image="domain-tests").ok()
    assert out.startswith("nested ok")
