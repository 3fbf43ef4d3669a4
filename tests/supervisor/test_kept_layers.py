"""Files that stay of a supervisor's domains: through stops, restarts, and the deaths of keepers and supervisors."""
import hashlib
import io
import json
import os
import signal
import tarfile

import pytest
from conftest import eventually, have_image, ok, refused

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
# Counts its runs in a file of its own, and runs on.
COUNT = "echo run >> /runs; wc -l < /runs; exec sleep 1000"


@pytest.fixture
def own(new_doppeld, busybox):
    return new_doppeld().start()


@pytest.fixture(params=["para", "paene"])
def kind(request):
    return request.param


def logged(own, lines: str) -> None:
    eventually(lambda: ok(own.cli("logs", "d")) == lines, lines)


def begin(own, kind, *opts: str) -> str:
    return ok(own.cli("run", "-d", "--kind", kind, "--name", "d", *opts, "busybox", "sh", "-c", COUNT))


def test_stop_start_restart_and_rm(own, kind):
    id = begin(own, kind).strip()
    logged(own, "1\n")
    ok(own.cli("restart", "-t", "1", "d"))
    logged(own, "1\n2\n")
    ok(own.cli("kill", "d"))
    eventually(lambda: ok(own.cli("ps", "-q")) == "", "it has ended")
    ok(own.cli("start", "d"))
    logged(own, "1\n2\n3\n")
    assert json.loads(ok(own.cli("inspect", "d")))[0]["config"]["files"]["persist"] is True
    assert ok(own.cli("layer", "ls", "-q")).split() == [id]
    refused(own.cli("layer", "rm", id), f"in use by domain {id}")
    ok(own.cli("stop", "-t", "1", "d"))
    assert "A /runs" in ok(own.cli("diff", "d")).splitlines()
    ok(own.cli("rm", "d"))
    eventually(lambda: ok(own.cli("layer", "ls", "-q")) == "", "its layer has gone")


def test_in_memory_each_run_begins_anew(own, kind):
    """If that is asked for, and where the files' bound is one of memory, or they are read-only."""
    begin(own, kind, "--no-persist")
    logged(own, "1\n")
    ok(own.cli("restart", "-t", "0", "d"))
    logged(own, "1\n1\n")
    refused(own.cli("diff", "d"), "keeps nothing")
    others = [["--read-only"], *([["--disk", "64m"], ["--inodes", "900"]] if kind == "paene" else [])]
    for other in others:
        ok(own.cli("create", "--kind", kind, *other, "busybox", "true"))
    ok(own.cli("run", "-d", "--rm", "--kind", kind, "busybox", "sleep", "1000"))
    assert ok(own.cli("layer", "ls", "-q")) == ""


def test_a_clean_end_writes_everything(own, kind):
    """A program that ends by itself, and one that is told to."""
    ok(own.cli("create", "--kind", kind, "--name", "d", "busybox", "sh", "-c", "cat /f; seq 100000 > /f"))
    for expected in (b"", b"".join(b"%d\n" % n for n in range(1, 100001))):
        r = own.cli("start", "-a", "d")
        assert r.stdout.endswith(expected) and len(r.stdout) == len(expected), len(r.stdout)


def test_restart_policy(own, kind):
    script = "echo run >> /runs; wc -l < /runs; test $(wc -l < /runs) -ge 4 && exec sleep 1000; exit 1"
    opts = ("--restart", "on-failure:9")
    ok(own.cli("run", "-d", "--kind", kind, "--name", "d", *opts, "busybox", "sh", "-c", script))
    logged(own, "1\n2\n3\n4\n")


def test_keeper_and_supervisor_may_die(own, kind):
    """The domain goes on with its layer, and its next run has what it wrote before and after."""
    id = begin(own, kind).strip()
    logged(own, "1\n")
    os.kill(own.keeper_of(id), signal.SIGKILL)
    eventually(lambda: own.cli("exec", "d", "sh", "-c", "echo more >> /runs; sync").returncode == 0, "it goes on")
    own.kill()
    own.start()
    ok(own.cli("exec", "d", "sh", "-c", "echo more >> /runs"))
    ok(own.cli("restart", "-t", "1", "d"))
    logged(own, "1\n4\n")


def test_named_ones_stay(own, kind):
    """They outlive the domain; one at a time has them, running or not."""
    begin(own, kind, "--rm", "--persist=web")
    logged(own, "1\n")
    again = own.cli("run", "--rm", "--kind", kind, "--persist=web", "busybox", "true")
    refused(again, 'layer "web" is in use by domain')
    refused(own.cli("run", "--standalone", "--kind", kind, "--persist=web", "busybox", "true"), "in use by domain")
    ok(own.cli("stop", "-t", "1", "d"))
    eventually(lambda: ok(own.cli("ps", "-aq")) == "", "it has gone")
    assert ok(own.cli("run", "--rm", "--kind", kind, "--persist=web", "busybox", "wc", "-l", "/runs")) == "1 /runs\n"
    assert "A /runs" in ok(own.cli("diff", "web")).splitlines()
    refused(own.cli("run", "--rm", "--kind", kind, "--persist", "busybox", "true"), "name a layer")
    assert ok(own.cli("layer", "prune", "-f")) == "web\n"


def test_a_hibernated_domain_goes_on_with_its_files(own):
    """Memory and files sleep and wake together; killed after the second sleep, its next run has what was synced."""
    begin(own, "para")
    logged(own, "1\n")
    ok(own.cli("exec", "d", "sh", "-c", "echo a > /a"))
    for n in (1, 2):
        ok(own.cli("hibernate", "d"))
        assert "A /a" in ok(own.cli("diff", "d")).splitlines(), "what was not synced is there too"
        ok(own.cli("wake", "d"))
        assert ok(own.cli("exec", "d", "cat", "/a")) == "a\n" + "b\n" * (n - 1)
        ok(own.cli("exec", "d", "sh", "-c", "echo b >> /a; sync; seq 100000 > /big"))
    ok(own.cli("kill", "d"))
    eventually(lambda: ok(own.cli("ps", "-q")) == "", "it has ended")
    ok(own.cli("start", "d"))
    logged(own, "1\n2\n")
    assert ok(own.cli("exec", "d", "sh", "-c", "cat /a; tail -n 1 /big")) == "a\nb\nb\n100000\n"


def test_memory_that_is_older_than_the_files_does_not_wake(own):
    """It had gone on from there, and the host died: what it has written since stays, and it begins anew with that."""
    id = begin(own, "para").strip()
    logged(own, "1\n")
    ok(own.cli("hibernate", "d"))
    ok(own.cli("wake", "d"))
    ok(own.cli("exec", "d", "sh", "-c", "echo later > /later; sync"))
    pid, keeper = own.get("/v1/domains/d").ok()["pid"], own.keeper_of(id)
    own.kill()
    for process in (keeper, pid):
        os.kill(process, signal.SIGKILL)
    own.start()
    for why in ("newer than its memory", "not hibernated"):
        assert why in own.post("/v1/domains/d/wake").problem(409, "wrong_state")
    ok(own.cli("start", "d"))
    logged(own, "1\n2\n")
    assert ok(own.cli("exec", "d", "cat", "/later")) == "later\n"


def test_a_frozen_domain_starts_with_its_files(own):
    """Those it had when it was frozen and ended; its clones have them in memory."""
    begin(own, "para")
    logged(own, "1\n")
    ok(own.cli("exec", "d", "sh", "-c", "echo a > /a"))
    ok(own.cli("freeze", "--stop", "d", "image"))
    ok(own.cli("start", "d"))
    logged(own, "1\n2\n")
    ok(own.cli("clone", "-d", "--name", "copy", "image"))
    ok(own.cli("exec", "copy", "sh", "-c", "cat /a && echo copy > /a"))
    assert ok(own.cli("exec", "d", "cat", "/a")) == "a\n"
    refused(own.cli("diff", "copy"), "all files of frozen image image are in its memory")


def test_clones_of_a_domain_with_many_files(own):
    """Each has what there was at the freeze, whatever the others write; keepers die, clones sleep and begin anew."""
    id = begin(own, "para").strip()
    told = ok(own.cli("exec", "d", "sh", "-c", "head -c 20000000 /dev/urandom > /big; sync; md5sum /big"))
    ok(own.cli("freeze", "d", "image"))
    look = lambda name: ok(own.cli("exec", name, "md5sum", "/big"))
    for name in ("one", "two"):
        ok(own.cli("clone", "-d", "--name", name, "image"))
        assert look(name) == told
    ok(own.cli("exec", "one", "sh", "-c", "echo more >> /big; rm /runs; sync"))
    changed = look("one")
    ok(own.cli("exec", "d", "sh", "-c", "rm /big; head -c 20000000 /dev/zero > /other; sync; rm /other; sync"))
    assert look("two") == told and changed != told
    os.kill(own.keeper_of(id), signal.SIGKILL)
    eventually(lambda: own.cli("exec", "one", "true").returncode == 0, "another keeper has them")
    assert look("one") == changed and look("two") == told
    ok(own.cli("hibernate", "one"))
    ok(own.cli("wake", "one"))
    assert look("one") == changed
    refused(own.cli("diff", "one"), "stop it first")
    ok(own.cli("stop", "-t", "0", "one"))
    ok(own.cli("start", "one"))
    assert look("one") == told, "it begins anew"
    ok(own.cli("rm", "-f", "one", "two"))
    # What is left of a clone that has ended may have it open for a moment yet.
    eventually(lambda: own.cli("frozen", "rm", "image").returncode == 0, "nobody has it")
    eventually(lambda: ok(own.cli("layer", "ls", "-q")).split() == [id], "the clones' have gone")
    assert not list((own.store / "frozen").iterdir())


BIG = "head -c 20000000 /dev/urandom > /big"
FILL = f"{BIG}; echo parent > /a; mkdir /d; ln -s /a /l; echo x > /gone; sync; md5sum /big"


def family(own) -> tuple[str, str]:
    """A domain with many files, its frozen image, a stopped clone that changed some: sum of /big, the clone's id."""
    begin(own, "para")
    told = ok(own.cli("exec", "d", "sh", "-c", FILL)).split()[0]
    ok(own.cli("freeze", "d", "image"))
    ok(own.cli("clone", "-d", "--name", "c", "image"))
    # What is behind the freeze in one's file is not in the other's, and checkpoints name other places.
    ok(own.cli("exec", "d", "sh", "-c", "echo later > /a; rm /big; head -c 9000000 /dev/zero > /z; sync; rm /z; sync"))
    ok(own.cli("exec", "c", "sh", "-c", "echo clone > /a; rm /gone; echo new > /d/new; echo unsynced > /u"))
    ok(own.cli("stop", "-t", "1", "c"))
    return told, json.loads(ok(own.cli("inspect", "c")))[0]["id"]


def has(own, told: str, name: str = "c") -> None:
    """Its files are what they were when it stopped."""
    lines = ok(own.cli("diff", name)).splitlines()
    added = {"A /a", "A /big", "A /d", "A /d/new", "A /l", "A /u", "A /runs"}
    assert added <= set(lines) and "A /gone" not in lines, lines
    tar = tarfile.open(fileobj=io.BytesIO(own.cli("export", name, timeout=120).stdout))
    read = lambda path: tar.extractfile(path).read()
    assert (read("a"), read("d/new"), read("u")) == (b"clone\n", b"new\n", b"unsynced\n")
    assert hashlib.md5(read("big")).hexdigest() == told and "gone" not in tar.getnames() and "bin" in tar.getnames()


def test_a_stopped_clone_keeps_its_files_until_it_is_removed(own):
    """They are compared, exported, made an image of; after a supervisor's and a keeper's death, of a clone's clone."""
    told, id = family(own)
    has(own, told)
    rows = [line.split() for line in ok(own.cli("layer", "ls")).splitlines() if line.startswith(id)]
    assert len(rows) == 1 and rows[0][-1] == id, "it is listed, as its domain's"
    refused(own.cli("layer", "rm", id), "in use")
    assert ok(own.cli("layer", "prune", "-f")) == ""
    own.kill()
    own.start()
    has(own, told)
    ok(own.cli("commit", "c", "of-clone"))
    committed = ("sh", "-c", "cat /a /d/new; md5sum < /big; test -e /gone || echo gone")
    assert ok(own.cli("run", "--rm", "of-clone", *committed)).split() == ["clone", "new", told, "-", "gone"]
    # It goes on from its memory, and so without what it had written.
    ok(own.cli("start", "c"))
    assert ok(own.cli("exec", "c", "sh", "-c", "cat /a; ls /gone")) == "parent\n/gone\n"
    refused(own.cli("export", "c"), "stop it first")
    ok(own.cli("exec", "c", "sh", "-c", "echo clone > /a; rm /gone; echo new > /d/new; echo unsynced > /u"))
    ok(own.cli("freeze", "--stop", "c", "again"))
    ok(own.cli("clone", "-d", "--name", "e", "again"))
    ok(own.cli("exec", "e", "sh", "-c", "cat /a /d/new /u"))
    of_e = json.loads(ok(own.cli("inspect", "e")))[0]["id"]
    os.kill(eventually(lambda: own.keeper_of(of_e), "its keeper is there"), signal.SIGKILL)
    ok(own.cli("exec", "e", "true"))
    ok(own.cli("kill", "e"))
    eventually(lambda: json.loads(ok(own.cli("inspect", "e")))[0]["state"] == "exited", "it has ended")
    has(own, told, "e")
    has(own, told)


def test_a_frozen_image_that_was_exported_has_clones_that_keep_their_files(own, tmp_path):
    """Its domain has written, and been frozen, again since: what comes with the image is as it was."""
    told, _ = family(own)
    ok(own.cli("freeze", "d", "later"))
    ok(own.cli("frozen", "export", "image", str(tmp_path / "image")))
    ok(own.cli("rm", "-f", "c", "d"))
    eventually(lambda: own.cli("frozen", "rm", "image", "later").returncode == 0, "nobody has them open")
    ok(own.cli("frozen", "import", str(tmp_path / "image"), "again"))
    ok(own.cli("clone", "-d", "--name", "c", "again"))
    ok(own.cli("exec", "c", "sh", "-c", "echo clone > /a; rm /gone; echo new > /d/new; echo unsynced > /u"))
    ok(own.cli("stop", "-t", "1", "c"))
    has(own, told)


@pytest.mark.parametrize("order", ["d c image", "d image c", "c d image", "c image d", "image c d", "image d c"])
def test_what_a_clone_lies_on_stays_as_long_as_somebody_has_it(own, order):
    """Whoever goes first: the domain that was frozen, its frozen image or the clone."""
    told, _ = family(own)
    left = order.split()
    for name in order.split():
        left.remove(name)
        if name == "image":
            eventually(lambda: own.cli("frozen", "rm", "image").returncode == 0, "nobody has it open")
        else:
            ok(own.cli("rm", "-f", name))
        ok(own.cli("layer", "prune", "-f"))
        if "image" in left:
            assert ok(own.cli("frozen", "ls", "-q")).split() == ["image"]
        if "c" in left:
            has(own, told)
        if "d" in left:
            assert ok(own.cli("exec", "d", "cat", "/a")) == "later\n"
        if "image" in left:
            ok(own.cli("clone", "-d", "--rm", "--name", "test", "image"))
            assert ok(own.cli("exec", "test", "sh", "-c", "cat /a; md5sum < /big")).split() == ["parent", told, "-"]
            ok(own.cli("rm", "-f", "test"))
    eventually(lambda: not list((own.store / "layers").glob("[!.]*")), "no layer is left")
    eventually(lambda: not list((own.store / "frozen").iterdir()), "nothing frozen is left")


def test_a_layer_that_was_not_on_disk_is_made_again(own, kind):
    """Nobody waits for a new one to be there after a power cut; that comes before anything is in it."""
    id = ok(own.cli("create", "--kind", kind, "--name", "d", "busybox", "sh", "-c", COUNT)).strip()
    own.kill()
    (own.store / "layers" / id / "layer.json").write_text("")
    own.start()
    ok(own.cli("start", "d"))
    logged(own, "1\n")
    assert ok(own.cli("layer", "ls", "-q")).split() == [id]


# Checks its database, and writes to it.
DATABASE = """
import sqlite3, time
db = sqlite3.connect("/db", timeout=60)
db.execute("create table if not exists t (n integer primary key, b blob)")
print(db.execute("pragma integrity_check").fetchone()[0], flush=True)
while True:
    with db:
        db.execute("insert into t (b) values (randomblob(3000))")
    time.sleep(0.003)
"""
COUNT_ROWS = 'import sqlite3; print(sqlite3.connect("/db", timeout=60).execute("select count(*) from t").fetchone()[0])'


def test_a_database_sleeps_and_wakes(own):
    if not have_image("debian"):
        pytest.skip("no image debian")
    ok(own.cli("run", "-d", "--name", "d", "debian", "python3", "-c", DATABASE))
    logged(own, "ok\n")
    rows = [0]
    for _ in range(3):
        eventually(lambda: int(ok(own.cli("exec", "d", "python3", "-c", COUNT_ROWS))) > rows[-1], "it writes")
        ok(own.cli("hibernate", "d"))
        ok(own.cli("wake", "d"))
        rows.append(int(ok(own.cli("exec", "d", "python3", "-c", COUNT_ROWS))))
    assert rows == sorted(rows)
    ok(own.cli("kill", "d"))
    eventually(lambda: ok(own.cli("ps", "-q")) == "", "it has ended")
    ok(own.cli("start", "d"))
    logged(own, "ok\nok\n")
    assert int(ok(own.cli("exec", "d", "python3", "-c", COUNT_ROWS))) >= rows[-1]


def test_a_limit_on_the_disk(own):
    """What files hold is bounded, whatever was written before, through restarts; what is removed makes room."""
    ok(own.cli("run", "-d", "--name", "d", "--disk", "8m", "busybox", "sleep", "1000"))
    fill = own.cli("exec", "d", "dd", "if=/dev/urandom", "of=/a", "bs=64k", "count=200")
    refused(fill, "No space left")
    ok(own.cli("restart", "-t", "0", "d"))
    assert int(ok(own.cli("exec", "d", "stat", "-c", "%s", "/a"))) in range(7 << 20, (8 << 20) + 1)
    refused(own.cli("exec", "d", "dd", "if=/dev/zero", "of=/b", "bs=1M", "count=2"), "No space left")
    assert ok(own.cli("exec", "d", "df", "-k", "/")).splitlines()[1].split()[1] == "8192"
    # Again and again the same file: the log is longer, and what it holds is not.
    write = "dd if=/dev/urandom of=/c bs=1M count=6 2>/dev/null || exit; sync"
    again = f"rm /a; for n in 1 2 3 4 5; do {write}; done; wc -c < /c"
    assert ok(own.cli("exec", "d", "sh", "-c", again)) == f"{6 << 20}\n"
    refused(own.cli("create", "--rm", "--disk", "8m", "busybox", "true"), "count as its memory")
