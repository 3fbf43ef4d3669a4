"""What the tests of OCI images share: images made by umoci, a real registry, and a registry that lies."""
import hashlib
import http.server
import json
import os
import pathlib
import socket
import subprocess
import threading
import time
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DOPPEL = os.environ.get("DOPPEL", str(ROOT / "target/release/doppel"))
BUSYBOX = "/bin/busybox"
TOOLS = ("/usr/bin/docker-registry", "/usr/bin/skopeo", "/usr/bin/umoci", BUSYBOX)


class Store:
    """`doppel` with an image store of its own."""

    def __init__(self, path: Any) -> None:
        self.path = pathlib.Path(path)
        self.env = {**os.environ, "DOPPEL_STORE": str(path), "HOME": str(self.path.parent / "home")}

    def popen(self, *argv: Any, **kw: Any) -> subprocess.Popen[Any]:
        return subprocess.Popen([DOPPEL, *map(str, argv)], env=self.env, **kw)

    def run(self, *argv: Any, timeout: float = 120, **kw: Any) -> subprocess.CompletedProcess[Any]:
        return subprocess.run([DOPPEL, *map(str, argv)], env=self.env, capture_output=True, timeout=timeout, **kw)

    def ok(self, *argv: Any, **kw: Any) -> Any:
        done = self.run(*argv, **kw)
        assert done.returncode == 0, f"{argv}: {done.returncode}\n{done.stderr.decode()}"
        return done.stdout.decode()

    def fails(self, *argv: Any, **kw: Any) -> Any:
        """The error of a command that must fail as errors do: by itself, with a message."""
        done = self.run(*argv, **kw)
        text = done.stderr.decode()
        assert done.returncode == 125 and text.startswith("doppel: "), f"{argv}: {done.returncode}\n{text}"
        return text

    def json(self, *argv: Any, **kw: Any) -> Any:
        return json.loads(self.ok("image", *argv, "--json", **kw))

    def records(self) -> list[Any]:
        return [json.loads(line) for line in self.ok("image", "ls", "--json").splitlines()]

    def files(self, part: str) -> Any:
        directory = self.path / part
        return sorted(f.name for f in directory.iterdir()) if directory.exists() else []

    def check(self) -> Any:
        """Every name has its image, every image and blob is whole, and nothing else is there (after a collection)."""
        self.ok("image", "prune")
        records = self.records()
        for record in records:
            self.ok("image", "inspect", record["name"])
        assert self.files("images") == sorted({f"sha256-{r['digest']}.erofs" for r in records})
        blobs = {d.replace(":", "-") for r in records for d in (r.get("oci") or {"blobs": []})["blobs"]}
        assert self.files("blobs") == sorted(blobs)
        for name in blobs:
            assert hashlib.sha256((self.path / "blobs" / name).read_bytes()).hexdigest() == name[7:]
        assert self.files("partial") == [] and self.files("tmp") == []
        return records


def tool(*argv: Any, **kw: Any) -> str:
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=120, **kw)
    assert done.returncode == 0, f"{argv}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def skopeo(*argv: Any) -> str:
    return tool("skopeo", "--insecure-policy", *argv)


def small_root(root: pathlib.Path) -> None:
    """A small system around busybox, in a directory."""
    for d in ("bin", "etc", "usr/lib", "usr/bin", "tmp", "proc", "sys", "dev", "srv", "var/cache/old"):
        (root / d).mkdir(parents=True, exist_ok=True)
    subprocess.run(["cp", BUSYBOX, root / "bin/busybox"], check=True)
    for applet in ("sh", "true", "echo", "cat", "id", "env", "pwd", "ls", "stat", "readlink", "test"):
        (root / "bin" / applet).symlink_to("busybox")
    (root / "lib").symlink_to("usr/lib")
    (root / "etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\nweb:x:33:34:web:/srv:/bin/sh\n")
    (root / "etc/group").write_text("root:x:0:\nwww:x:34:\nstaff:x:50:\naudio:x:29:web\n")
    (root / "etc/motd").write_text("old\n")
    (root / "var/cache/old/junk").write_text("junk\n")
    (root / "usr/lib/data").write_bytes(os.urandom(3 << 20))
    os.link(root / "usr/lib/data", root / "usr/lib/data-too")
    subprocess.run(["mknod", root / "dev/null", "c", "1", "3"], check=True)
    os.chown(root / "srv", 33, 34)
    os.setxattr(root / "etc/motd", "user.note", b"n")


class Registry:
    """Debian's docker-registry on a free port."""

    def __init__(self, directory: Any, auth: Any = None) -> None:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.host = f"localhost:{self.port}"
        config = directory / "registry.yml"
        more = f"auth: {{htpasswd: {{realm: test, path: {auth}}}}}\n" if auth else ""
        config.write_text(
            "version: 0.1\nlog: {level: error}\n"
            f"storage: {{filesystem: {{rootdirectory: {directory}/registry}}}}\n"
            f"http: {{addr: '127.0.0.1:{self.port}'}}\n{more}"
        )
        self.log = open(directory / "registry.log", "wb")
        self.process = subprocess.Popen(["docker-registry", "serve", config], stdout=self.log, stderr=self.log)
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.1)
        raise AssertionError((directory / "registry.log").read_text())

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self.log.close()


class Faulty:
    """A registry that serves the blobs of a layout, and does to each what `faults` says.

    faults: {digest or "manifest": f(handler, data, start)}, called instead of a good answer; it returns True when it
    has answered. `log` has the requests: (path, Range header).
    """

    def __init__(self, layout: pathlib.Path, reference: str, tls: Any = None) -> None:
        blobs = layout / "blobs/sha256"
        index = json.loads((layout / "index.json").read_text())
        names = {m["annotations"]["org.opencontainers.image.ref.name"]: m for m in index["manifests"]}
        self.manifest = (blobs / names[reference]["digest"][7:]).read_bytes()
        self.media_type = names[reference]["mediaType"]
        self.faults: dict[str, Any] = {}
        self.log: list[Any] = []
        self.slow = 0
        # With a realm, requests need the token that `/token` there gives; `asked` has what it was asked with.
        self.realm: str | None = None
        self.asked: list[Any] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: Any) -> None:
                pass

            def answer(
                self, data: bytes, start: int = 0, length: int | None = None, kind: str = "application/octet-stream"
            ) -> None:
                self.send_response(206 if start else 200)
                if start:
                    self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data) - start if length is None else length))
                self.end_headers()

            def json(self, status: Any, value: Any, *headers: Any) -> None:
                body = json.dumps(value).encode()
                self.send_response(status)
                for name, text in [("Content-Length", str(len(body))), *headers]:
                    self.send_header(name, text)
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self) -> Any:
                outer.log.append((self.path, self.headers.get("Range")))
                if self.path.startswith("/token"):
                    outer.asked.append((self.path, self.headers.get("Authorization")))
                    return self.json(200, {"token": "abc"})
                if outer.realm and self.headers.get("Authorization") != "Bearer abc":
                    challenge = f'Bearer realm="{outer.realm}/token",service="tests",scope="x"'
                    return self.json(401, {"errors": [{"code": "UNAUTHORIZED"}]}, ("WWW-Authenticate", challenge))
                parts = self.path.split("/")
                start = int((self.headers.get("Range") or "bytes=0-")[6:].split("-")[0])
                try:
                    if parts[-2] == "manifests":
                        data, key, kind = outer.manifest, "manifest", outer.media_type
                    else:
                        data, key, kind = (blobs / parts[-1][7:]).read_bytes(), parts[-1], "application/octet-stream"
                    fault = outer.faults.get(key)
                    if fault and fault(self, data, start):
                        return None
                    self.answer(data, start, kind=kind)
                    view = memoryview(data)[start:]
                    step = 1 << 16 if outer.slow else len(view) or 1
                    for i in range(0, len(view), step):
                        self.wfile.write(view[i : i + step])
                        time.sleep(outer.slow)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        if tls:
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.host = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def parsed(self) -> Any:
        return json.loads(self.manifest)

    def stop(self) -> None:
        self.server.shutdown()
        self.server.server_close()
