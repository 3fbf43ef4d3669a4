"""A supervisor for tests: the interface of docs/api.md in Python, over processes and files of this machine.

It keeps the contract's shapes and codes and nothing of the isolation: programs run here, as who runs the tests, and a
sandbox's files are a temporary directory (`cwd` is below it, absolute paths in commands are not). It can misbehave:
`drop` loses answers, `delays` holds them back. Started by hand, `fake.py SOCKET` serves until it is ended.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import io
import json
import os
import pty

import shutil
import signal
import socketserver
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import uuid
from datetime import datetime, UTC
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

STATUS = {
    "invalid_request": 400,
    "command_not_found": 400,
    "command_not_executable": 400,
    "unauthorized": 401,
    "domain_not_found": 404,
    "image_not_found": 404,
    "frozen_not_found": 404,
    "exec_not_found": 404,
    "operation_not_found": 404,
    "file_not_found": 404,
    "path_not_found": 404,
    "name_in_use": 409,
    "in_use": 409,
    "wrong_state": 409,
    "capacity": 409,
    "idempotency_mismatch": 422,
    "internal": 500,
    "registry": 502,
}
IMAGES = ("debian", "busybox")
MEMORY = 8 << 30


class Refused(Exception):
    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.problem = {
            "type": f"urn:doppel:problem:{code}",
            "title": code.replace("_", " ").capitalize(),
            "status": STATUS[code],
            "code": code,
            "detail": detail,
        }


def now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def signal_number(name: str | None) -> int:
    name = name or "SIGKILL"
    if name.isdigit():
        return int(name)
    try:
        return signal.Signals["SIG" + name.removeprefix("SIG")]
    except KeyError:
        raise Refused("invalid_request", f"no signal {name!r}") from None


class Log:
    """Lines that any number of readers follow from the start."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.ended = False
        self.changed = threading.Condition()

    def put(self, line: dict[str, Any], last: bool = False) -> None:
        with self.changed:
            self.lines.append(json.dumps(line).encode() + b"\n")
            self.ended |= last
            self.changed.notify_all()

    def end(self) -> None:
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def read(self, follow: bool = True, start: int = 0):
        at = start
        while True:
            with self.changed:
                while follow and at == len(self.lines) and not self.ended:
                    self.changed.wait()
                new, ended = self.lines[at:], self.ended
            yield from new
            at += len(new)
            if not follow or ended:
                return


class Program:
    """A process, its streams, its end."""

    def __init__(
        self, argv: list[str], env: dict[str, str], cwd: str, *, tty: bool, stdin: bool, first: bool = False
    ) -> None:
        self.log = Log()
        #: All others end with the first one.
        self.first = first
        self.reason: str | None = None
        self.master = -1
        files: dict[str, Any] = {}
        if tty:
            self.master, slave = pty.openpty()
            files = {"stdin": slave, "stdout": slave, "stderr": slave}
        else:
            files = {
                "stdin": subprocess.PIPE if stdin else subprocess.DEVNULL,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
            }
        try:
            self.process = subprocess.Popen(
                argv,
                env={"PATH": os.environ["PATH"], **env},
                cwd=cwd,
                start_new_session=True,
                preexec_fn=controlling_terminal if tty else None,
                **files,
            )
        except FileNotFoundError:
            raise Refused("command_not_found", f"{argv[0]}: not found") from None
        except PermissionError:
            raise Refused("command_not_executable", f"{argv[0]}: not executable") from None
        if tty:
            os.close(slave)
            streams = [("stdout", self.master)]
        else:
            streams = [("stdout", self.process.stdout.fileno()), ("stderr", self.process.stderr.fileno())]
        self.readers = [threading.Thread(target=self.pump, args=s, daemon=True) for s in streams]
        for reader in self.readers:
            reader.start()
        threading.Thread(target=self.reap, daemon=True).start()

    def pump(self, kind: str, fd: int) -> None:
        while True:
            try:
                data = os.read(fd, 65536)
            except OSError:
                return
            if not data:
                return
            self.log.put({"type": kind, "data": base64.b64encode(data).decode()})

    def reap(self) -> None:
        self.process.wait()
        if self.first:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        for reader in self.readers:
            reader.join()
        line = {"type": "exit", "exit_code": self.code()}
        if self.reason:
            line["reason"] = self.reason
        self.log.put(line, last=True)

    def code(self) -> int | None:
        code = self.process.poll()
        return 128 - code if code is not None and code < 0 else code

    def write(self, data: bytes, close: bool) -> None:
        if self.process.poll() is not None:
            raise Refused("wrong_state", "the program has ended")
        try:
            if self.master >= 0:
                os.write(self.master, data)
            elif self.process.stdin is None:
                raise Refused("wrong_state", "its standard input is not open")
            else:
                self.process.stdin.write(data)
                self.process.stdin.flush()
                if close:
                    self.process.stdin.close()
        except (BrokenPipeError, ValueError):
            raise Refused("wrong_state", "nobody reads its input") from None

    def expire(self) -> None:
        with contextlib.suppress(Refused):
            self.kill(signal.SIGKILL, "its time is over")

    def kill(self, number: int, reason: str | None = None) -> None:
        if self.process.poll() is not None:
            raise Refused("wrong_state", "the program has ended")
        self.reason = reason
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


def controlling_terminal() -> None:
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def set_size(fd: int, size: dict[str, int]) -> None:
    import fcntl
    import struct
    import termios

    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", size["rows"], size["columns"], 0, 0))


class Box:
    """A domain."""

    def __init__(self, config: dict[str, Any], cloned_from: str | None = None) -> None:
        self.id = uuid.uuid4().hex[:16]
        self.name = config.get("name") or f"box-{self.id[:6]}"
        self.config = {**config, "name": self.name}
        self.state = "created"
        self.created_at = now()
        self.cloned_from = cloned_from
        self.program: Program | None = None
        self.follower: threading.Thread | None = None
        self.exit: dict[str, Any] | None = None
        self.root = tempfile.mkdtemp(prefix="fake-box-")
        self.timer: threading.Timer | None = None

    def show(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "name": self.name,
            "state": self.state,
            "config": self.config,
            "image_digest": "sha256:" + "0" * 64,
            "created_at": self.created_at,
            "restarts": 0,
            **({"pid": self.program.process.pid} if self.program and self.state == "running" else {}),
            **({"exit": self.exit} if self.exit else {}),
            **({"cloned_from": self.cloned_from} if self.cloned_from else {}),
            "a_field_of_the_future": True,
        }

    def path(self, path: str) -> Path:
        if not path.startswith("/"):
            raise Refused("invalid_request", f"{path!r} is not an absolute path")
        return Path(self.root + os.path.normpath(path))


class Supervisor:
    """What the server does, path by path."""

    def __init__(self, token: str | None = None) -> None:
        self.token = token
        self.lock = threading.RLock()
        self.boxes: dict[str, Box] = {}
        self.execs: dict[str, tuple[Box, Program, dict[str, Any]]] = {}
        self.frozen: dict[str, dict[str, Any]] = {}
        self.images = {n: image(n) for n in IMAGES}
        self.operations: dict[str, dict[str, Any]] = {}
        self.answers: dict[str, tuple[str, int, Any]] = {}
        self.events = Log()
        #: So many answers to requests of this method are lost after the work was done.
        self.drop: dict[str, int] = {}
        #: Seconds by which answers to this path are late.
        self.delays: dict[str, float] = {}
        self.requests: list[tuple[str, str]] = []
        self.watching = threading.Semaphore(0)

    def event(self, kind: str, subject: str, name: str | None = None, **attributes: str) -> None:
        with self.lock:
            self.events.put(
                {
                    "sequence": len(self.events.lines),
                    "at": now(),
                    "kind": kind,
                    "subject": subject,
                    **({"name": name} if name else {}),
                    **({"attributes": attributes} if attributes else {}),
                }
            )

    def close(self) -> None:
        for box in list(self.boxes.values()):
            with contextlib.suppress(Refused):
                self.end(box)
            shutil.rmtree(box.root, ignore_errors=True)
        self.events.end()

    # -- domains

    def box(self, name: str) -> Box:
        with self.lock:
            for box in self.boxes.values():
                if name in (box.name, box.id):
                    return box
            found = [b for b in self.boxes.values() if b.id.startswith(name)]
            if len(found) == 1:
                return found[0]
        raise Refused("domain_not_found", f"no domain {name!r}")

    def running(self, name: str) -> Box:
        box = self.box(name)
        if box.state != "running":
            raise Refused("wrong_state", f"{box.name} is {box.state}")
        return box

    def create(self, body: dict[str, Any], start: bool) -> dict[str, Any]:
        known = {
            "image", "name", "command", "entrypoint", "env", "working_dir", "user", "hostname", "tty", "stdin",
            "auto_remove", "restart", "labels", "resources", "health", "stop_signal", "stop_timeout_seconds",
            "timeout_seconds", "log", "freeze_as", "no_patch", "kind",
        }  # fmt: skip
        if set(body) - known:
            raise Refused("invalid_request", f"unknown field {min(set(body) - known)!r}")
        if body["image"] not in self.images:
            raise Refused("image_not_found", f"no image {body['image']!r}; have {', '.join(self.images)}")
        wanted = body.get("resources", {}).get("memory_reservation_bytes", 0)
        if wanted > MEMORY:
            raise Refused("capacity", f"{wanted} bytes are asked for, {MEMORY} are free")
        with self.lock:
            if any(b.name == body.get("name") for b in self.boxes.values()):
                raise Refused("name_in_use", f"{body['name']!r} is taken")
            box = Box(body)
            self.boxes[box.id] = box
        self.event("create", box.id, box.name)
        if start:
            self.start(box)
        return {"domain": box.show(), "warnings": []}

    def start(self, box: Box) -> None:
        command = [*(box.config.get("entrypoint") or []), *box.config.get("command", [])] or ["sleep", "86400"]
        box.program = Program(command, box.config.get("env", {}), box.root, tty=False, stdin=False, first=True)
        box.state = "running"
        self.event("start", box.id, box.name)
        if seconds := box.config.get("timeout_seconds"):
            self.expire(box, seconds)
        box.follower = threading.Thread(target=self.follow, args=(box,), daemon=True)
        box.follower.start()

    def expire(self, box: Box, seconds: int) -> None:
        if box.timer:
            box.timer.cancel()
        box.timer = threading.Timer(seconds, lambda: self.end(box, "its time is over"))
        box.timer.daemon = True
        box.timer.start()

    def follow(self, box: Box) -> None:
        for _ in box.program.log.read():
            pass
        box.state = "exited"
        box.exit = {"exit_code": box.program.code(), "out_of_memory": False, "at": now()}
        if box.program.reason:
            box.exit["reason"] = box.program.reason
        self.event("die", box.id, box.name, exit_code=str(box.program.code()))
        if box.config.get("auto_remove"):
            self.forget(box)

    def forget(self, box: Box) -> None:
        with self.lock:
            if self.boxes.pop(box.id, None):
                self.event("remove", box.id, box.name)
        shutil.rmtree(box.root, ignore_errors=True)

    def end(self, box: Box, reason: str | None = None) -> None:
        if box.timer:
            box.timer.cancel()
        for other, program, _ in self.execs.values():
            if other is box:
                with contextlib.suppress(Refused):
                    program.kill(signal.SIGKILL)
        if box.program:
            with contextlib.suppress(Refused):
                box.program.kill(signal.SIGCONT)
                box.program.kill(signal.SIGKILL, reason)
            box.follower.join()

    def remove(self, box: Box, force: bool) -> None:
        if box.state != "exited" and box.state != "created" and not force:
            raise Refused("wrong_state", f"{box.name} runs")
        self.end(box)
        self.forget(box)

    def stop(self, box: Box, seconds: float) -> dict[str, Any]:
        if box.program:
            with contextlib.suppress(Refused):
                box.program.kill(signal.SIGTERM)
            try:
                box.program.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.end(box)
        return box.show()

    def exec(self, box: Box, body: dict[str, Any]) -> dict[str, Any]:
        known = {
            "command", "env", "working_dir", "user", "tty", "terminal", "stdin", "timeout_seconds", "detach",
        }  # fmt: skip
        if set(body) - known:
            raise Refused("invalid_request", f"unknown field {min(set(body) - known)!r}")
        cwd = box.path(body.get("working_dir") or "/")
        if not cwd.is_dir():
            raise Refused("file_not_found", f"no directory {body['working_dir']!r}")
        env = {**box.config.get("env", {}), **body.get("env", {})}
        program = Program(body["command"], env, str(cwd), tty=body.get("tty", False), stdin=body.get("stdin", False))
        if program.master >= 0 and body.get("terminal"):
            set_size(program.master, body["terminal"])
        id = uuid.uuid4().hex[:16]
        self.execs[id] = (box, program, body)
        if seconds := body.get("timeout_seconds"):
            timer = threading.Timer(seconds, program.expire)
            timer.daemon = True
            timer.start()
        return self.show_exec(id)

    def show_exec(self, id: str) -> dict[str, Any]:
        box, program, config = self.find_exec(id)
        code = program.code()
        end = {} if code is None else {"exit_code": code}
        pid = program.process.pid
        return {"id": id, "domain": box.id, "pid": pid, "config": config, "running": code is None, **end}

    def find_exec(self, id: str) -> tuple[Box, Program, dict[str, Any]]:
        if id not in self.execs:
            raise Refused("exec_not_found", f"no exec {id!r}")
        return self.execs[id]

    def stats(self, box: Box) -> dict[str, Any]:
        memory = {"usage_bytes": 1 << 20, "peak_bytes": 2 << 20, "private_bytes": 1 << 20, "shared_bytes": 0}
        if limit := box.config.get("resources", {}).get("memory_bytes"):
            memory["limit_bytes"] = limit
        return {
            "id": box.id, "name": box.name, "at": now(), "cpu_seconds": 0.5, "memory": memory, "page_seconds": 1.5,
            "pids": 1, "console_bytes": 0, "oom_kills": 0,
        }  # fmt: skip

    def top(self, box: Box) -> list[dict[str, Any]]:
        programs = [box.program, *(p for b, p, _ in self.execs.values() if b is box and p.code() is None)]
        return [
            {
                "pid": p.process.pid,
                "ppid": 0,
                "uid": 0,
                "state": "S",
                "cpu_seconds": 0.0,
                "resident_bytes": 4096,
                "command": " ".join(p.process.args),
            }
            for p in programs
        ]

    def clone(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        frozen = self.find_frozen(name)
        results: list[dict[str, Any]] = []
        count = body.get("count", 1)
        for i in range(count):
            config = {**frozen["config"], **{k: body[k] for k in ("labels", "env", "auto_remove") if k in body}}
            config["name"] = None
            if body.get("name"):
                config["name"] = body["name"] if count == 1 else f"{body['name']}-{i + 1}"
            if any(b.name == config["name"] for b in self.boxes.values()):
                results.append({"problem": Refused("name_in_use", f"{config['name']!r} is taken").problem})
                continue
            box = Box(config, cloned_from=name)
            shutil.copytree(frozen["root"], box.root, dirs_exist_ok=True)
            self.boxes[box.id] = box
            self.start(box)
            self.event("clone", box.id, box.name, frozen=name)
            results.append({"domain": box.show()})
        return {"results": results}

    def find_frozen(self, name: str) -> dict[str, Any]:
        if name not in self.frozen:
            raise Refused("frozen_not_found", f"no frozen image {name!r}")
        return self.frozen[name]

    def freeze(self, box: Box, body: dict[str, Any]) -> dict[str, Any]:
        root = tempfile.mkdtemp(prefix="fake-frozen-")
        shutil.copytree(box.root, root, dirs_exist_ok=True)
        self.frozen[body["frozen"]] = {
            "config": box.config,
            "root": root,
            "show": {
                "name": body["frozen"],
                "size_bytes": 1 << 20,
                "in_memory": body.get("in_memory", False),
                "image": box.config["image"],
                "hostname": box.name,
                "generation": 1,
                "threads": 1,
                "created_at": now(),
            },
        }
        self.event("freeze", box.id, box.name, frozen=body["frozen"])
        if body.get("stop"):
            self.end(box)
        return {"frozen": body["frozen"], "bytes": 1 << 20, "stop_us": 10, "pause_us": 20}

    def pull(self, body: dict[str, Any]) -> dict[str, Any]:
        id = uuid.uuid4().hex[:8]
        progress = {"step": "layers", "done_bytes": 0, "total_bytes": 100}
        operation = {"id": id, "kind": "image_pull", "state": "running", "progress": progress}
        self.operations[id] = operation

        def work() -> None:
            if "endless" in body["reference"]:
                return
            time.sleep(0.1)
            progress["done_bytes"] = 100
            if "missing" in body["reference"]:
                operation.update(state="failed", problem=Refused("registry", "it has no such image").problem)
            else:
                name = body.get("name") or body["reference"]
                self.images[name] = image(name)
                self.event("image_pull", name)
                operation.update(state="succeeded", result=self.images[name])

        threading.Thread(target=work, daemon=True).start()
        return operation

    # -- dispatch

    def handle(self, http: Handler, method: str, path: str, query: dict[str, str], body: bytes) -> Any:
        """The answer: (status, value); bytes and iterators are streamed."""
        parts = [unquote(p) for p in path.strip("/").split("/")]
        sent = json.loads(body) if body and http.headers.get("content-type") == "application/json" else {}
        flag = {k: v == "true" for k, v in query.items()}
        match method, parts:
            case "GET", ["v1", "ping"]:
                return 200, {"ok": True}
            case "GET", ["v1", "version"]:
                return 200, {"version": "0.1.0", "api": "v1", "kernel": "sha256:0"}
            case "GET", ["v1", "info"]:
                states = [b.state for b in self.boxes.values()]
                return 200, {
                    "cpus": 2, "memory_bytes": MEMORY, "reserved_cpus": 0.0, "reserved_memory_bytes": 0,
                    "cgroups": "v2", "domains": {s: states.count(s) for s in states}, "store": "/nowhere",
                }  # fmt: skip
            case "GET", ["metrics"]:
                return 200, f"doppel_domains {len(self.boxes)}\n".encode()
            case "GET", ["v1", "events"]:
                return 200, self.events.read(start=0 if "since" in query else len(self.events.lines))
            case "GET", ["v1", "domains"]:
                return 200, self.list(query)
            case "POST", ["v1", "domains"]:
                return 201, self.create(sent, flag.get("start", False))
            case "POST", ["v1", "domains", "prune"]:
                ended = [b for b in self.boxes.values() if b.state == "exited"]
                for b in ended:
                    self.forget(b)
                return 200, {"removed": [b.id for b in ended], "freed_bytes": 0}
            case _, ["v1", "domains", name, *rest]:
                return self.domain(method, self.box(name), rest, sent, query, body)
            case _, ["v1", "execs", id, *rest]:
                return self.of_exec(method, id, rest, sent, flag, body)
            case "GET", ["v1", "frozen"]:
                return 200, [f["show"] for f in self.frozen.values()]
            case "GET", ["v1", "frozen", name]:
                return 200, self.find_frozen(name)["show"]
            case "DELETE", ["v1", "frozen", name]:
                self.find_frozen(name)
                if any(b.cloned_from == name for b in self.boxes.values()):
                    raise Refused("in_use", f"clones of {name!r} live")
                shutil.rmtree(self.frozen.pop(name)["root"])
                return 204, None
            case "POST", ["v1", "frozen", name, "clone"]:
                return 201, self.clone(name, sent)
            case "GET", ["v1", "images"]:
                return 200, list(self.images.values())
            case "POST", ["v1", "images", "pull" | "push"]:
                return 202, self.pull(sent)
            case "POST", ["v1", "images", "import"]:
                with tarfile.open(fileobj=io.BytesIO(body)) as tar:
                    self.images[query["name"]] = {**image(query["name"]), "files": len(tar.getmembers())}
                return 201, self.images[query["name"]]
            case "POST", ["v1", "images", "prune"]:
                return 200, {"removed": [], "freed_bytes": 0}
            case "GET" | "DELETE", ["v1", "images", name]:
                if name not in self.images:
                    raise Refused("image_not_found", f"no image {name!r}")
                if method == "GET":
                    return 200, self.images[name]
                if any(b.config["image"] == name for b in self.boxes.values()):
                    raise Refused("in_use", f"domains use {name!r}")
                del self.images[name]
                return 204, None
            case "GET", ["v1", "operations", id]:
                while flag.get("wait") and self.operations[id]["state"] == "running":
                    time.sleep(0.02)
                return 200, self.operations[id]
            case "DELETE", ["v1", "operations", id]:
                self.operations[id]["state"] = "cancelled"
                return 202, self.operations[id]
        raise Refused("path_not_found", f"{method} {path}")

    def list(self, query: dict[str, str]) -> list[dict[str, Any]]:
        found = [b.show() for b in self.boxes.values()]
        if query.get("all") != "true" and "state" not in query:
            found = [b for b in found if b["state"] == "running"]
        if "state" in query:
            found = [b for b in found if b["state"] == query["state"]]
        for label in filter(None, query.get("label", "").split(",")):
            key, has_value, value = label.partition("=")
            found = [b for b in found if key in b["config"]["labels"]]
            found = [b for b in found if not has_value or b["config"]["labels"][key] == value]
        found = [b for b in found if query.get("name", "") in b["name"]]
        return found[::-1][: int(query.get("limit", 1 << 30))]

    def domain(self, method: str, box: Box, rest: list[str], sent: Any, query: dict[str, str], body: bytes) -> Any:
        path = query.get("path", "")
        match method, rest:
            case "GET", []:
                return 200, box.show()
            case "PATCH", []:
                box.config = {**box.config, **{k: sent[k] for k in ("labels", "restart") if k in sent}}
                box.config["resources"] = {**box.config.get("resources", {}), **sent.get("resources", {})}
                if "timeout_seconds" in sent:
                    box.config["timeout_seconds"] = sent["timeout_seconds"] or None
                    if sent["timeout_seconds"]:
                        self.expire(box, sent["timeout_seconds"])
                    elif box.timer:
                        box.timer.cancel()
                return 200, box.show()
            case "DELETE", []:
                self.remove(box, query.get("force") == "true")
                return 204, None
            case "POST", ["stop"]:
                return 200, self.stop(box, sent.get("timeout_seconds", 10))
            case "POST", ["wait"]:
                while box.exit is None:
                    time.sleep(0.02)
                return 200, {"exit": box.exit}
            case "POST", [("pause" | "unpause" | "hibernate" | "wake") as verb]:
                source, to = {
                    "pause": ("running", "paused"), "unpause": ("paused", "running"),
                    "hibernate": ("running", "hibernated"), "wake": ("hibernated", "running"),
                }[verb]  # fmt: skip
                if box.state != source:
                    raise Refused("wrong_state", f"{box.name} is {box.state}")
                box.state = to
                self.event(verb, box.id, box.name)
                if verb == "hibernate":
                    return 200, {"report": {"frozen": box.name, "bytes": 1 << 20, "stop_us": 1, "pause_us": 2}}
                return 200, box.show()
            case "POST", ["freeze"]:
                return 200, self.freeze(box, sent)
            case "GET", ["logs"]:
                tail = int(query["tail"]) if "tail" in query else None
                log = box.program.log
                start = 0 if tail is None else max(0, len(log.lines) - tail)
                return 200, log.read(follow=query.get("follow") == "true", start=start)
            case "GET", ["stats"]:
                return 200, self.stats(box)
            case "GET", ["top"]:
                return 200, self.top(box)
            case "POST", ["exec"]:
                return 201, self.exec(self.running(box.id), sent)
            case "GET", ["archive"]:
                out = io.BytesIO()
                with tarfile.open(fileobj=out, mode="w") as tar:
                    tar.add(self.there(box, path), arcname=Path(os.path.normpath(path)).name or ".")
                return 200, out.getvalue()
            case "PUT", ["archive"]:
                with tarfile.open(fileobj=io.BytesIO(body)) as tar:
                    tar.extractall(self.there(box, path))
                return 204, None
            case "GET", ["files"]:
                return 200, self.there(box, path).read_bytes()
            case "PUT", ["files"]:
                at = box.path(path)
                at.parent.mkdir(parents=True, exist_ok=True)
                at.write_bytes(body)
                at.chmod(int(query.get("mode", "644"), 8))
                return 204, None
            case "DELETE", ["files"]:
                at = self.there(box, path)
                if at.is_dir() and not at.is_symlink():
                    if query.get("recursive") == "true":
                        shutil.rmtree(at)
                    else:
                        try:
                            at.rmdir()
                        except OSError as error:
                            raise Refused("invalid_request", errno.errorcode[error.errno]) from None
                else:
                    at.unlink()
                return 204, None
            case "GET", ["files", "info"]:
                return 200, info(self.there(box, path), path)
            case "GET", ["files", "list"]:
                at = self.there(box, path)
                return 200, [info(p, f"{path.rstrip('/')}/{p.name}") for p in sorted(at.iterdir())]
            case "GET", ["files", "watch"]:
                return 200, watch(self.there(box, path), self.watching)
            case "POST", ["files", "directory"]:
                box.path(path).mkdir(parents=True, exist_ok=True)
                return 204, None
        raise Refused("path_not_found", f"{method} {'/'.join(rest)}")

    def there(self, box: Box, path: str) -> Path:
        at = self.running(box.id).path(path)
        if not os.path.lexists(at):
            raise Refused("file_not_found", f"no file {path!r}")
        return at

    def of_exec(self, method: str, id: str, rest: list[str], sent: Any, flag: dict[str, bool], body: bytes) -> Any:
        _, program, _ = self.find_exec(id)
        match method, rest:
            case "GET", []:
                return 200, self.show_exec(id)
            case "GET", ["output"]:
                return 200, program.log.read()
            case "POST", ["input"]:
                program.write(body, flag.get("close", False))
                return 204, None
            case "POST", ["resize"]:
                set_size(program.master, sent)
                return 204, None
            case "POST", ["kill"]:
                program.kill(signal_number(sent.get("signal")))
                return 204, None
        raise Refused("path_not_found", f"{method} {'/'.join(rest)}")


def image(name: str) -> dict[str, Any]:
    return {
        "name": name, "digest": "sha256:" + "0" * 64, "size_bytes": 1 << 20, "files": 10, "created_at": now(),
        "source": "test", "config": {"command": ["/bin/sh"], "env": {"PATH": "/bin"}},
    }  # fmt: skip


def info(at: Path, path: str) -> dict[str, Any]:
    stat = at.lstat()
    kind = "symlink" if at.is_symlink() else "directory" if at.is_dir() else "file" if at.is_file() else "other"
    return {
        "name": at.name, "path": path, "kind": kind, "size_bytes": stat.st_size, "mode": stat.st_mode & 0o7777,
        "uid": stat.st_uid, "gid": stat.st_gid,
        "modified_at": datetime.fromtimestamp(stat.st_mtime, UTC).isoformat(),
        **({"target": os.readlink(at)} if kind == "symlink" else {}),
    }  # fmt: skip


def watch(directory: Path, watching: threading.Semaphore):
    def look() -> dict[str, int]:
        return {p.name: p.stat().st_mtime_ns for p in directory.iterdir()}

    before = look()
    watching.release()
    while directory.exists():
        time.sleep(0.02)
        after = look()
        for name in after.keys() | before.keys():
            kind = None
            if name not in before:
                kind = "created"
            elif name not in after:
                kind = "removed"
            elif after[name] != before[name]:
                kind = "modified"
            if kind:
                yield json.dumps({"kind": kind, "name": name}, ensure_ascii=False).encode() + b"\n"
        before = after
        yield b"\n"  # notices a reader that has gone


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    supervisor: Supervisor

    def address_string(self) -> str:
        return "local"

    def log_message(self, *args: Any) -> None:
        pass

    def serve(self) -> None:
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        body = self.body()
        s = self.supervisor
        s.requests.append((self.command, url.path))
        time.sleep(s.delays.get(url.path, 0))
        key = self.headers.get("idempotency-key")
        what = f"{self.command} {self.path}"
        try:
            if s.token and self.headers.get("authorization") != f"Bearer {s.token}":
                raise Refused("unauthorized", "no or wrong token")
            if key in s.answers:
                before, status, value = s.answers[key]
                if before != what:
                    raise Refused("idempotency_mismatch", "the key was used for another request")
            else:
                status, value = s.handle(self, self.command, url.path, query, body)
        except Refused as refused:
            status, value = refused.problem["status"], refused.problem
        if key:
            s.answers[key] = (what, status, value)
        if s.drop.get(self.command, 0) > 0:
            s.drop[self.command] -= 1
            self.close_connection = True
            return
        self.answer(status, value)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = serve

    def body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            data = bytearray()
            while size := int(self.rfile.readline(), 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return bytes(data)
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def answer(self, status: int, value: Any) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.send(status, value)
            return
        self.close_connection = True

    def send(self, status: int, value: Any) -> None:
        self.send_response(status)
        if value is None or isinstance(value, bytes | dict | list):
            kind, data = "application/octet-stream", value or b""
            if isinstance(value, dict | list):
                kind = "application/problem+json" if status >= 400 else "application/json"
                data = json.dumps(value).encode()
            if status != 204:
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            return
        self.send_header("content-type", "application/x-ndjson")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for line in value:
            # In halves, as networks do.
            for piece in filter(None, (line[: len(line) // 2], line[len(line) // 2 :])):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")


class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 128


class TcpServer(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    allow_reuse_address = True


class Fake:
    """A running server; `host` is its address, `supervisor` what it knows."""

    def __init__(self, socket: str | None = None, token: str | None = None) -> None:
        self.supervisor = Supervisor(token)
        handler = type("BoundHandler", (Handler,), {"supervisor": self.supervisor})
        if socket:
            self.server: Any = UnixServer(socket, handler)
            self.host = f"unix://{socket}"
        else:
            self.server = TcpServer(("127.0.0.1", 0), handler)
            self.host = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.supervisor.close()


if __name__ == "__main__":
    Fake(sys.argv[1]).thread.join()
