"""Many domains, each a small server: made together, all answer, nothing is left of them."""
import concurrent.futures
import os

import leftovers
import pytest
from conftest import output_of

SERVERS = int(os.environ.get("DOPPEL_SERVERS", "50"))
# The same program serves and, as an exec, asks.
SERVE = ["sh", "-c", "echo served by $(hostname) >/index.html; exec busybox httpd -f -p 127.0.0.1:80 -h /"]
FETCH = ["busybox", "wget", "-q", "-O", "-", "http://127.0.0.1/index.html"]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def test_many_servers(new_doppeld, busybox):
    d = new_doppeld().start()

    def make(i):
        d.post("/v1/domains?start=true", {"image": busybox, "name": f"s{i}", "command": SERVE}).ok(201)

    def ask(i):
        # It may not listen yet.
        script = ["sh", "-c", f"until {' '.join(FETCH)} 2>/dev/null; do sleep 0.05; done"]
        exec_ = d.post(f"/v1/domains/s{i}/exec", {"command": script, "timeout_seconds": 60}).ok(201)["id"]
        return output_of(d.get(f"/v1/execs/{exec_}/output").lines)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(make, range(SERVERS)))
        answers = list(pool.map(ask, range(SERVERS)))
        assert answers == [(f"served by s{i}\n".encode(), b"", 0) for i in range(SERVERS)]
        list(pool.map(lambda i: d.delete(f"/v1/domains/s{i}?force=true").ok(), range(SERVERS)))
    leftovers.none_of(d)
    leftovers.none_at_all(d)
