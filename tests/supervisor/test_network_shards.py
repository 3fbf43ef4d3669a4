"""Networks spread over several network services: what the death of one leaves alone."""
import os
import signal
import subprocess

import pytest
from conftest import DOPPELD, have_image
from leftovers import services
from test_networks import PORT, connected, eventually, is_over, nat, upper

ECHO = """
import socket, threading
def serve(c):
    while data := c.recv(1000):
        c.sendall(data.upper())
    c.close()
s = socket.create_server(("", 80))
while True:
    threading.Thread(target=serve, args=(s.accept()[0],)).start()
"""


@pytest.fixture
def sharded(new_doppeld):
    """A supervisor with two network services, and ports of a server on each of two networks."""
    d = new_doppeld(config="network_shards = 2\n").start()
    if not have_image("debian"):
        pytest.skip("no image debian: make test-images")
    ports = {}
    for name in ("red", "blue"):
        body = {
            "image": "debian",
            "name": f"shard-{name}",
            "command": ["python3", "-c", ECHO],
            "network": nat(PORT, name=name),
        }
        domain = d.post("/v1/domains?start=true", body).ok()["domain"]
        ports[name] = domain["network"]["ports"][0]["host_port"]
        # It listens.
        connected(ports[name]).close()
    return d, ports


def echoes(s):
    try:
        return upper(s, b"still") == b"STILL"
    except ConnectionError:
        return False


def test_the_death_of_one_is_not_felt_by_others(sharded):
    d, ports = sharded
    assert len(services(d)) == 2
    killed = set()
    for service in services(d):
        open_now = {name: connected(port) for name, port in ports.items()}
        os.kill(service, signal.SIGKILL)
        [hit] = eventually(lambda: [n for n, s in open_now.items() if not echoes(s)], "nobody's connection is over")
        assert is_over(open_now[hit])
        killed.add(hit)
        # Its own go on when it has been replaced, the others have never stopped.
        connected(ports[hit]).close()
        for name, s in open_now.items():
            assert name == hit or echoes(s), f"{name} felt it"
            s.close()
        eventually(lambda: len(services(d)) == 2, "it is not replaced")
    assert killed == set(ports), "both on one"


def test_a_network_is_whole_wherever_it_is(sharded):
    d, _ports = sharded
    ask = (
        "import socket, sys; s = socket.create_connection((sys.argv[1], 80), timeout=60); s.sendall(b'hi'); "
        "print(s.recv(9))"
    )
    for name, other in [("red", "blue"), ("blue", "red")]:
        for target, good in [(f"shard-{name}", True), (f"shard-{other}", False)]:
            body = {
                "image": "debian",
                "command": ["python3", "-c", ask, target],
                "network": nat(name=name),
                "auto_remove": False,
            }
            asks = d.post("/v1/domains?start=true", body).ok()["domain"]["id"]
            code = d.post(f"/v1/domains/{asks}/wait", {}).ok()["exit"]["exit_code"]
            assert (code == 0) == good, (name, target)
            d.delete(f"/v1/domains/{asks}").ok()


def check(*args):
    return subprocess.run([DOPPELD, *args, "--check"], capture_output=True, text=True, timeout=60)


def test_how_many_is_said_by_file_or_flag(tmp_path):
    file = tmp_path / "doppeld.toml"
    file.write_text("network_shards = 3\n")
    assert "network_shards = 3" in check("--config", file).stdout
    assert "network_shards = 4" in check("--config", file, "--network-shards", "4").stdout
    file.write_text("network_shards = 65\n")
    assert "between 1 and 64" in check("--config", file).stderr
