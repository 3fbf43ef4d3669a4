"""A server in the runtime, clients on the host: TCP streams and requests, nginx under wrk, Redis pipelined.

Natively the server listens on the host's loopback; Doppel publishes its port there (the network service domain between
them); runc and runsc get the host's network, which is the best they can do.
"""
import os
import signal
import socket
import subprocess
import time

from harness.network import free_port, on_host
from harness.runtimes import OWN, Failed, Native

UNIT = "/s"
REPEATS = 3
TARGETS = {
    "published: TCP stream in, 64 KB writes": 0.95,
    "published: TCP stream out, 64 KB writes": 0.95,
    "published: TCP request": 1.5,
    "published: nginx, 1 KB": 0.9,
    "published: Redis pipelined SET": 0.9,
    "published: Redis pipelined GET": 0.9,
}
NGINX = """
mkdir -p /tmp/n/www /tmp/n/t && cd /tmp/n && head -c 1024 /dev/urandom >www/1k
cat >conf <<'C'
worker_processes 2; user root; pid /tmp/n/pid; error_log /tmp/n/error.log; daemon off;
events { worker_connections 512; }
http {
    access_log off; sendfile on; tcp_nopush on; keepalive_requests 10000000;
    client_body_temp_path t/b; proxy_temp_path t/p; fastcgi_temp_path t/f; uwsgi_temp_path t/u; scgi_temp_path t/s;
    server { listen PORT; root /tmp/n/www; }
}
C
exec nginx -p /tmp/n -c /tmp/n/conf -e /tmp/n/error.log
"""
REDIS = "exec redis-server --port PORT --bind 0.0.0.0 --protected-mode no --save '' --dir /tmp --loglevel warning"


class Server:
    """A server in a runtime; it listens at `port` of the host while this is entered."""

    # Where it is reached, and what comes before its command.
    address, enter = "127.0.0.1", ()

    def __init__(self, runtime, *command, image, env=None, out=subprocess.DEVNULL):
        self.out = out
        self.env = {**os.environ, **(env or {})}
        self.port = free_port()
        # Only Doppel's servers have a port space of their own.
        own = runtime.name in ("doppel", "paene")
        inside = 7000 if own else self.port
        command = [c.replace("PORT", str(inside)) for c in command]
        self.runtime = on_host(runtime)
        self.argv = self.runtime.argv(*command, image=image)
        if own:
            self.argv[2:2] = ["-p", f"{self.address}:{self.port}:{inside}"]
        self.argv = [*self.enter, *self.argv]

    def listens(self):
        """Whether it takes connections; an OSError if it does not yet."""
        with socket.create_connection((self.address, self.port), timeout=30) as probe:
            # A published port takes connections before its server does. Who comes too early waits.
            probe.settimeout(0.2)
            try:
                probe.recv(1)
            except TimeoutError:
                pass

    def __enter__(self):
        self.process = subprocess.Popen(
            self.argv,
            stdin=subprocess.DEVNULL,
            stdout=self.out,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env=self.env,
        )
        end = time.monotonic() + 30
        while True:
            try:
                self.listens()
                return self
            except OSError:
                if self.process.poll() is not None or time.monotonic() > end:
                    self.__exit__()
                    raise Failed(f"{self.runtime.name}: {self.argv} does not listen") from None
                time.sleep(0.02)

    def __exit__(self, *_):
        self.runtime.clean()
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def measure(runtime, opt):
    native = Native(runtime.roots)
    ms = 200 if opt.quick else 1500
    rows = {}

    def client(*command, image=OWN):
        return native.run(*command, image=image, timeout=120)

    with Server(runtime, "/net", "serve", "PORT", image=OWN) as s:
        port = str(s.port)
        client("/net", "echo", port, "20")
        rows["published: TCP stream in, 64 KB writes"] = float(client("/net", "sink", port, str(ms))) / 1e6, "MB/s"
        rows["published: TCP stream out, 64 KB writes"] = float(client("/net", "source", port, str(ms))) / 1e6, "MB/s"
        rows["published: TCP request"] = float(client("/net", "echo", port, str(ms))), "ns"
    if runtime.name in ("native", "doppel") and not opt.quick:
        # What polling instead of sleeping is worth; natively nobody polls.
        with Server(runtime, "/net", "serve", "PORT", image=OWN, env={"DOPPEL_NO_POLLING": "1"}) as s:
            port = str(s.port)
            client("/net", "echo", port, "20")
            for name, way in ("in", "sink"), ("out", "source"):
                rows[f"published, without polling: TCP stream {name}, 64 KB writes"] = (
                    float(client("/net", way, port, str(ms))) / 1e6,
                    "MB/s",
                )
            rows["published, without polling: TCP request"] = float(client("/net", "echo", port, str(ms))), "ns"
    if opt.quick:
        return rows
    with Server(runtime, "/bin/bash", "-c", NGINX, image="servers") as s:
        url = f"http://127.0.0.1:{s.port}/1k"
        client("/usr/bin/curl", "-sf", "--retry", "20", "--retry-all-errors", "-o", "/dev/null", url, image="servers")
        out = client("/usr/bin/wrk", "-t", "1", "-c", "32", "-d", "3", url, image="servers")
        if "Socket errors" in out or "Non-2xx" in out:
            raise Failed(f"{runtime.name}: {out}")
        rows["published: nginx, 1 KB"] = float(
            next(line.split()[1] for line in out.splitlines() if line.startswith("Requests/sec"))
        )
    with Server(runtime, "/bin/bash", "-c", REDIS, image="servers") as s:
        bench = [
            "/usr/bin/redis-benchmark",
            "-p",
            str(s.port),
            "-c",
            "50",
            "--csv",
            "-t",
            "set,get",
            "-P",
            "16",
            "-n",
            "300000",
        ]
        for line in client(*bench, image="servers").splitlines():
            name, _, rest = line.replace('"', "").partition(",")
            if name in ("SET", "GET"):
                rows[f"published: Redis pipelined {name}"] = float(rest.split(",")[0])
    return rows
