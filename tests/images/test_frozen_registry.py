"""Frozen images in a registry: another store pulls one with its root image, and clones go on with memory and files."""
import json
import subprocess
import urllib.request
import uuid

import oci
import pytest

SCRIPT = "echo kept > /kept; echo up; sleep 2; echo on with $(cat /kept)"
ACCEPT = {"Accept": "application/vnd.oci.image.manifest.v1+json"}


@pytest.fixture
def warm(store, registry):
    """A store with the frozen image `warm`."""
    store.ok("image", "pull", f"{registry.host}/team/base:1", "--name", "base")
    name = f"test-{uuid.uuid4().hex[:10]}"
    run = store.popen(
        "run", "--rm", "--standalone", "--name", name, "base", "sh", "-c", SCRIPT, stdout=subprocess.PIPE
    )
    assert run.stdout.readline() == b"up\n"
    store.ok("freeze", name, "warm")
    run.communicate(timeout=60)
    return store


@pytest.fixture
def other(tmp_path):
    yield oci.Store(tmp_path / "elsewhere/store")
    subprocess.run(["rm", "-rf", tmp_path / "elsewhere"])


def repository(registry):
    return f"{registry.host}/team/warm-{uuid.uuid4().hex[:8]}"


def manifest(registry, repository, reference):
    path = repository.partition("/")[2]
    request = urllib.request.Request(f"http://{registry.host}/v2/{path}/manifests/{reference}", headers=ACCEPT)
    return json.load(urllib.request.urlopen(request))


def test_another_store_goes_on_with_it(warm, other, registry):
    there = repository(registry)
    assert "blobs sent" in warm.ok("frozen", "push", "warm", f"{there}:1")
    # Nothing is left of it but what was there.
    warm.ok("image", "prune")
    assert [f for f in warm.files("frozen") if f.startswith("warm")]
    artifact = manifest(registry, there, "1")
    assert artifact["artifactType"] == "application/vnd.doppel.frozen.v1" and len(artifact["layers"]) == 1
    # Its image is there as any other.
    assert manifest(registry, there, artifact["annotations"]["doppel.image.manifest"])["layers"]
    assert " 0 blobs sent" in warm.ok("frozen", "push", "warm", f"{there}:2").replace(":", ": ")

    subprocess.run(["mv", warm.path, f"{warm.path}.gone"], check=True)
    try:
        last = there.rpartition("/")[2]
        assert other.ok("frozen", "pull", f"{there}:1") == f"{last}\n"
        for _ in range(2):
            assert other.ok("clone", last) == "on with kept\n"
        # In memory it is in no store.
        assert "without --in-memory" in other.fails("frozen", "pull", f"{there}:2", "mine", "--in-memory")
        other.ok("frozen", "pull", f"{there}:2", "mine")
        assert other.ok("frozen", "ls", "-q").split() == sorted(["mine", last])
        assert other.ok("clone", "mine") == "on with kept\n"
    finally:
        subprocess.run(["mv", f"{warm.path}.gone", warm.path], check=True)


def test_files_of_a_layer_go_with_it(store, other, registry):
    """Files that stayed in the domain's layer are in the artifact and in an export; what was written later is not."""
    store.ok("image", "pull", f"{registry.host}/team/base:1", "--name", "base")
    name = f"test-{uuid.uuid4().hex[:10]}"
    script = "yes kept | head -c 25000000 > /kept; sync; echo up; sleep 3; md5sum < /kept"
    run = store.popen(
        "run", "--rm", "--standalone", f"--persist={name}", "--name", name, "base", "sh", "-c", script,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert run.stdout.readline() == b"up\n"
    store.ok("freeze", name, "warm")
    expected = run.communicate(timeout=60)[0].decode()
    assert (store.path / "frozen/warm.layers/0").stat().st_blocks * 512 >= 25_000_000
    there = repository(registry)
    store.ok("frozen", "push", "warm", f"{there}:1")
    other.ok("frozen", "pull", f"{there}:1", "pulled")
    export = store.path.parent / "export"
    store.ok("frozen", "export", "warm", export)
    other.ok("frozen", "import", export, "imported")
    for frozen in ("pulled", "imported"):
        assert other.ok("clone", frozen) == expected
    # They are kept on disk, and nothing is left of what is cut short.
    assert "without --in-memory" in other.fails("frozen", "import", "--in-memory", export, "more")
    with open(export, "r+b") as f:
        f.truncate(export.stat().st_size - 100)
    assert "cut short" in other.fails("frozen", "import", export, "more")
    other.ok("frozen", "rm", "pulled", "imported")
    assert other.files("frozen") == []


def test_what_is_refused(warm, other, registry):
    there = repository(registry)
    warm.ok("frozen", "push", "warm", f"{there}:1")
    assert "but an image: `doppel image pull`" in other.fails("frozen", "pull", f"{registry.host}/team/base:1")
    assert "no file system" in other.fails("image", "pull", f"{there}:1")
    assert "--max-bytes" in other.fails("frozen", "pull", f"{there}:1", "--max-bytes", "1000")
    assert "no name for a frozen image" in other.fails("frozen", "pull", f"{there}:1", "a/b")
    assert "no frozen image named none" in warm.fails("frozen", "push", "none", f"{there}:1")
    assert other.files("frozen") == [] and other.ok("frozen", "ls", "-q") == ""
    # Of an image that the store has no more there is nothing to push.
    warm.ok("image", "rm", "base")
    assert "is not in the store any more" in warm.fails("frozen", "push", "warm", f"{there}:3")
