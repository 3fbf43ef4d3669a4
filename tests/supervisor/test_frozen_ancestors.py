"""Frozen images of the supervisor's domains that refer to older ones, also after its keeper has died."""
import os

import pytest
from conftest import ok
from test_keeper_kills import kill_keeper, own  # noqa: F401 (`own` is a fixture)
from test_rollback import begin, count

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def image(own, name):
    return own.get(f"/v1/frozen/{name}").ok()


def test_images_refer_to_older_ones(own):
    begin(own, name="b0")
    assert count(own, "b0") == (1, 0, 0)
    freeze = lambda domain, frozen, **how: own.post(f"/v1/domains/{domain}/freeze", {"frozen": frozen, **how}).ok()
    one = freeze("b0", "one")
    two = freeze("b0", "two")
    assert one["written_bytes"] == one["bytes"] and two["written_bytes"] < two["bytes"]
    assert image(own, "one")["ancestors"] == 0
    assert image(own, "two")["ancestors"] == 1 and image(own, "two")["ancestors_bytes"] > 0
    assert freeze("b0", "whole", whole=True)["written_bytes"] >= one["bytes"] // 2
    assert image(own, "whole")["ancestors"] == 0
    # What a keeper knew of a domain's images its successor knows.
    kill_keeper(own)
    assert count(own, "b0") == (2, 1, 1)
    three = freeze("b0", "three")
    assert three["written_bytes"] < three["bytes"] and image(own, "three")["ancestors"] >= 1
    # A clone whose memory is in several files, frozen under another keeper, asleep and awake.
    ok(own.cli("frozen", "rm", "one", "whole"))
    clone = ok(own.cli("clone", "-d", "three")).strip()
    assert count(own, clone)[0] == 3
    kill_keeper(own)
    assert count(own, clone)[0] == 4
    four = freeze(clone, "four")
    assert four["written_bytes"] < four["bytes"] and image(own, "four")["ancestors"] >= 1
    ok(own.cli("hibernate", clone))
    ok(own.cli("frozen", "rm", "two"))
    assert count(own, clone)[0] == 5
    own.delete(f"/v1/domains/{clone}?force=true")
    ok(own.cli("frozen", "rm", "three"))
    flat = own.post("/v1/frozen/four/flatten", {}).ok()
    assert flat["ancestors"] == 0 and flat["size_bytes"] > four["written_bytes"]
    another = ok(own.cli("clone", "-d", "four")).strip()
    assert count(own, another)[0] == 5
