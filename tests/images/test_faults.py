"""Registries that stall, break off and lie, hostile layers, full disks, and pulls killed at any moment."""
import gzip
import hashlib
import io
import json
import os
import random
import subprocess
import tarfile
import threading
import time

import oci
import pytest

ROUNDS = int(os.environ.get("KILL_ROUNDS", "100" if os.environ.get("TEST_ALL", "") not in ("", "0") else "10"))


def pull(faulty, timeout=30):
    return ("image", "pull", f"{faulty.host}/team/app:1", "--name", "app", "--timeout", timeout)


def largest(faulty):
    return max(faulty.parsed()["layers"], key=lambda layer: layer["size"])["digest"]


def times(n, fault):
    """Does `fault` the first n times."""
    count = [0]

    def some(*args):
        count[0] += 1
        return count[0] <= n and fault(*args)

    return some


def cut(at, stay=0):
    """Ends the connection, or says nothing more for `stay` seconds, after `at` bytes."""

    def fault(handler, data, start):
        handler.answer(data, start)
        handler.wfile.write(data[start : start + at])
        handler.wfile.flush()
        time.sleep(stay)
        handler.close_connection = True
        return True

    return fault


def whole(change, length=None, status=None):
    """Sends other data, or states another length."""

    def fault(handler, data, start):
        sent = change(data)
        if status:
            handler.send_error(status)
        else:
            handler.answer(sent, 0, len(sent) if length is None else length(len(sent)))
            handler.wfile.write(sent)
            handler.close_connection = True
        return True

    return fault


def test_what_breaks_off_goes_on(faulty, store):
    layer = largest(faulty)
    faulty.faults[layer] = times(3, cut(600_000))
    store.ok(*pull(faulty))
    ranges = [r for path, r in faulty.log if path.endswith(layer)]
    assert ranges[0] is None and ranges[1:] == ["bytes=600000-", "bytes=1200000-", "bytes=1800000-"]
    store.check()


def test_what_stalls_goes_on(faulty, store):
    layer, answered = largest(faulty), threading.Event()

    def stall(handler, data, start):
        handler.answer(data, start)
        handler.wfile.write(data[start : start + 600_000])
        handler.wfile.flush()
        # Says nothing more until long after the pull is over.
        answered.wait(300)
        handler.close_connection = True
        return True

    faulty.faults[layer] = times(1, stall)
    try:
        store.ok(*pull(faulty, timeout=1))
        assert len([r for path, r in faulty.log if path.endswith(layer)]) >= 2
    finally:
        answered.set()
    store.check()


def test_what_always_stalls_ends(faulty, store):
    faulty.faults[largest(faulty)] = cut(1000, stay=60)
    failed = store.fails(*pull(faulty, timeout=1))
    # On a busy host the second is over before the registry has answered at all.
    assert "sent nothing for 1 s" in failed or "no answer within 1 s" in failed
    assert store.check() == []


def test_a_registry_that_ignores_ranges(faulty, store):
    layer = largest(faulty)

    def fault(handler, data, start):
        if not start:
            return cut(600_000)(handler, data, 0)
        handler.answer(data)
        handler.wfile.write(data)
        return True

    faulty.faults[layer] = times(2, fault)
    store.ok(*pull(faulty))
    store.check()


def test_errors_that_pass(faulty, store):
    faulty.faults[largest(faulty)] = times(2, whole(bytes, status=503))
    store.ok(*pull(faulty))
    store.check()


LIES = {
    "other data": (whole(lambda d: bytes([d[0] ^ 1]) + d[1:]), "the registry sent data of digest sha256:"),
    "a longer length": (whole(bytes, length=lambda n: n + 1), "the registry announces"),
    "a shorter length": (whole(bytes, length=lambda n: n - 1), "the registry announces"),
    "more data": (whole(lambda d: d + b"x"), "the registry announces"),
    "less data": (whole(lambda d: d[:-1]), "the registry announces"),
    "nothing": (whole(lambda d: b""), "the connection broke"),
    "no such blob": (whole(bytes, status=404), "404"),
    "no leave": (whole(bytes, status=403), "403"),
    "always an error": (whole(bytes, status=500), "500"),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("what", ["layer", "config"])
def test_lies_about_blobs(faulty, store, lie, what):
    fault, words = LIES[lie]
    faulty.faults[largest(faulty) if what == "layer" else faulty.parsed()["config"]["digest"]] = fault
    assert words in store.fails(*pull(faulty))
    assert store.files("names") == []
    faulty.faults.clear()
    store.ok(*pull(faulty))
    store.check()


def test_data_without_a_length_and_end(faulty, store):
    def endless(handler, data, start):
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for _ in range(1000):
            handler.wfile.write(b"10000\r\n" + bytes(0x10000) + b"\r\n")
        return True

    faulty.faults[largest(faulty)] = endless
    assert "sends more than the" in store.fails(*pull(faulty))
    faulty.faults = {"manifest": endless}
    assert "longer than 4194304 bytes" in store.fails(*pull(faulty))
    assert store.check() == []


def test_lies_about_manifests(faulty, store):
    def change(old, new):
        return whole(lambda d: d.replace(old, new))

    layer = largest(faulty).encode()
    config = faulty.parsed()["config"]["digest"].encode()
    for fault, words in [
        (whole(lambda d: b"{}"), "missing field"),
        (whole(lambda d: b"<html>"), "the manifest of"),
        (whole(lambda d: d[:-20]), "the manifest of"),
        (
            change(b'"schemaVersion": 2', b'"schemaVersion": 1')
            if b'": 2' in faulty.manifest
            else change(b'"schemaVersion":2', b'"schemaVersion":1'),
            "schema version",
        ),
        (change(layer, b"sha256:../../../../etc/passwd"), "a SHA-256 digest has 64"),
        (change(layer, b"md5:00"), "a digest must be sha256:"),
        (change(layer, config), "blob sha256:"),
        (whole(bytes, status=500), "500"),
    ]:
        faulty.faults["manifest"] = fault
        assert words in store.fails(*pull(faulty)), words
    digest = hashlib.sha256(faulty.manifest).hexdigest()
    faulty.faults["manifest"] = whole(lambda d: d + b" ")
    assert "sent sha256:" in store.fails("image", "pull", f"{faulty.host}/team/app@sha256:{digest}", "--name", "app")
    assert store.check() == []


def test_text_of_a_registry_cannot_steer_a_terminal(faulty, store):
    def fault(handler, data, start):
        body = json.dumps({"errors": [{"code": "X", "message": "\x1b]0;pwned\x07\n"}]}).encode()
        handler.send_response(403)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)
        return True

    faulty.faults["manifest"] = fault
    text = store.fails(*pull(faulty))
    assert "pwned" in text and "\x1b" not in text and text.count("\n") == 1


def test_two_pulls_share_a_transfer(faulty, store):
    faulty.slow = 0.01
    both = [
        store.popen("image", "pull", f"{faulty.host}/team/app:1", "--name", f"app{i}", stderr=subprocess.PIPE)
        for i in (1, 2)
    ]
    for process in both:
        assert process.wait(120) == 0, process.stderr.read()
        process.stderr.close()
    for layer in faulty.parsed()["layers"]:
        assert sum(path.endswith(layer["digest"]) for path, _ in faulty.log) == 1
    assert len(store.check()) == 2


def test_killed_at_any_moment(faulty, store):
    """Whenever a pull dies, the store is consistent, what has come is used, and nothing is left that is not found."""
    faulty.slow = 0.005
    random.seed(5)
    start = time.monotonic()
    store.ok(*pull(faulty))
    took = time.monotonic() - start
    store.ok("image", "rm", "app")
    store.check()
    for i in range(ROUNDS):
        process = store.popen(*pull(faulty), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(random.uniform(0, took * 1.1))
        process.kill()
        process.wait()
        records = store.records()
        for record in records:
            store.ok("image", "inspect", record["name"])
            store.ok("image", "rm", record["name"])
        # With every other round what has come is collected, else it is gone on with.
        if i % 2:
            assert store.check() == []
    store.ok(*pull(faulty))
    assert len(store.check()) == 1


def test_killed_in_the_middle_of_a_transfer(faulty, store):
    """What has come of it is used."""
    layer, sent, go_on = largest(faulty), threading.Event(), threading.Event()

    def stall(handler, data, start):
        handler.answer(data, start)
        handler.wfile.write(data[start : start + 600_000])
        handler.wfile.flush()
        sent.set()
        go_on.wait(300)
        handler.close_connection = True
        return True

    faulty.faults[layer] = times(1, stall)
    process = store.popen(*pull(faulty), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert sent.wait(60)
        # What was sent is written a moment later.
        part = store.path / "partial" / layer.replace(":", "-")
        deadline = time.monotonic() + 60
        while part.stat().st_size == 0:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        process.kill()
        process.wait()
        go_on.set()
    store.ok(*pull(faulty))
    assert [r for path, r in faulty.log if path.endswith(layer)][-1].startswith("bytes="), faulty.log
    store.check()


def test_a_full_disk(faulty, tools, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    # Enough for the blobs, not for the root image too.
    for size in ("3m", "8m"):
        if subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", small], capture_output=True
        ).returncode:
            pytest.skip("cannot mount")
        try:
            store = oci.Store(small / "store")
            assert "No space left" in store.fails(*pull(faulty))
            assert store.files("names") == [] and store.files("images") == []
            assert store.check() == []
        finally:
            subprocess.run(["umount", small], check=True)


# Hostile layers, in layouts made by hand.


def tar(*entries, end=True):
    """A layer: entries are (name, data as bytes or kind as str, more header fields)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, what, *more in entries:
            header = tarfile.TarInfo(name)
            data = what if isinstance(what, bytes) else b""
            header.size = len(data)
            header.type = tarfile.REGTYPE if isinstance(what, bytes) else what.encode()
            for key, value in dict(*more).items():
                setattr(header, key, value)
            archive.addfile(header, io.BytesIO(data))
    return out.getvalue() if end else out.getvalue()[:-1024]


def layout(directory, *layers, diff_ids=None, change=lambda manifest: None):
    """An OCI layout of these layers, each the tar or (its compressed form, the tar)."""
    blobs = directory / "blobs/sha256"
    blobs.mkdir(parents=True, exist_ok=True)

    def blob(data, kind):
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    pairs = [x if isinstance(x, tuple) else (x, x) for x in layers]
    diff_ids = diff_ids or [f"sha256:{hashlib.sha256(plain).hexdigest()}" for _, plain in pairs]
    config = {"os": "linux", "architecture": "amd64", "rootfs": {"type": "layers", "diff_ids": diff_ids}}
    manifest = {
        "schemaVersion": 2,
        "config": blob(json.dumps(config).encode(), "config.v1+json"),
        "layers": [blob(packed, "layer.v1.tar+gzip") for packed, _ in pairs],
    }
    change(manifest)
    entry = blob(json.dumps(manifest).encode(), "manifest.v1+json")
    (directory / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
    (directory / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    return directory


LNK, SYM, CHR, DIR = "1", "2", "3", "5"
LINK = ("l", SYM, {"linkname": "/etc"})
HOSTILE = {
    "a path upwards": ([[("../x", b"1")]], "`..` in a path"),
    "a path upwards inside": ([[("a/../../x", b"1")]], "`..` in a path"),
    "an absolute path": ([[("/etc/cron.d/x", b"1")]], "absolute path"),
    "below its own link": ([[LINK, ("l/x", b"1")]], "goes through the symbolic link l"),
    "below a link out of the image": (
        [[("l", SYM, {"linkname": "../../etc"})], [("l/x", b"1")]],
        "leads out of the image",
    ),
    "below a link to itself": ([[("l", SYM, {"linkname": "l"})], [("l/x", b"1")]], "too many symbolic links"),
    "a hard link outwards": ([[("x", LNK, {"linkname": "../../etc/shadow"})]], "`..` in a path"),
    "an absolute hard link": ([[("x", LNK, {"linkname": "/etc/shadow"})]], "absolute path"),
    "a hard link to nothing": ([[("x", LNK, {"linkname": "etc/shadow"})]], "which is not there"),
    "a hard link to a directory": ([[("d", DIR), ("x", LNK, {"linkname": "d"})]], "hard link to a directory"),
    "a long name": ([[("x" * 300, b"1")]], "name longer than 255"),
    "a long path": ([[("x/" * 3000, DIR)]], "path longer than 4095"),
    "a whiteout of `..`": ([[(".wh...", b"")]], "a whiteout of no name"),
    "below a whiteout": ([[(".wh.x/y", b"1")]], "below a whiteout"),
    "below a file": ([[("f", b"1"), ("f/x", b"1")]], "f is not a directory"),
    "an unknown type": ([[("x", "V")]], "unknown type"),
    "many long headers": ([[("x", b"1", {"pax_headers": {"comment": "y" * (2 << 20)}})]], "headers of more than 1 MiB"),
    "an impossible attribute": ([[("x", b"1", {"pax_headers": {"SCHILY.xattr.nonsense": "y"}})]], "no known prefix"),
    "an impossible device": ([[("x", CHR, {"devmajor": 99999, "devminor": 1})]], "bad device number"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_layers(store, tmp_path, what):
    layers, words = HOSTILE[what]
    made = [tar(*entries) for entries in layers]
    before = set(os.listdir("/etc"))
    error = store.fails("image", "import", layout(tmp_path / "l", tar(("ok", b"1")), *made), "bad")
    assert words in error, error
    assert set(os.listdir("/etc")) == before and store.check() == []


def test_links_of_lower_layers_are_followed_inside(store, tmp_path):
    base = tar(("usr/lib", DIR), ("lib", SYM, {"linkname": "/usr/lib"}))
    image = layout(tmp_path / "l", base, tar(("lib/x", b"1")), tar(("h", LNK, {"linkname": "lib/x"})))
    flat = tar(
        ("usr/lib", DIR),
        ("lib", SYM, {"linkname": "/usr/lib"}),
        ("usr/lib/x", b"1"),
        ("h", LNK, {"linkname": "usr/lib/x"}),
    )
    (tmp_path / "flat.tar").write_bytes(flat)
    assert store.json("import", image, "a")["digest"] == store.json("import", tmp_path / "flat.tar", "b")["digest"]


def test_bombs(store, tmp_path):
    zeros = subprocess.run("head -c 3G /dev/zero | zstd -1 -c", shell=True, capture_output=True, check=True).stdout
    plain = tar(("x", b"1"))
    head = subprocess.run(["zstd", "-c"], input=plain, capture_output=True, check=True).stdout
    bomb = layout(tmp_path / "a", (head + zeros, plain))
    assert "refused as a bomb" in store.fails("image", "import", bomb, "bad")
    packed = gzip.compress(tar(("x", bytes(20 << 20))))
    big = layout(tmp_path / "b", (packed, b""))
    assert "--max-bytes" in store.fails("image", "import", "--max-bytes", "10000000", big, "bad")
    many = layout(tmp_path / "c", tar(*[(f"f{i}", b"") for i in range(2000)]))
    assert "--max-files" in store.fails("image", "import", "--max-files", "1000", many, "bad")
    same = layout(tmp_path / "d", tar(*[("d", DIR) for i in range(3000)]))
    assert "too many entries" in store.fails("image", "import", "--max-files", "1000", same, "bad")
    assert store.check() == []


def test_layers_that_are_not_what_they_say(store, tmp_path):
    good = tar(("x", b"1"))
    packed = gzip.compress(good)
    cases = [
        (layout(tmp_path / "a", (packed[:-12], good)), "cut|cannot be read|ends in the middle"),
        (layout(tmp_path / "b", (packed, b"other")), "but the configuration says"),
        (layout(tmp_path / "c", good, diff_ids=["sha256:" + "0" * 64] * 2), "it is of 2 layers"),
        (layout(tmp_path / "d", tar(("x", bytes(2000)))[:1500]), "truncated|ends in the middle"),
        (layout(tmp_path / "d2", good[:300]), "truncated"),
        (layout(tmp_path / "e", b"not a tar" * 100), "is not a tar archive"),
        (layout(tmp_path / "f", good, change=lambda m: m["layers"][0].update(size=5)), "instead of 5"),
        (layout(tmp_path / "g", good, change=lambda m: m["config"].update(size=9 << 20)), "configuration has"),
    ]
    for directory, words in cases:
        error = store.fails("image", "import", directory, "bad")
        assert any(w in error for w in words.split("|")), error
    # A layout whose blob is not what its name says.
    directory = layout(tmp_path / "h", good)
    victim = directory / "blobs/sha256" / hashlib.sha256(good).hexdigest()
    victim.write_bytes(b"x" * len(good))
    assert "its data has digest" in store.fails("image", "import", directory, "bad")
    assert store.check() == []


def test_a_blob_damaged_in_the_store_is_fetched_again(faulty, store):
    store.ok(*pull(faulty))
    victim = store.path / "blobs" / largest(faulty).replace(":", "-")
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.unlink()
    victim.write_bytes(data)
    store.ok("image", "rm", "app")
    assert "damaged in the store" in store.fails(*pull(faulty))
    store.ok(*pull(faulty))
    store.check()
