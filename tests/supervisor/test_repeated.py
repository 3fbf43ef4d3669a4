"""A request with an idempotency key that is sent again after the supervisor's sudden death: what it made is not made
twice."""

import os

import pytest
from test_supervisor_faults import ROUNDS, killed_during, sleeper

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def test_nothing_is_made_twice(new_doppeld, busybox):
    d = new_doppeld().start()
    d.post("/v1/domains?start=true", sleeper("origin")).ok(201)
    d.post("/v1/domains/origin/freeze", {"frozen": "warm"}).ok()
    for i in range(ROUNDS):
        wanted = {
            "/v1/domains?start=true": sleeper(f"once{i}"),
            "/v1/frozen/warm/clone": {"count": 3, "name": f"clone{i}"},
        }
        for path, body in wanted.items():
            send = lambda: d.post(path, body, headers={"Idempotency-Key": f"{path} {i}"})
            killed_during(d, send)
            answer = send().ok(201)
            assert all("domain" in result for result in answer.get("results", [])), answer
            assert send().ok(201) == answer
        names = {x["name"] for x in d.get("/v1/domains").ok()}
        assert names == {"origin", f"once{i}", *(f"clone{i}-{n}" for n in (1, 2, 3))}
        for name in names - {"origin"}:
            d.delete(f"/v1/domains/{name}?force=true").ok()
