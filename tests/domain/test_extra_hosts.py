"""`--add-host`: further names in /etc/hosts, with and without a network, in domains of both kinds."""
import pytest

KINDS = ("para", "paene")
HOSTS = ("--add-host", "db:10.0.0.7", "--add-host", "six=fd00::1", "--add-host", "host.docker.internal:host-gateway")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("network", ("none", "nat"))
def test_names_are_found(domain, kind, network):
    opts = ("--kind", kind, "--network", network, "--hostname", "me", *HOSTS)
    found = domain.run("sh", "-c", "cat /etc/hosts; getent hosts db", opts=opts).ok().splitlines()
    lines = [line.split() for line in found]
    for line in (["10.0.0.7", "db"], ["fd00::1", "six"], ["10.88.0.1", "host.docker.internal"]):
        assert line in lines, found
    assert lines.count(["10.0.0.7", "db"]) == 2, "as getent finds it"
    own = [line[0] for line in lines if line[-1] == "me"]
    assert own and (own[0] == "127.0.1.1") == (network == "none"), found


def test_what_is_no_entry_is_refused(domain):
    for entry in ("db", "db:there", "a b:10.0.0.1"):
        refused = domain.run("true", opts=("--add-host", entry))
        assert refused.code != 0 and entry in refused.err and "host" in refused.err, refused.err


def test_ranges_of_ports(domain):
    listen = "for p in 80 81; do busybox nc -l -p $p -e echo $p & done; wait"
    refused = domain.run("sh", "-c", listen, opts=("-p", "8000-8002:80-81"))
    assert refused.code != 0 and "3 ports of the host for 2 of the domain" in refused.err
    published = domain.run("true", opts=("-p", "127.0.0.1::80-82"))
    assert published.code == 0
    said = [published.err.count(f"port {p} is published at 127.0.0.1:") for p in (80, 81, 82)]
    assert said == [1, 1, 1], published.err
