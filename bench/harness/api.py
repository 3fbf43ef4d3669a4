"""Doppel through its supervisor: a `doppeld` of the benchmark's own, and its interface over one connection."""
import http.client
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from typing import Any

from harness.runtimes import Failed, Native


class Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: Any) -> None:
        super().__init__("localhost", timeout=120)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))

    def ask(self, method: str, path: Any, body: Any = None) -> Any:
        """The answer's JSON; each line's if it is a stream."""
        self.request(
            method,
            path,
            None if body is None else json.dumps(body),
            {"Content-Type": "application/json"} if body is not None else {},
        )
        answer = self.getresponse()
        data = answer.read()
        if answer.status >= 300:
            raise Failed(f"{method} {path}: {answer.status}: {data[:300].decode(errors='replace')}")
        if answer.headers["content-type"] == "application/x-ndjson":
            return [json.loads(line) for line in data.splitlines()]
        return json.loads(data) if data else None


class Supervisor:
    """A `doppeld` over a directory of its own, with the images of this host's store."""

    def __init__(self, doppel: Any, *options: str) -> None:
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="doppel-bench-"))
        store = self.dir / "store"
        images = pathlib.Path(os.environ.get("DOPPEL_STORE", "/var/lib/doppel"))
        for part in ("images", "names"):
            (store / part).mkdir(parents=True)
            for path in (images / part).glob("*"):
                (store / part / path.name).symlink_to(path)
        self.socket = self.dir / "run/doppeld.sock"
        self.log = open(self.dir / "log", "wb")
        program = pathlib.Path(doppel).parent / "doppeld"
        argv = [str(program), "--store", str(store), "--runtime", str(self.dir / "run"), *options]
        self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + 60
        while True:
            try:
                self.connection().ask("GET", "/v1/ping")
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise Failed("doppeld does not start: " + (self.dir / "log").read_text()[-300:]) from None
                time.sleep(0.05)

    def connection(self) -> Connection:
        return Connection(self.socket)

    def processes(self) -> list[int]:
        """Itself and its keepers."""
        found = [self.process.pid]
        for entry in pathlib.Path("/proc").iterdir():
            try:
                argv = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            except OSError:
                continue
            if b"keep" in argv and any(a.startswith(bytes(self.dir / "run")) for a in argv):
                found.append(int(entry.name))
        return found

    def births(self) -> set[int]:
        """The first process of each domain."""
        found = set()
        for path in (self.dir / "run").glob("keepers/*/kept/*"):
            try:
                found.add(json.loads(path.read_text())["birth"]["process"]["pid"])
            except (OSError, ValueError, TypeError):
                pass  # it was not born, or has ended
        return found

    def close(self) -> None:
        for pid in reversed(self.processes()):
            os.kill(pid, signal.SIGKILL)
        self.process.wait()
        # Domains do not end with their keeper.
        for pid in self.births():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass  # it has ended
        shutil.rmtree(self.dir, ignore_errors=True)


class Api(Native):
    """Doppel as clients of the supervisor see it: only for workloads that know of it."""

    name = "doppel-api"
    asked_only = True

    def __init__(self, roots: Any, doppel: Any) -> None:
        super().__init__(roots)
        self.doppel = doppel
        self.started: Supervisor | None = None

    @property
    def supervisor(self) -> Any:
        if not self.started:
            self.started = Supervisor(self.doppel)
            # The first domain waits for what all later ones share.
            self.cycle("/bin/busybox", "true")
        return self.started

    def cycle(self, *command: Any, image: str = "bench") -> Any:
        """Nanoseconds from the request for a domain until the answer that it has ended."""
        connection = self.supervisor.connection()
        connection.connect()
        t = time.perf_counter_ns()
        domain = connection.ask("POST", "/v1/domains?start=true", {"image": image, "command": list(command)})["domain"][
            "id"
        ]
        code = connection.ask("POST", f"/v1/domains/{domain}/wait")["exit"]["exit_code"]
        t = time.perf_counter_ns() - t
        connection.ask("DELETE", f"/v1/domains/{domain}")
        if code:
            raise Failed(f"{self.name}: {command} ended with {code}")
        return t

    def close(self) -> None:
        if self.started:
            self.started.close()
