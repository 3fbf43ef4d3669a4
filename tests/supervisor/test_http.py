"""The HTTP server of doppeld: what it says of itself, refusals, hostile clients, TCP with tokens and TLS, signals."""
import http.client
import json
import os
import re
import signal
import socket
import ssl
import stat
import subprocess
import threading
import time

import pytest
from conftest import DOPPELD, ROOT, eventually


def raw(supervisor, data, wait=60, enough=None):
    """Sends bytes as they are; gives what comes back until it has `enough`, the server closes, or `wait` seconds bring
    nothing."""
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(wait)
    s.connect(str(supervisor.socket))
    got = b""
    try:
        s.sendall(data)
    except ConnectionError:
        pass  # refused before all was sent; the answer is there
    try:
        while not (enough and enough in got) and (piece := s.recv(65536)):
            got += piece
    except (ConnectionError, TimeoutError):
        pass
    s.close()
    return got


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_says_what_it_is(supervisor):
    assert supervisor.get("/v1/ping").ok(200) == {"ok": True}
    version = supervisor.get("/v1/version").ok(200)
    assert version["api"] == "v1" and re.fullmatch("[0-9a-f]{16}", version["kernel"])
    document = supervisor.get("/v1/openapi.json").ok(200)
    assert document["openapi"] == "3.1.0" and len(document["paths"]) > 40


def test_every_path_is_served(supervisor):
    """Whatever the document lists is routed: it may be refused, but not for want of a path."""
    document = supervisor.get("/v1/openapi.json").ok(200)
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if path in ("/v1/events", "/v1/domains/prune", "/v1/images/prune"):
                continue
            query = {
                p["name"]: "/none" for p in operation.get("parameters", []) if p["in"] == "query" and p["required"]
            }
            answer = supervisor.ask(
                method.upper(),
                re.sub(r"\{\w+\}", "no-such", path),
                b"" if method in ("post", "put", "patch") else None,
                **query,
            )
            if answer.status >= 400:
                assert answer.json["code"] not in ("path_not_found", "method_not_allowed"), (method, path)
                assert "parameters" not in answer.json["detail"], (method, path, answer.json)


def test_refusals_are_problems(supervisor):
    assert "/nothing" in supervisor.get("/nothing").problem(404, "path_not_found")
    answer = supervisor.delete("/v1/ping")
    assert "GET does" in answer.problem(405, "method_not_allowed") and answer.headers["allow"] == "GET"
    assert "image" in supervisor.post("/v1/domains", {}).problem(400, "invalid_request")
    assert "EOF" in supervisor.post("/v1/domains", '{"image":').problem(400, "invalid_request")
    assert "colour" in supervisor.post("/v1/domains", {"image": "x", "colour": 1}).problem(400, "invalid_request")
    assert "resources.cpus: " in supervisor.post("/v1/domains", {"image": "x", "resources": {"cpus": "two"}}).problem(
        400, "invalid_request"
    )
    assert "all: " in supervisor.get("/v1/domains?all=yes").problem(400, "invalid_request")
    assert "colour" in supervisor.get("/v1/domains?colour=red").problem(400, "invalid_request")
    assert "larger" in supervisor.post("/v1/domains", b" " * (2 << 20)).problem(413, "too_large")


def test_metrics_count_requests(supervisor):
    def count():
        found = re.search(
            r'doppel_http_requests_total\{method="GET",path="/v1/version",status="200"\} (\d+)',
            supervisor.get("/metrics").body.decode(),
        )
        return int(found[1]) if found else 0

    before = count()
    for _ in range(3):
        supervisor.get("/v1/version").ok(200)
    assert count() == before + 3
    text = supervisor.get("/metrics").body.decode()
    assert 'doppel_http_request_seconds_bucket{method="GET",path="/v1/version",le="+Inf"}' in text
    for line in text.splitlines():
        assert line.startswith("#") or re.fullmatch(r"[a-z_]+(\{.*\})? [-+0-9.eEInfNa]+", line), line


def test_one_connection_serves_many_requests(supervisor):
    connection = supervisor.connection()
    for _ in range(50):
        connection.request("GET", "/v1/ping")
        assert json.loads(connection.getresponse().read()) == {"ok": True}
    connection.close()


def test_200_clients_at_once(supervisor):
    problems = []

    def client():
        try:
            connection = supervisor.connection()
            for _ in range(10):
                connection.request("GET", "/v1/version")
                response = connection.getresponse()
                if response.status != 200 or "kernel" not in json.loads(response.read()):
                    problems.append(response.status)
            connection.close()
        except Exception as e:
            problems.append(e)

    threads = [threading.Thread(target=client) for _ in range(200)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    assert not problems, problems[:5]


@pytest.mark.parametrize(
    "data",
    [
        b"\0\1\2\3\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET /v1/ping HTTP/9.9\r\n\r\n",
        b"GET /v1/ping HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"GET /v1/ping HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /v1/domains HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"GET /v1/ping HTTP/1.1\r\nBad Name: x\r\n\r\n",
        b"GET /v1/ping HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"GET /" + b"a" * (128 << 10) + b" HTTP/1.1\r\n\r\n",
        b"GET /v1/ping HTTP/1.1\r\nX: " + b"a" * (128 << 10) + b"\r\n\r\n",
    ],
    ids=["bytes", "short", "version", "length", "lengths", "coding", "name", "fields", "target", "field"],
)
def test_what_is_no_http_is_refused(supervisor, data):
    got = raw(supervisor, data)
    assert re.match(rb"HTTP/1\.[01] (4\d\d|505)", got), got[:200]
    supervisor.get("/v1/ping").ok(200)


@pytest.mark.parametrize(
    "chunks",
    [
        b"zz\r\nabc\r\n0\r\n\r\n",
        b"-1\r\nabc\r\n0\r\n\r\n",
        b"ffffffffffffffffffff\r\nabc",
        b"3\r\nabcdef\r\n0\r\n\r\n",
    ],
    ids=["size", "negative", "huge", "longer"],
)
def test_bad_chunks_are_refused(supervisor, chunks):
    head = b"POST /v1/domains HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    got = raw(supervisor, head + chunks)
    assert re.match(rb"HTTP/1\.1 400", got), got[:200]
    supervisor.get("/v1/ping").ok(200)


@pytest.mark.parametrize("chunks,end", [(40, b"0\r\n\r\n"), (400, b"")], ids=["large", "endless"])
def test_large_bodies_end_at_the_limit(supervisor, chunks, end):
    head = b"POST /v1/domains HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    got = raw(supervisor, head + (b"10000\r\n" + b" " * 0x10000 + b"\r\n") * chunks + end, enough=b"\r\n")
    assert b"413" in got.split(b"\r\n")[0], got[:200]


def test_slow_heads_are_cut_off(new_doppeld):
    one = new_doppeld(config="[http]\nhead_seconds = 1.0\nconnections = 50\n").start()
    slow = []
    for _ in range(49):
        s = socket.socket(socket.AF_UNIX)
        s.connect(str(one.socket))
        s.sendall(b"GET /v1/ping HTTP/1.1\r\nX-")
        slow.append(s)
    one.get("/v1/ping").ok(200)
    for s in slow:
        s.settimeout(60)
        while s.recv(1000):
            pass
        s.close()
    # A fifty-first waits its turn, and gets it.
    held = [one.connection() for _ in range(50)]
    for c in held:
        c.connect()
    one.get("/v1/ping").ok(200)
    for c in held:
        c.close()


def test_a_client_that_goes_away_frees_its_request(supervisor):
    """Streams nobody reads any more must not be kept: a thousand of them leave no descriptors behind."""
    fds = lambda: len(os.listdir(f"/proc/{supervisor.process.pid}/fd"))
    before = fds()
    for _ in range(1000):
        s = socket.socket(socket.AF_UNIX)
        s.connect(str(supervisor.socket))
        s.sendall(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n")
        s.close()
    # Connections are accepted in their order: when this one is served, none of them is in the backlog any more.
    supervisor.get("/v1/ping").ok()
    eventually(lambda: fds() <= before + 20, "they are closed")


def test_socket_is_for_its_owner_or_the_group(supervisor):
    mode = stat.S_IMODE(os.stat(supervisor.socket).st_mode)
    groups = [line.split(":")[0] for line in open("/etc/group")]
    assert mode == (0o660 if "doppel" in groups else 0o600)


def test_tcp_needs_token_and_tls(new_doppeld, tmp_path):
    port = free_port()
    tokens = tmp_path / "tokens"
    base = f'[tcp]\nlisten = "127.0.0.1:{port}"\ntokens = "{tokens}"\n'
    one = new_doppeld(config=base)
    # Without a token nothing listens at all.
    one.start(wait=False)
    assert one.process.wait(60) == 1 and "token" in one.logged()
    token = lambda *argv: subprocess.run(
        [DOPPELD, "token", "--config", str(one.config), *argv], capture_output=True, text=True
    )
    secret = token("add", "alice").stdout.strip()
    assert (
        secret.startswith("dpl_") and secret not in tokens.read_text() and stat.S_IMODE(tokens.stat().st_mode) == 0o600
    )
    assert token("add", "alice").returncode == 1
    assert token("list").stdout.split("\t")[0] == "alice"
    one.start()

    def status(authorization=None):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", "/v1/version", headers={"Authorization": authorization} if authorization else {})
        response = connection.getresponse()
        body = json.loads(response.read())
        if response.status != 200:
            assert body["code"] == "unauthorized" and response.headers["www-authenticate"] == "Bearer"
        return response.status

    assert status() == 401
    assert status("Bearer x") == 401
    assert status(f"Bearer {secret}") == 200
    # From its removal on it is refused, without a restart.
    bob = token("add", "bob").stdout.strip()
    assert token("rm", "alice").returncode == 0
    assert status(f"Bearer {secret}") == 401 and status(f"Bearer {bob}") == 200
    # Beyond loopback, TLS is a must.
    one.config.write_text(one.config.read_text().replace("127.0.0.1", "0.0.0.0"))
    check = subprocess.run([DOPPELD, "--config", str(one.config), "--check"], capture_output=True, text=True)
    assert check.returncode == 1 and "loopback" in check.stderr


def test_tls(new_doppeld, tmp_path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-keyout",
            key,
            "-out",
            cert,
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-addext",
            "subjectAltName=DNS:localhost,IP:127.0.0.1",
            "-addext",
            "basicConstraints=critical,CA:FALSE",
        ],
        capture_output=True,
    )
    if made.returncode != 0:
        pytest.skip("no openssl to make a certificate")
    port = free_port()
    one = new_doppeld(
        config=f'[tcp]\nlisten = "127.0.0.1:{port}"\ntokens = "{tmp_path}/tokens"\ncertificate = "{cert}"\nkey = '
               f'"{key}"\n'
    )
    secret = subprocess.run(
        [DOPPELD, "token", "--config", str(one.config), "add", "alice"], capture_output=True, text=True
    ).stdout.strip()
    one.start()
    context = ssl.create_default_context(cafile=str(cert))
    connection = http.client.HTTPSConnection("localhost", port, timeout=60, context=context)
    connection.request("GET", "/v1/version", headers={"Authorization": f"Bearer {secret}"})
    assert connection.getresponse().status == 200
    # A client that only connects does not keep others out; one without TLS gets no HTTP.
    idle = socket.create_connection(("127.0.0.1", port))
    plain = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with pytest.raises((http.client.HTTPException, OSError)):
        plain.request("GET", "/v1/version")
        plain.getresponse()
    idle.close()


def test_check_prints_what_counts(new_doppeld):
    one = new_doppeld(config="[log]\nlevel = 'debug'\n")
    run = lambda *argv: subprocess.run(
        [DOPPELD, "--config", str(one.config), "--check", *argv], capture_output=True, text=True
    )
    assert 'level = "debug"' in run().stdout
    assert 'level = "warn"' in run("--log-level", "warn").stdout
    one.config.write_text("[htpt]\n")
    bad = run()
    assert bad.returncode == 1 and "htpt" in bad.stderr
    example = subprocess.run(
        [DOPPELD, "--config", str(ROOT / "packaging/doppeld.toml"), "--check"], capture_output=True, text=True
    )
    assert example.returncode == 0, example.stderr


def test_signals(new_doppeld):
    one = new_doppeld(args=["--log-format", "json"]).start()
    # The last line may be on its way.
    logs = lambda: [
        json.loads(line)
        for line in one.logged().splitlines(keepends=True)
        if line.startswith("{") and line.endswith("\n")
    ]
    assert any(line["fields"]["message"] == "ready" for line in logs())
    assert not any(line["level"] == "DEBUG" for line in logs())
    one.config.write_text(one.config.read_text() + "[log]\nlevel = 'debug'\n")
    one.process.send_signal(signal.SIGHUP)
    deadline = time.monotonic() + 60
    while not any(line["level"] == "DEBUG" for line in logs()):
        assert time.monotonic() < deadline, one.logged()
        one.get("/v1/ping").ok(200)
        time.sleep(0.05)
    # A stream that is open does not keep it from ending.
    stream = one.connection()
    stream.request("GET", "/v1/events")
    assert one.stop() == 0 and not one.socket.exists()
    one.start()


def test_one_supervisor_only(new_doppeld):
    one = new_doppeld().start()
    second = subprocess.run([DOPPELD, "--config", str(one.config)], capture_output=True, text=True, timeout=60)
    assert second.returncode == 1 and "another doppeld" in second.stderr
    # What a killed one left is no obstacle.
    one.kill()
    assert one.socket.exists()
    one.start()


def test_socket_activation_and_notification(new_doppeld, tmp_path):
    one = new_doppeld()
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(str(tmp_path / "notify"))
    notify.settimeout(60)
    listener = socket.socket(socket.AF_UNIX)
    one.runtime.mkdir()
    listener.bind(str(one.socket))
    listener.listen(16)
    # A request from before it runs is answered by it.
    early = one.connection()
    early.request("GET", "/v1/ping")
    script = (
        'import os, sys; os.dup2(int(sys.argv[1]), 3); os.environ["LISTEN_PID"] = str(os.getpid()); '
        'os.execv(sys.argv[2], sys.argv[2:])'
    )
    fd = listener.fileno()
    env = {**os.environ, "LISTEN_FDS": "1", "NOTIFY_SOCKET": str(tmp_path / "notify")}
    log = open(one.dir / "log", "ab")
    one.process = subprocess.Popen(
        ["python3", "-c", script, str(fd), DOPPELD, "--config", str(one.config)],
        pass_fds=[fd, 3],
        env=env,
        stdout=log,
        stderr=log,
    )
    assert notify.recv(100) == b"READY=1", one.logged()
    assert json.loads(early.getresponse().read()) == {"ok": True}
    assert one.stop() == 0
    assert notify.recv(100) == b"STOPPING=1"
    assert one.socket.exists(), "the service manager's socket is its own"


def test_journal_format(new_doppeld):
    one = new_doppeld(env={"JOURNAL_STREAM": "8:1"}).start()
    assert re.search(r"^<6>.*ready", one.logged(), re.M), one.logged()
