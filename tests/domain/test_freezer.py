"""The Freezer: a domain is frozen, goes on unharmed, and its clones go on as if nothing had happened.

`freezer/` is one program whose processes are in the middle of everything while they are frozen; the rest here
looks at it from outside. Hazards and their policies: docs/clone-correctness.md.
"""
import contextlib
import os
import pathlib
import random
import re
import signal
import subprocess
import time

import pytest
from conftest import BUILD, DOPPEL, HERE, call, descendants, eventually, have_image, still_there
from freezing import answers, clean, clones, doppel_call, names, path_of, refused, root_file  # noqa: F401

PROGRAM = HERE / "freezer"


@pytest.fixture(scope="session")
def image(doppel):
    """The image of freezer/'s program."""
    root = BUILD / "freezer"
    for d in ("bin", "tmp", "proc", "sys", "dev", "etc"):
        (root / d).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    (root / "etc/passwd").write_text("root:x:0:0:root:/:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\n")
    (root / "etc/machine-id").write_text("00112233445566778899aabbccddeeff\n")
    subprocess.run(
        ["gcc", "-O2", "-static", "-pthread", "-Wall", "-Werror", "-o", root / "bin/survive", *PROGRAM.glob("*.c")],
        check=True,
    )
    doppel_call("image", "rm", "freezer-tests")
    doppel_call("image", "import", root, "freezer-tests").ok()
    return "freezer-tests"


def facts(out):
    return dict(re.findall(r"^fact (\w+) (.*)$", out, re.M))


def all_good(out):
    assert "not ok" not in out and out.rstrip().endswith("done"), out
    return {line[3:] for line in out.splitlines() if line.startswith("ok ")}


CASES = {m for f in PROGRAM.glob("*.c") for m in re.findall(r"^CASE\((\w+)\)", f.read_text(), re.M)}


@pytest.fixture(scope="session")
def survived(image):
    """The program frozen, cloned, and a clone frozen and cloned again: the output of each."""
    tag = f"fzt-{os.getpid()}-all"
    try:
        first = doppel_call("run", "--rm", "--freeze-as", f"{tag}1", image, "--", "/bin/survive").ok()
        alike = [c["stdout"] for c in clones(f"{tag}1", "-n", "3", "--arg", "one", "--arg", "two words")]
        middle = clones(f"{tag}1", "--freeze-as", f"{tag}2")[0]["stdout"]
        second = [c["stdout"] for c in clones(f"{tag}2", "-n", "2")]
        yield {"original": [first], "clones": alike, "clone frozen again": [middle], "clones of a clone": second}
    finally:
        doppel_call("frozen", "rm", f"{tag}1", f"{tag}2")


@pytest.mark.parametrize("which", ["original", "clones", "clone frozen again", "clones of a clone"])
def test_everything_survives(survived, which):
    for out in survived[which]:
        assert all_good(out) == CASES


def test_identities_differ(survived):
    """The generation protocol: who has been cloned is somebody else, and knows it."""
    found = [facts(out) for outs in survived.values() for out in outs]
    original, rest = found[0], found[1:]
    for what in ("boot_id", "hostname", "domain_id", "machine_id", "getrandom", "urandom"):
        values = [f[what] for f in found]
        assert len(set(values)) == len(values) and all(values), f"{what}: {values}"
    assert all(re.fullmatch("[0-9a-f]{32}", f["machine_id"]) and f["machine_id_size"] == "33" for f in rest)
    assert {f["at_random"] for f in found} == {original["at_random"]}, "AT_RANDOM is memory: docs/clone-correctness.md"
    assert [f["generation"] for f in found] == ["0", "1", "1", "1", "1", "2", "2"]
    assert sorted(f["index"] for f in found[1:4]) == ["1", "2", "3"] and original["index"] == "0"
    assert all(f["args"] == "one" for f in found[1:4]) and found[4]["args"] == ""


def test_the_wall_clock_is_right(image, names):
    frozen = names()
    doppel_call("run", "--rm", "--freeze-as", frozen, image, "--", "/bin/survive", "sleeps").ok()
    time.sleep(1)
    before = time.time()
    out = clones(frozen)[0]["stdout"]
    assert before <= float(facts(out)["realtime"]) <= time.time()


LOAD = r"""
import hashlib, multiprocessing as mp, select, subprocess, threading
def work(seed):
    h = hashlib.sha256(str(seed).encode())
    for _ in range(30000): h.update(h.digest())
    return h.hexdigest()
def main():
    expected = [work(i) for i in range(4)]
    rounds, lock, end = [0], threading.Lock(), threading.Event()
    def thread(i):
        while not end.is_set():
            assert work(i) == expected[i]
            with lock: rounds[0] += 1
    threads = [threading.Thread(target=thread, args=(i,)) for i in range(4)]
    for t in threads: t.start()
    with mp.Pool(3) as pool:
        print("ready", flush=True)
        # Six rounds, and on until there is a line of input or its end, as there is in a clone.
        while len(seen) < 6 or not select.select([0], [], [], 0)[0]:
            assert pool.map(work, range(4)) == expected
            shell = "seq 20000 | tee /tmp/x | sort -n | sha256sum | cut -c1-8; wc -l < /tmp/x"
            out = subprocess.check_output(["bash", "-o", "pipefail", "-c", shell], text=True)
            assert out == "8d6ff7b3\n20000\n" or not seen or out == seen[0], out
            seen.append(out)
    end.set()
    for t in threads: t.join()
    print("end", rounds[0] > 0, set(seen) == {seen[0]}, open("/sys/doppel/generation").read().strip(), flush=True)
seen = []
main()
"""


def test_frozen_under_load(domain, names, clean):
    """Python with threads, a pool of processes and shell pipelines, frozen twice at moments of nobody's choosing."""
    one, two = names("one"), names("two")
    p = domain.start("python3", "-c", LOAD, opts=["--name", f"fzt-{os.getpid()}-load"])
    assert p.stdout.readline() == b"ready\n"
    time.sleep(0.2)
    doppel_call("freeze", "--in-memory", f"fzt-{os.getpid()}-load", one).ok()
    time.sleep(random.random() * 0.3)
    doppel_call("freeze", f"fzt-{os.getpid()}-load", two).ok()
    for frozen in (one, two):
        c = clones(frozen)[0]
        assert c["exit_code"] == 0 and c["stdout"] == "end True True 1\n", c
    out, err = p.communicate(b"end\n", timeout=60)
    assert (p.returncode, out) == (0, b"end True True 0\n"), err


def test_hibernate_and_wake(domain, clean):
    """Same identity, same work, twice; a second wake finds nothing to wake."""
    script = (
        "import select,sys\nn=0\nprint(open('/proc/sys/kernel/random/boot_id').read().strip(), flush=True)\n"
        "while not select.select([0], [], [], 0.02)[0]:\n n+=1; open('/tmp/n','w').write(str(n))\n"
        "print(n > 0, open('/proc/sys/kernel/random/boot_id').read().strip(), "
        "open('/sys/doppel/generation').read().strip(), flush=True)"
    )
    p = domain.start("python3", "-c", script, opts=["--name", f"fzt-{os.getpid()}-sleepy"])
    boot_id = p.stdout.readline().decode().strip()
    count = lambda: int(doppel_call("exec", f"fzt-{os.getpid()}-sleepy", "cat", "/tmp/n").out or 0)
    before = 0
    for _ in range(2):
        assert eventually(lambda: count() > before), "it goes on"
        before = count()
        doppel_call("hibernate", f"fzt-{os.getpid()}-sleepy").ok()
        # Its input stays open: its end would be news to the program.
        assert p.wait(60) == 0
        assert "no domain named" in refused("freeze", f"fzt-{os.getpid()}-sleepy", f"fzt-{os.getpid()}-none")
        p = subprocess.Popen(
            [DOPPEL, "wake", "-i", f"fzt-{os.getpid()}-sleepy"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert eventually(lambda: answers(f"fzt-{os.getpid()}-sleepy"))
        assert f"fzt-{os.getpid()}-sleepy" in refused("wake", f"fzt-{os.getpid()}-sleepy")
    out, err = p.communicate(b"end\n", timeout=60)
    assert (p.returncode, out.decode()) == (0, f"True {boot_id} 0\n"), err


def test_wrong_requests(domain, image, names, clean):
    frozen = names()
    assert "no domain named" in refused("freeze", f"fzt-{os.getpid()}-nobody", frozen)
    assert "no frozen image named" in refused("clone", frozen)
    assert "no frozen image named" in refused("frozen", "rm", frozen)
    assert "no frozen image named" in refused("wake", f"fzt-{os.getpid()}-nobody")
    assert "is no name for a frozen image" in refused("freeze", f"fzt-{os.getpid()}-nobody", "../x")
    p = domain.start(
        "sh", "-c", "echo ready; read x; echo $x", image="busybox", opts=["--name", f"fzt-{os.getpid()}-taken"]
    )
    assert p.stdout.readline() == b"ready\n"
    doppel_call("freeze", f"fzt-{os.getpid()}-taken", frozen).ok()
    assert "exists" in refused("freeze", f"fzt-{os.getpid()}-taken", frozen)
    clone = subprocess.Popen(
        [DOPPEL, "clone", "-i", "--name", f"fzt-{os.getpid()}-clone", frozen],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert eventually(lambda: answers(f"fzt-{os.getpid()}-clone"))
    assert "in use" in refused("frozen", "rm", frozen)
    assert clone.communicate(b"cloned\n", timeout=60)[0] == b"cloned\n"
    assert p.communicate(b"unharmed\n", timeout=60)[0] == b"unharmed\n"
    doppel_call("frozen", "rm", frozen).ok()


def test_program_that_may_not_freeze_itself(domain):
    r = domain.run(
        "sh", "-c", "echo freeze > /sys/power/state; echo $?; echo x > /sys/power/state; echo unharmed", image="busybox"
    )
    assert r.out == "1\nunharmed\n" and "not permitted" in r.err.lower()


def test_disk_full(image, tmp_path, domain, clean):
    """A freeze that finds no room fails, the domain goes on, the half-written file is gone; inside as outside."""
    small = tmp_path / "store"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m,mode=700", "none", small], check=True)
    try:
        script = (
            "import os\nb=os.urandom(40<<20)\nh=hash(b)\nprint('ready',flush=True)\ninput()\n"
            "try:\n os.write(os.open('/sys/power/state', os.O_WRONLY), b'freeze')\nexcept OSError as e: "
            "print(e.errno)\nprint(h==hash(b))"
        )
        env = {**os.environ, "DOPPEL_STORE": str(small)}
        p = subprocess.Popen(
            [
                DOPPEL,
                "run",
                "--rm",
                "-i",
                "--name",
                f"fzt-{os.getpid()}-full",
                "--freeze-as",
                "own",
                root_file("debian"),
                "--",
                "python3",
                "-c",
                script,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
        )
        assert p.stdout.readline() == b"ready\n", p.stderr.read()
        for _ in range(3):
            assert "No space left" in refused("freeze", f"fzt-{os.getpid()}-full", "outside", env=env)
            assert os.listdir(small / "frozen") == []
        out, err = p.communicate(b"go\n", timeout=60)
        assert (p.returncode, out) == (0, b"5\nTrue\n") and b"No space left" in err, (out, err)
        assert os.listdir(small / "frozen") == []
    finally:
        subprocess.run(["umount", small], check=True)


def test_damaged_images(image, names, clean):
    """Every damage is told before anything runs (host/freezer's own tests flip every byte of header and tables)."""
    frozen = names()
    doppel_call("run", "--rm", "--freeze-as", frozen, image, "--", "/bin/survive", "sleeps").ok()
    path = path_of(frozen)
    whole = pathlib.Path(path).read_bytes()
    tables = int.from_bytes(whole[24:32], "little")
    data = [i for i in range(tables, len(whole), 4096) if whole[i : i + 4096].strip(b"\0")]
    rnd = random.Random(5)
    spots = [
        *range(0, 696, 40),
        *rnd.sample(range(696, tables), 5),
        *(i + rnd.randrange(4096) for i in rnd.sample(data, 8)),
    ]
    for at in spots:
        with open(path, "r+b") as f:
            f.seek(at)
            f.write(bytes([whole[at] ^ (1 << rnd.randrange(8))]))
        error = refused("clone", frozen)
        assert "frozen image" in error, error
        with open(path, "r+b") as f:
            f.seek(at)
            f.write(whole[at : at + 1])
    for size in (0, 100, 695, 696, tables - 1, tables, len(whole) - 1, len(whole) - 4096):
        os.truncate(path, size)
        assert "frozen image" in refused("clone", frozen)
        pathlib.Path(path).write_bytes(whole)
    assert clones(frozen)[0]["exit_code"] == 0


def test_export_and_import(image, names, clean, tmp_path):
    frozen, other = names(), names("imported")
    doppel_call("run", "--rm", "--freeze-as", frozen, image, "--", "/bin/survive", "sleeps").ok()
    file = tmp_path / "exported"
    doppel_call("frozen", "export", frozen, file).ok()
    bytes_ = file.read_bytes()
    for cut in (0, 7, 16, len(bytes_) // 2, len(bytes_) - 1):
        file.write_bytes(bytes_[:cut])
        refused("frozen", "import", file, other)
    file.write_bytes(bytes_[:5000] + bytes([bytes_[5000] ^ 1]) + bytes_[5001:])
    refused("frozen", "import", file, other)
    file.write_bytes(bytes_)
    assert "exists" in refused("frozen", "import", file, frozen)
    doppel_call("frozen", "import", "--in-memory", file, other).ok()
    assert clones(other)[0]["exit_code"] == 0


def test_images_of_another_root_are_refused(domain, names, clean, tmp_path):
    """The root image of that name has changed since."""
    tag, frozen = f"fzt-{os.getpid()}-root", names()
    root = tmp_path / "root"
    for d in ("bin", "tmp", "proc", "sys", "dev", "etc"):
        (root / d).mkdir(parents=True)
    subprocess.run(["cp", "/bin/busybox", root / "bin/sh"], check=True)
    file = tmp_path / "root.erofs"
    doppel_call("image", "import", root, tag).ok()
    try:
        file.write_bytes(pathlib.Path(root_file(tag)).read_bytes())
        doppel_call(
            "run", "--rm", "--freeze-as", frozen, file, "--", "/bin/sh", "-c", "echo freeze > /sys/power/state"
        ).ok()
        doppel_call("clone", frozen).ok()
        with open(file, "ab") as f:
            f.write(b"x" * 4096)
        assert "has changed since the freeze" in refused("clone", frozen)
        file.unlink()
        assert str(file) in refused("clone", frozen)
    finally:
        doppel_call("image", "rm", tag)


PIPELINES = "echo ready; for i in 1 2 3; do (while :; do seq 3000 | sort -n | md5sum > /tmp/$i; done) & done; wait"


def test_killed_at_any_moment(domain, names, clean):
    """SIGKILL of `doppel run`, of a process of the domain, of `doppel freeze`: nothing is left, nothing hangs."""
    rnd = random.Random(7)
    for i in range(12):
        frozen = names()
        p = domain.start("sh", "-c", PIPELINES, image="busybox", opts=["--name", f"fzt-{os.getpid()}-kill{i}"])
        assert p.stdout.readline() == b"ready\n"
        inside = descendants(p.pid)
        f = subprocess.Popen(
            [DOPPEL, "freeze", f"fzt-{os.getpid()}-kill{i}", frozen], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        time.sleep(rnd.random() * 0.06)
        # The oldest live as long as the domain: its first process and the shell. Killing one of the others that has
        # just ended, and nobody has waited for yet, changes nothing.
        oldest = sorted(inside, key=lambda pid: (int(inside[pid]), pid))[:2]
        victim = [p.pid, rnd.choice(oldest), f.pid][i % 3]
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        _out, err = f.communicate(timeout=60)
        if victim == f.pid:
            # The domain does not care.
            frozen = names()
            doppel_call("freeze", f"fzt-{os.getpid()}-kill{i}", frozen).ok()
            p.kill()
        p.communicate(timeout=60)
        assert eventually(lambda: not still_there(inside)), still_there(inside)
        assert f.returncode in (0, -9) or err.startswith(b"doppel: "), err
        # The image is there whole or not at all.
        if frozen in doppel_call("frozen", "ls").ok():
            doppel_call("frozen", "inspect", frozen).ok()


def test_killed_clones_leave_nothing(domain, names, clean):
    frozen = names()
    p = domain.start(
        "sh", "-c", "echo ready; sleep 1000 | sleep 1000", image="busybox", opts=["--name", f"fzt-{os.getpid()}-many"]
    )
    assert p.stdout.readline() == b"ready\n"
    doppel_call("freeze", "--stop", f"fzt-{os.getpid()}-many", frozen).ok()
    p.communicate(timeout=60)
    c = subprocess.Popen([DOPPEL, "clone", "-n", "8", frozen], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert eventually(lambda: len(descendants(c.pid)) >= 8 * 4), "each has init, sh and two sleeps"
    inside = descendants(c.pid)
    c.kill()
    c.communicate(timeout=60)
    assert eventually(lambda: not still_there(inside))
    doppel_call("frozen", "rm", frozen).ok()


@pytest.mark.parametrize(
    "name, argv, say, answer",
    [
        (
            "node",
            [
                "node",
                "-e",
                "let n=0;setInterval(()=>n++||console.log('ready'),5);"
                "process.stdin.on('data',d=>{console.log(`${d}`.trim(),n>0);process.exit(0)})",
            ],
            b"hello\n",
            b"hello true\n",
        ),
        (
            "python",
            ["python3", "-c", "import json,re,sqlite3,asyncio\nprint('ready',flush=True)\nprint(json.dumps(input()))"],
            b"hello\n",
            b'"hello"\n',
        ),
    ],
)
def test_warm_runtimes(domain, names, clean, name, argv, say, answer):
    image = "runtimes" if name == "node" else "debian"
    if not have_image(image):
        pytest.skip(f"no image {image}")
    frozen = names(name)
    p = domain.start(*argv, image=image, opts=["--name", f"fzt-{os.getpid()}-{name}"])
    assert p.stdout.readline() == b"ready\n"
    doppel_call("freeze", f"fzt-{os.getpid()}-{name}", frozen).ok()
    for _ in range(2):
        r = call([DOPPEL, "clone", "-i", frozen], say, 60)
        assert r.out.encode() == answer, r.err
    assert p.communicate(say, timeout=60)[0] == answer


def test_waits_on_standard_streams(domain, names, clean):
    """A reader of input that comes late and stays open, and a writer whose output nobody took, go on in a clone."""
    frozen, program = (
        names(),
        "import sys, threading\nbig = 'x' * (4 << 20)\nprint('ready', file=sys.stderr, flush=True)\n"
        "threading.Thread(target=lambda: (print(big), sys.stdout.flush())).start()\n"
        "for line in sys.stdin:\n print('line', line.strip(), file=sys.stderr, flush=True)\n",
    )
    p = domain.start("python3", "-c", program, opts=["--name", f"fzt-{os.getpid()}-streams"])
    assert p.stderr.readline() == b"ready\n"
    doppel_call("freeze", f"fzt-{os.getpid()}-streams", frozen).ok()
    c = subprocess.Popen(
        [DOPPEL, "clone", "-i", "--name", f"fzt-{os.getpid()}-streamsc", frozen],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert eventually(lambda: answers(f"fzt-{os.getpid()}-streamsc"))
    for which in (c, p):
        for word in (b"one", b"two"):
            which.stdin.write(word + b"\n")
            which.stdin.flush()
            assert which.stderr.readline() == b"line " + word + b"\n"
        out, err = which.communicate(timeout=60)
        # A part of the output had left the domain before the freeze.
        assert which.returncode == 0 and err == b"" and set(out) <= set(b"x\n") and len(out) > 3 << 20, (len(out), err)


def test_signals_do_not_end_a_request(domain, names, clean):
    """A program under a storm of signals freezes itself: its write returns once here and once in a clone, after the
    freeze."""
    frozen, program = (
        names(),
        "import os, signal\nsignal.signal(signal.SIGALRM, lambda *a: None)\nsignal.siginterrupt(signal.SIGALRM, True)\n"
        "signal.setitimer(signal.ITIMER_REAL, 2e-4, 2e-4)\nos.write(os.open('/sys/power/state', os.O_WRONLY), "
        "b'freeze')\n"
        "signal.setitimer(signal.ITIMER_REAL, 0)\nprint('generation', open('/sys/doppel/generation').read().strip())",
    )
    assert domain.run("python3", "-c", program, opts=["--freeze-as", frozen]).ok() == "generation 0\n"
    assert clones(frozen)[0]["stdout"] == "generation 1\n"
