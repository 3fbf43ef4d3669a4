"""Fixtures of the domain tests: real programs, natively and in a domain.

`place` runs a test twice, natively (the truth) and in a domain; `domain` is the domain alone, for what
only Doppel has. A place's `run` gives code, out and err. Native runs use this host's own programs.
"""
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DOPPEL = os.environ.get("DOPPEL", str(ROOT / "target/release/doppel"))
BUILD = ROOT / "target/domain-tests"


class Result:
    """What a command left behind."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    def ok(self) -> str:
        """The output, after checking that the command succeeded."""
        assert self.code == 0, f"exit code {self.code}\n--- out\n{self.out[-3000:]}\n--- err\n{self.err[-3000:]}"
        return self.out


def call(argv: Any, stdin: Any, timeout: float, **kw: Any) -> Result:
    if isinstance(stdin, str):
        stdin = stdin.encode()
    p = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, **kw
    )
    try:
        out, err = p.communicate(stdin, timeout=timeout)
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, 9)
        out, err = p.communicate()
        pytest.fail(
            f"no end after {timeout} s\n--- out\n{out[-2000:].decode(errors='replace')}\n--- err\n"
            f"{err[-2000:].decode(errors='replace')}"
        )
    return Result(p.returncode, out.decode(errors="replace"), err.decode(errors="replace"))


def command(*args: str, timeout: float = 120) -> Result:
    """`doppel ...` on the store alone."""
    env = {name: value for name, value in os.environ.items() if name != "DOPPEL_HOST"}
    return call([DOPPEL, *args], b"", timeout, env=env)


class Native:
    name = "native"

    def __init__(self) -> None:
        self.dir = tempfile.mkdtemp(prefix="domain-tests-")
        os.chmod(self.dir, 0o777)

    def run(
        self,
        *argv: Any,
        stdin: Any = b"",
        timeout: float = 60,
        image: str = "debian",
        env: Any = (),
        opts: Sequence[str] = (),
    ) -> Result:
        program = argv[0]
        if program.startswith("/t/"):
            argv = (str(BUILD / "image" / program[1:]), *argv[1:])
        elif not shutil.which(program):
            pytest.skip(f"{program} is not installed natively")
        return call(
            argv, stdin, timeout, cwd=self.dir, env={**os.environ, "HOME": self.dir, "TMPDIR": self.dir, **dict(env)}
        )


class Domain:
    name = "domain"

    def __init__(self) -> None:
        # What `start` has started in this test.
        self.started: list[subprocess.Popen[Any]] = []

    def argv(
        self, *argv: Any, image: str = "debian", env: Any = (), workdir: str = "/tmp", opts: Sequence[str] = ()
    ) -> list[str]:
        extra = [x for k, v in dict(env).items() for x in ("-e", f"{k}={v}")]
        return [DOPPEL, "run", "--rm", "-i", "-w", workdir, "-e", "HOME=/tmp", *extra, *opts, image, "--", *argv]

    def run(
        self,
        *argv: Any,
        stdin: Any = b"",
        timeout: float = 60,
        image: str = "debian",
        env: Any = (),
        workdir: str = "/tmp",
        opts: Sequence[str] = (),
    ) -> Result:
        if argv[0].startswith("/t/"):
            image = "domain-tests"
        return call(self.argv(*argv, image=image, env=env, workdir=workdir, opts=opts), stdin, timeout)

    def start(
        self, *argv: Any, image: str = "debian", env: Any = (), opts: Sequence[str] = (), **kw: Any
    ) -> subprocess.Popen[Any]:
        """The running `doppel run`, its standard streams as pipes."""
        if argv[0].startswith("/t/"):
            image = "domain-tests"
        kw = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **kw}
        self.started.append(subprocess.Popen(self.argv(*argv, image=image, env=env, opts=opts), **kw))
        return self.started[-1]

    def end_started(self) -> None:
        """Ends what a failed test has left running."""
        for p in self.started:
            p.kill()
            p.wait()
        self.started.clear()


class Running:
    """A domain whose command says "up" and runs on, and what can be started in it."""

    def __init__(self, image: str, *command: Any, opts: Sequence[str] = ()) -> None:
        self.name = "exec-" + uuid.uuid4().hex[:10]
        argv = [DOPPEL, "run", "--name", self.name, *opts, image, "--", *command]
        self.process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self.first = self.process.stdout.readline()
        assert self.first == b"up\n", self.first + self.process.stdout.read()

    def argv(self, *command: Any, opts: Sequence[str] = ()) -> list[str]:
        return [DOPPEL, "exec", *opts, self.name, *command]

    def exec(self, *command: Any, opts: Sequence[str] = (), stdin: Any = b"", timeout: float = 60) -> Result:
        return call(self.argv(*command, opts=opts), stdin, timeout)

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture(scope="module")
def box() -> Iterator[Running]:
    """A domain for all tests of a file."""
    domain = Running("busybox", "sh", "-c", "echo up; exec sleep 1000")
    yield domain
    domain.stop()


def have_image(name: str) -> bool:
    return subprocess.run([DOPPEL, "image", "inspect", "--quick", name], capture_output=True).returncode == 0


@pytest.fixture(scope="session")
def doppel() -> Domain:
    if not os.path.exists(DOPPEL):
        pytest.skip(f"no {DOPPEL}: make build")
    for name in ("debian", "busybox"):
        if not have_image(name):
            pytest.skip(f"no image {name}: make test-images")
    return Domain()


@pytest.fixture
def native() -> Iterator[Native]:
    n = Native()
    yield n
    shutil.rmtree(n.dir, ignore_errors=True)


@pytest.fixture(params=["native", "domain"])
def place(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue("native" if request.param == "native" else "doppel")


@pytest.fixture
def domain(doppel: Any) -> Iterator[Domain]:
    yield doppel
    doppel.end_started()


@pytest.fixture(scope="session")
def programs() -> set[str]:
    """Builds the programs of this directory, all static; value: their names. Makes the image of them."""
    root = BUILD / "image"
    (root / "t").mkdir(parents=True, exist_ok=True)
    for d in ("bin", "tmp", "proc", "sys", "dev", "etc"):
        (root / d).mkdir(exist_ok=True)
    (root / "tmp").chmod(0o1777)
    (root / "etc/passwd").write_text("root:x:0:0:root:/:/bin/sh\n")
    shutil.copy("/bin/busybox", root / "bin/busybox")
    for applet in ("sh", "true", "echo", "cat"):
        if not (root / "bin" / applet).exists():
            (root / "bin" / applet).symlink_to("busybox")
    built = set()
    for src in [*(HERE / "progs").glob("*.c"), *(HERE / "progs").glob("*.cc")]:
        cc = "musl-gcc" if src.stem.startswith("musl") else "g++" if src.suffix == ".cc" else "gcc"
        if shutil.which(cc):
            subprocess.run([cc, "-O2", "-static", "-pthread", "-Wall", "-o", root / "t" / src.stem, src], check=True)
            built.add(src.stem)
    if shutil.which("go"):
        env = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=mod"}
        subprocess.run(["go", "build", "-o", root / "t/goload", "."], cwd=HERE / "go", env=env, check=True)
        built.add("goload")
    if os.path.exists(DOPPEL):
        subprocess.run([DOPPEL, "image", "rm", "domain-tests"], capture_output=True)
        subprocess.run([DOPPEL, "image", "import", root, "domain-tests"], check=True, capture_output=True)
    return built


@pytest.fixture
def need(programs: Any) -> Callable[[str], None]:
    def check(name: str) -> None:
        if name not in programs:
            pytest.skip(f"{name}: its compiler is not installed")

    return check


def free_port() -> int:
    """A TCP port of the host that nobody has."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def descendants(pid: int) -> dict[int, str]:
    """Host processes below a process: {pid: start time}."""
    parent, start = {}, {}
    for p in os.listdir("/proc"):
        if p.isdigit():
            try:
                fields = open(f"/proc/{p}/stat").read().rsplit(") ", 1)[1].split()
            except OSError:
                continue
            parent[int(p)], start[int(p)] = int(fields[1]), fields[19]
    found, grew = {pid}, True
    while grew:
        more = {p for p, q in parent.items() if q in found} - found
        grew = bool(more)
        found |= more
    return {p: start[p] for p in found - {pid} if p in start}


def still_there(procs: dict[int, str]) -> list[int]:
    """Those of `procs` that still run (zombies excepted)."""
    left = []
    for pid, start in procs.items():
        try:
            fields = open(f"/proc/{pid}/stat").read().rsplit(") ", 1)[1].split()
        except OSError:
            continue
        if fields[19] == start and fields[0] != "Z":
            left.append(pid)
    return left


def eventually(check: Callable[[], Any], seconds: float = 60) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if check():
            return True
        time.sleep(0.02)
    return check()


def domain_cgroups() -> set[str]:
    """Cgroups that Doppel made."""
    return {d for d, _, _ in os.walk("/sys/fs/cgroup") if "/doppel/" in d}


def domain_memory(pid: int) -> int:
    """PSS in bytes of all processes below `doppel run`."""
    total = 0
    for p in descendants(pid):
        try:
            for line in open(f"/proc/{p}/smaps_rollup"):
                if line.startswith("Pss:"):
                    total += int(line.split()[1]) * 1024
        except OSError:
            pass
    return total
