"""Fixtures of the supervisor's tests: a `doppeld` of its own on a temporary socket, and a client.

`doppeld` is one supervisor for the whole session, with a state directory of its own and the images of this host's
store. `Doppeld` starts others: tests that kill it, or configure it, make their own with `new_doppeld`.
`supervisor.get/post/...` speak HTTP over the socket and give `Answer`s.
"""
import base64
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import pytest

# Other folders' conftest and the SDK's load this one by its path.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from leftovers import services
from processes import words

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DOPPEL = os.environ.get("DOPPEL", str(ROOT / "target/release/doppel"))
DOPPELD = os.environ.get("DOPPELD", str(pathlib.Path(DOPPEL).parent / "doppeld"))
STORE = pathlib.Path(os.environ["DOPPEL_STORE"])


class Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Any, timeout: float = 60) -> None:
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


class Answer:
    """Status, headers and body of an answer."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status, self.headers, self.body = response.status, response.headers, response.read()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.body.splitlines()]

    def ok(self, status: Any = None) -> Any:
        """The JSON, after checking that it is a success."""
        assert self.status == status if status else self.status < 300, f"{self.status}: {self.body[:2000]!r}"
        return json.loads(self.body) if self.body else None

    def problem(self, status: Any, code: int) -> str:
        """The problem's detail, after checking its status and code."""
        assert self.headers["content-type"] == "application/problem+json", self.body[:500]
        assert (self.status, self.json["code"]) == (status, code), self.body[:2000]
        assert self.json["status"] == status
        return self.json["detail"]


def ok(p: subprocess.CompletedProcess[bytes]) -> str:
    """What a command that succeeded has said."""
    assert p.returncode == 0, (p.args[1:], p.returncode, p.stdout[-2000:], p.stderr[-2000:])
    return p.stdout.decode()


def refused(p: subprocess.CompletedProcess[bytes], why: str) -> None:
    """A command has failed, and said why."""
    assert p.returncode != 0 and why in p.stderr.decode(), (p.args[1:], p.returncode, p.stderr)


class Doppeld:
    """A running supervisor over a directory of its own."""

    program = DOPPELD

    def __init__(self, directory: Any = None, config: str = "", args: Any = (), env: Any = None) -> None:
        self.dir = pathlib.Path(directory or tempfile.mkdtemp(prefix="doppeld-"))
        self.store, self.runtime = self.dir / "store", self.dir / "run"
        self.store.mkdir(exist_ok=True)
        if not (self.store / "images").exists():
            self.take_images()
        self.socket = self.runtime / "doppeld.sock"
        self.config = self.dir / "doppeld.toml"
        self.config.write_text(f'store = "{self.store}"\nruntime = "{self.runtime}"\nspare_seconds = 1\n{config}')
        self.args, self.env = list(args), dict(env or {})
        self.process: subprocess.Popen[bytes] | None = None

    def take_images(self) -> None:
        """Gives it this host's images: links to the files, copies of the names, so that it may remove them."""
        for part in ("images", "names"):
            (self.store / part).mkdir()
            for path in (STORE / part).glob("*"):
                if part == "images":
                    (self.store / part / path.name).symlink_to(path)
                else:
                    shutil.copy(path, self.store / part / path.name, follow_symlinks=False)

    def start(self, wait: bool = True) -> "Doppeld":
        self.log = open(self.dir / "log", "ab")
        argv = [self.program, "--config", str(self.config), *self.args]
        self.process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env={**os.environ, **self.env}
        )
        deadline = time.monotonic() + 60
        while wait:
            try:
                if self.get("/v1/ping").status == 200:
                    break
            except OSError:
                pass
            assert self.process.poll() is None, f"doppeld ended: {self.logged()[-4000:]}"
            assert time.monotonic() < deadline, f"doppeld does not answer: {self.logged()[-4000:]}"
            time.sleep(0.02)
        return self

    def logged(self) -> str:
        return (self.dir / "log").read_text(errors="replace")

    def kill(self) -> None:
        """kill -9; domains and keeper live on."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        """Asks it to end; gives its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)

    def close(self) -> None:
        """Ends it, its keeper and all domains, and removes its directory."""
        if self.process and self.process.poll() is None:
            self.kill()
        for pid in self.keepers():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        deadline = time.monotonic() + 60
        while self.keepers() and time.monotonic() < deadline:
            time.sleep(0.02)
        # Domains do not end with their keeper, nor do network services before they see that they are not needed.
        for pid in [*self.kept(), *services(self)]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        while self.kept() and time.monotonic() < deadline:
            time.sleep(0.02)
        shutil.rmtree(self.dir, ignore_errors=True)

    def keepers(self) -> list[int]:
        """Process ids of the keepers over this directory."""
        return list(self.keepers_by_directory())

    def keeper_of(self, domain: Any) -> Any:
        """Process id of the keeper that has written this domain down."""
        for path in self.runtime.glob("keepers/*/kept/*"):
            try:
                record = json.loads(path.read_text())
            except (OSError, ValueError):
                continue  # it is going, or is being written
            if (record["note"] or {}).get("id") == domain:
                of = [
                    pid for pid, argv in self.keepers_by_directory().items() if str(path.parent.parent).encode() in argv
                ]
                # One that is just starting another program looks like it for a moment.
                return of[0] if len(of) == 1 else None
        return None

    def keepers_by_directory(self) -> Any:
        """Arguments of the keepers over this directory, by process id."""
        runtime = str(self.runtime).encode()
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                argv = words(entry.name)
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if state != "Z" and b"keep" in argv and any(a == runtime or a.startswith(runtime + b"/") for a in argv):
                found[int(entry.name)] = argv
        return found

    def kept(self, spares: bool = True) -> Any:
        """Process ids of the domains that its keepers have written down and that live."""
        found = []
        for path in self.runtime.glob("keepers/*/kept/*"):
            try:
                record = json.loads(path.read_text())
                process = (record["birth"] or {}).get("process")
                stat = (
                    pathlib.Path(f"/proc/{process['pid']}/stat").read_text().rpartition(")")[2].split()
                    if process
                    else None
                )
            except (OSError, ValueError):
                continue  # it is going, or is being written
            if stat and stat[0] != "Z" and int(stat[19]) == process["began"] and (spares or record["note"]):
                found.append(process["pid"])
        return found

    def connection(self, timeout: float = 60) -> Connection:
        return Connection(self.socket, timeout)

    def ask(
        self, method: str, path: Any, /, body: Any = None, headers: Any = None, timeout: float = 60, **query: Any
    ) -> Answer:
        if query:
            path += "?" + urllib.parse.urlencode({
                k: str(v).lower() if isinstance(v, bool) else v for k, v in query.items()
            })
        headers = dict(headers or {})
        if (
            body is not None
            and not isinstance(body, (bytes, str))
            and not hasattr(body, "read")
            and not hasattr(body, "__next__")
        ):
            body = json.dumps(body)
            headers.setdefault("Content-Type", "application/json")
        connection = self.connection(timeout)
        try:
            connection.request(method, path, body, headers)
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def get(self, path: Any, /, **kw: Any) -> Answer:
        return self.ask("GET", path, **kw)

    def post(self, path: Any, /, body: Any = None, **kw: Any) -> Answer:
        return self.ask("POST", path, body, **kw)

    def put(self, path: Any, /, body: Any = None, **kw: Any) -> Answer:
        return self.ask("PUT", path, body, **kw)

    def patch(self, path: Any, /, body: Any = None, **kw: Any) -> Answer:
        return self.ask("PATCH", path, body, **kw)

    def delete(self, path: Any, /, **kw: Any) -> Answer:
        return self.ask("DELETE", path, **kw)

    def cli(
        self, *argv: Any, stdin: Any = b"", timeout: float = 60, env: Any = None
    ) -> subprocess.CompletedProcess[bytes]:
        """Runs the `doppel` command against this supervisor."""
        env = {**os.environ, "DOPPEL_HOST": f"unix://{self.socket}", "DOPPEL_STORE": str(self.store), **(env or {})}
        return subprocess.run([DOPPEL, *argv], input=stdin, capture_output=True, timeout=timeout, env=env)


def output_of(lines: Any) -> Any:
    """Standard output and standard error of an output stream's lines, and the last one's exit code."""
    out = {"stdout": b"", "stderr": b""}
    code = None
    for line in lines:
        if line["type"] in out:
            out[line["type"]] += base64.b64decode(line["data"])
        elif line["type"] == "exit":
            code = line["exit_code"]
    return out["stdout"], out["stderr"], code


HIERARCHIES = pathlib.Path("/sys/fs/cgroup")


def eventually(check: Callable[[], Any], what: str) -> Any:
    """Waits for a true value of `check`, and gives it."""
    deadline = time.monotonic() + 60
    while not (found := check()):
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
    return found


def of_group(pid: int, controller: str, v1: str, v2: str) -> str:
    """What a file of a process' control group says; none if the controller is not there."""
    for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return (HIERARCHIES / controllers / path.lstrip("/") / v1).read_text().strip()
        if number == "0" and (HIERARCHIES / path.lstrip("/") / v2).exists():
            return (HIERARCHIES / path.lstrip("/") / v2).read_text().strip()
    return None


def have_image(name: str) -> bool:
    return subprocess.run([DOPPEL, "image", "inspect", "--quick", name], capture_output=True).returncode == 0


@pytest.fixture(scope="session")
def binaries() -> None:
    for program in (DOPPEL, DOPPELD):
        if not os.path.exists(program):
            pytest.skip(f"no {program}: make build")
    if os.geteuid() != 0:
        pytest.skip("doppeld runs as root")


# The session's supervisor, once a test has asked for it.
shared = []


@pytest.fixture(scope="session")
def supervisor(binaries: None) -> Iterator[Doppeld]:
    one = Doppeld().start()
    shared.append(one)
    yield one
    shared.remove(one)
    one.close()


def domains_of(one: Doppeld) -> Any:
    """Name and state of each domain, by its id."""
    return {d["id"]: (d["name"], d["state"]) for d in one.get("/v1/domains", all=True).ok()}


@pytest.fixture(autouse=True)
def no_domain_left() -> Iterator[Any]:
    """Fails the test that leaves a domain in the session's supervisor, where others would take it for theirs."""
    before = domains_of(shared[0]) if shared else {}
    yield
    left = lambda: {i: d for i, d in domains_of(shared[0]).items() if i not in before} if shared else {}
    deadline = time.monotonic() + 60
    while there := left():
        if time.monotonic() > deadline:
            for i in there:
                shared[0].delete(f"/v1/domains/{i}", force=True)
            pytest.fail(f"left in the supervisor of all tests: {there}")
        time.sleep(0.02)


@pytest.fixture
def new_doppeld(binaries: None) -> Iterator[Callable[..., Doppeld]]:
    """Makes supervisors that end with the test."""
    made = []

    def make(**kw: Any) -> "Doppeld":
        one = Doppeld(**kw)
        made.append(one)
        return one

    yield make
    for one in made:
        one.close()


@pytest.fixture(scope="session")
def busybox(binaries: None) -> Any:
    if not have_image("busybox"):
        pytest.skip("no image busybox: make test-images")
    return "busybox"
