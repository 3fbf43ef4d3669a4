"""The parts without a server, and that the package agrees with the interface it is made for."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from datetime import datetime, UTC
from pathlib import Path

import pytest

import doppel
from doppel import ArchiveError, Client, CommandResult, EventKind, errors, models
from doppel._archive import pack, unpack
from doppel._output import Output
from doppel._wire import address, argv, mounted, resources, seconds, segment, size

HERE = Path(__file__).resolve().parent
PYTHON = HERE.parent
SCHEMAS = json.loads((PYTHON / "interface.json").read_text())

# -- the interface


def test_every_problem_has_an_exception():
    codes = set(SCHEMAS["Code"]["enum"])
    assert len(codes) > 20
    assert codes <= set(errors.BY_CODE)
    assert len(set(errors.BY_CODE.values())) == len(errors.BY_CODE), "each a class of its own"


# -- both halves


def test_generated_code_is_up_to_date():
    subprocess.run([sys.executable, PYTHON / "generate.py", "--check"], check=True)


def test_nothing_asynchronous_is_left_in_the_half_for_threads():
    for path in (PYTHON / "doppel/_sync").glob("*.py"):
        for line in path.read_text().splitlines()[1:]:
            if not line.startswith('"""'):
                assert not re.search(r"\b(await|async|Async\w+|_async|asyncio)\b", line), f"{path.name}: {line}"


def test_everything_public_is_there():
    assert sorted(doppel.__all__) == doppel.__all__
    for name in doppel.__all__:
        assert getattr(doppel, name)
    for name in doppel.__all__:
        if name.startswith("Async"):
            twin = getattr(doppel, name.removeprefix("Async"))
            ours = {n for n in vars(getattr(doppel, name)) if not n.startswith("_")}
            assert ours == {n for n in vars(twin) if not n.startswith("_")}


@pytest.mark.parametrize("tool", [["mypy"], ["ruff", "check", "."]])
def test_typed_and_clean(tool):
    found = subprocess.run([sys.executable, "-m", *tool], cwd=PYTHON, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


def test_users_code_is_typed(tmp_path):
    (tmp_path / "user.py").write_text(
        "import doppel\n"
        "def f(s: doppel.Sandbox) -> None:\n"
        "    reveal_type(s.commands.run('x'))\n"
        "    reveal_type(s.commands.run('x', background=True))\n"
        "    reveal_type(s.files.read('/x'))\n"
        "    reveal_type(s.files.read('/x', 'bytes'))\n"
        "    s.files.read(5)\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", str(tmp_path / "user.py")]
    out = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout
    shown = re.findall(r'Revealed type is "([\w.]+)"', out)
    assert [s.split(".")[-1] for s in shown] == ["CommandResult", "CommandHandle", "str", "bytes"], out
    assert "user.py:7: error: No overload variant" in out


# -- values


def test_sizes():
    assert size("512m") == size("512MiB") == size("512 mb") == 512 << 20
    assert size("1.5g") == 3 << 29
    assert size("100") == size(100) == size("100b") == 100
    assert size(None) is None
    for wrong in ("", "m", "-1m", "1x", "1 2m", "1e3"):
        with pytest.raises(ValueError, match="not a size"):
            size(wrong)


def test_no_bound():
    assert resources(memory="unlimited", pids=-1) == resources(memory=0, pids=0) == {"memory_bytes": 0, "pids": 0}
    assert resources(memory="1k", pids=7) == {"memory_bytes": 1024, "pids": 7}
    assert resources() == {}


def test_commands():
    assert argv("echo a | cat") == ["/bin/sh", "-c", "echo a | cat"]
    assert argv(["echo", "a | cat"]) == ["echo", "a | cat"]
    assert argv(("true",)) == ["true"]


def test_seconds_are_rounded_up():
    assert [seconds(s) for s in (None, 0.1, 1, 1.5)] == [None, 1, 1, 2]


def test_addresses(monkeypatch):
    monkeypatch.delenv("DOPPEL_HOST", raising=False)
    assert address(None) == ("/run/doppel/doppeld.sock", "http://doppel")
    monkeypatch.setenv("DOPPEL_HOST", "unix:///tmp/x.sock")
    assert address(None) == ("/tmp/x.sock", "http://doppel")
    assert address("https://host:7777/") == (None, "https://host:7777")
    for wrong in ("host:7777", "ftp://host", "http://", "relative/path"):
        with pytest.raises(ValueError, match="no address"):
            address(wrong)


def test_a_token_is_not_sent_in_clear(monkeypatch):
    monkeypatch.delenv("DOPPEL_TOKEN", raising=False)
    Client("http://192.0.2.1:7777").close()
    for host in ("http://127.0.0.1:7777", "http://localhost:7777", "http://[::1]:7777", "https://192.0.2.1"):
        Client(host, token="secret").close()
    with pytest.raises(ValueError, match="in clear"):
        Client("http://192.0.2.1:7777", token="secret")


def test_names_stay_one_segment():
    assert segment("a/b:c?d#e%f") == "a%2Fb%3Ac%3Fd%23e%25f"
    for wrong in ("", ".", ".."):
        with pytest.raises(ValueError, match="not a name"):
            segment(wrong)


def test_decoding():
    event = models.decode(
        models.Event,
        {"sequence": 1, "at": "2026-11-21T06:00:00.123456789Z", "kind": "die", "subject": "x", "new": [1]},
    )
    assert event.at == datetime(2026, 11, 21, 6, 0, 0, 123456, UTC)
    assert event.kind is EventKind.DIE
    assert event.attributes == {}
    unknown = models.decode(EventKind, "of_the_future")
    assert unknown == "of_the_future"
    assert str(unknown) == "of_the_future"
    assert isinstance(unknown, EventKind)
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.sequence = 2


def test_problems():
    found = errors.from_problem({"code": "file_not_found", "detail": "no /x", "status": 404, "title": "No such file"})
    assert isinstance(found, doppel.FileNotFound)
    assert isinstance(found, FileNotFoundError)
    assert str(found) == "no /x"
    assert (found.code, found.status, found.title) == ("file_not_found", 404, "No such file")
    later = errors.from_problem({"code": "of_the_future", "detail": "d", "status": 418})
    assert type(later) is doppel.ApiError
    assert later.code == "of_the_future"
    assert str(errors.from_problem(None, 502, "<html>")) == "HTTP 502: <html>"


def test_output():
    output = Output()
    assert output.feed({"type": "stdout", "data": "ww=="}) == [], "half a character"
    assert output.feed({"type": "stderr", "data": "eA=="}) == [("stderr", "x")]
    assert output.feed({"type": "stdout", "data": "pA=="}) == [("stdout", "ä")]
    assert output.feed({"type": "lost", "bytes": 5}) == []
    assert output.feed({"type": "something new"}) == []
    assert not output.ended
    output.feed({"type": "stdout", "data": "ww=="})
    assert output.feed({"type": "exit", "exit_code": 1}) == [("stdout", "\N{REPLACEMENT CHARACTER}")]
    assert output.ended
    assert output.result() == CommandResult(1, b"\xc3\xa4\xc3", b"x", None, 5)


# -- archives


def archive(*entries):
    """A tar of (name, kind, content or target)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, kind, what in entries:
            member = tarfile.TarInfo(name)
            member.type = kind
            member.mode = 0o6777
            if kind == tarfile.REGTYPE:
                member.size = len(what)
                tar.addfile(member, io.BytesIO(what))
            else:
                member.linkname = what or ""
                tar.addfile(member)
    out.seek(0)
    return out


FILE, DIR, SYM, HARD = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


@pytest.mark.parametrize(
    "entries",
    [
        [("../out", FILE, b"x")],
        [("a/../../out", FILE, b"x")],
        [("a", SYM, "."), ("a/../out", FILE, b"x")],
        [("out", FILE, b"x"), ("out/below", FILE, b"x")],
        [("dir", SYM, "sub"), ("sub", DIR, None), ("dir/file", FILE, b"x")],
        [("hard", HARD, "../secret")],
        [("large", FILE, b"x" * 1001)],
        [("a", FILE, b"x" * 600), ("b", FILE, b"x" * 600)],
    ],
)
def test_hostile_archives_are_refused(entries, tmp_path):
    (tmp_path / "secret").write_text("secret")
    with pytest.raises(ArchiveError):
        unpack(archive(*entries), str(tmp_path / "in"), 1000)
    assert (tmp_path / "secret").read_text() == "secret"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in", "secret"]


def test_links_are_never_followed(tmp_path):
    (tmp_path / "secret").write_text("secret")
    down = tmp_path / "in"
    down.mkdir()
    (down / "there").symlink_to("../secret")
    (down / "dir").symlink_to("..")
    left_out = unpack(
        archive(
            ("there", FILE, b"new"),  # replaces the link, not what it leads to
            ("abs", SYM, "/etc/passwd"),
            ("up", SYM, "../secret"),
            ("sub/up", SYM, "../../secret"),
            ("sub/ok", SYM, "../there"),
            ("null", tarfile.CHRTYPE, None),
            ("pipe", tarfile.FIFOTYPE, None),
        ),
        str(down),
        1000,
    )
    assert (tmp_path / "secret").read_text() == "secret"
    assert left_out == ["abs", "up", "sub/up", "null", "pipe"]
    assert (down / "there").read_text() == "new"
    assert not (down / "there").is_symlink()
    assert (down / "sub/ok").read_text() == "new"
    with pytest.raises(ArchiveError):
        unpack(archive(("dir/secret", FILE, b"x")), str(down), 1000)
    assert (tmp_path / "secret").read_text() == "secret"


def test_set_id_bits_do_not_come(tmp_path):
    unpack(archive(("tool", FILE, b"x"), ("dir", DIR, None)), str(tmp_path / "in"), 1000)
    assert (tmp_path / "in/tool").stat().st_mode & 0o7777 == 0o777
    assert (tmp_path / "in/dir").stat().st_mode & 0o7000 == 0


@pytest.mark.parametrize("cut", [1, 511, 513, 700, 1500])
def test_damaged_archives_are_refused(cut, tmp_path):
    whole = archive(("a", FILE, b"x" * 900), ("b", FILE, b"y" * 900)).getvalue()
    with pytest.raises(ArchiveError):
        unpack(io.BytesIO(whole[:cut]), str(tmp_path / "in"), 10_000)


def test_an_archive_comes_back_the_same(tmp_path):
    up = tmp_path / "up"
    (up / "dir/empty").mkdir(parents=True)
    (up / "dir/file").write_bytes(os.urandom(100_000))
    (up / ("long" * 60)).write_text("x")
    (up / "ü\udcff").write_text("not UTF-8")
    (up / "read-only").mkdir()
    (up / "read-only/file").write_text("x")
    (up / "read-only").chmod(0o555)
    file = io.BytesIO()
    pack(str(up), file)
    file.seek(0)
    assert unpack(file, str(tmp_path / "down"), 1 << 20) == []
    command = ["diff", "-r", str(up), str(tmp_path / "down")]
    assert subprocess.run(command, capture_output=True).stdout == b""
    with pytest.raises(NotADirectoryError):
        pack(str(up / "dir/file"), io.BytesIO())


def test_disks_are_read_only_if_they_say_so():
    assert mounted(False, (), disks=["db", "tools:ro"]) == {
        "disks": [{"name": "db"}, {"name": "tools", "read_only": True}]
    }
    assert mounted(False, ()) is None
