"""Rules of networks: in order, by name, inbound, logged, and changed while connections are open."""
import base64
import http.client
import socket
import struct
import threading
import time

import pytest
from conftest import eventually


@pytest.fixture
def made(supervisor, busybox):
    """Makes domains that end with the test."""
    names = []

    def make(name, command, **network):
        names.append(name)
        body = {"image": busybox, "name": name, "command": ["sh", "-c", command], "network": {"kind": "nat", **network}}
        return supervisor.post("/v1/domains", body, start=True).ok()["domain"]

    yield make
    for name in names:
        supervisor.delete(f"/v1/domains/{name}", force=True)


@pytest.fixture
def listener():
    """A server of the host's loopback that says hello; once it is told to stay it keeps connections open."""
    server = socket.create_server(("127.0.0.1", 0))
    stay, taken = threading.Event(), []

    def serve():
        while True:
            try:
                connection = server.accept()[0]
            except OSError:
                return
            connection.sendall(b"hello\n")
            if stay.is_set():
                taken.append(connection)
            else:
                connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    yield server.getsockname()[1], stay, taken
    server.shutdown(socket.SHUT_RDWR)
    thread.join()
    server.close()
    for connection in taken:
        connection.close()


@pytest.fixture
def name_server():
    """A name server of the host that says 10.88.0.1 to every question for an address."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))

    def serve():
        while True:
            query, caller = server.recvfrom(512)
            if query == b"end":
                return
            end = query.index(0, 12) + 5
            kind = struct.unpack(">H", query[end - 4 : end - 2])[0]
            record = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + bytes([10, 88, 0, 1])
            found = record if kind == 1 else b""
            server.sendto(
                query[:2] + struct.pack(">HHHHH", 0x8180, 1, bool(found), 0, 0) + query[12:end] + found, caller
            )

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"127.0.0.1:{server.getsockname()[1]}"
    server.sendto(b"end", server.getsockname())
    thread.join()
    server.close()


def printed(supervisor, name):
    lines = supervisor.get(f"/v1/domains/{name}/logs").lines
    return b"".join(base64.b64decode(line["data"]) for line in lines if line["type"] == "stdout").decode()


def rule(action, pattern, **more):
    return {"action": action, "pattern": pattern, **more}


def connects(supervisor, name, address, port):
    """Whether a program of a domain gets the server's hello."""
    p = supervisor.cli("exec", name, "sh", "-c", f"nc -w 10 {address} {port} < /dev/null")
    return p.stdout == b"hello\n"


def test_the_first_rule_decides_and_changes_are_live(supervisor, made, listener):
    port, *_ = listener
    allow, deny = rule("allow", "10.88.0.0/16"), rule("deny", f"10.88.0.1:{port}/tcp")
    made("rules-order", "exec sleep 1000", rules=[deny, allow])
    assert not connects(supervisor, "rules-order", "10.88.0.1", port)
    shown = supervisor.patch("/v1/domains/rules-order", {"network": {"rules": [allow, deny]}}).ok()
    assert [r["action"] for r in shown["config"]["network"]["rules"]] == ["allow", "deny"]
    assert connects(supervisor, "rules-order", "10.88.0.1", port)
    p = supervisor.cli("update", "--deny", f"10.88.0.1:{port}", "--allow", "10.88.0.1", "rules-order")
    assert p.returncode == 0, p.stderr
    assert not connects(supervisor, "rules-order", "10.88.0.1", port)
    p = supervisor.cli("update", "--no-rules", "rules-order")
    assert p.returncode == 0, p.stderr
    assert not connects(supervisor, "rules-order", "10.88.0.1", port)
    # They are the same for its next run.
    supervisor.patch("/v1/domains/rules-order", {"network": {"allow": ["10.88.0.1"]}}).ok()
    supervisor.post("/v1/domains/rules-order/restart", {"timeout_seconds": 0}).ok()
    assert connects(supervisor, "rules-order", "10.88.0.1", port)
    why = supervisor.patch("/v1/domains/rules-order", {"network": {"rules": [rule("deny", "any:x")]}})
    assert "any:x" in why.problem(400, "invalid_request")
    assert connects(supervisor, "rules-order", "10.88.0.1", port)


def test_open_connections_that_a_new_rule_forbids_end(supervisor, made, listener):
    port, stay, taken = listener
    stay.set()
    made("rules-cut", f"nc 10.88.0.1 {port}; echo over; exec sleep 1000", allow=[f"10.88.0.1:{port}"])
    eventually(lambda: "hello" in printed(supervisor, "rules-cut"), "not connected")
    supervisor.patch(
        "/v1/domains/rules-cut", {"network": {"rules": [rule("deny", "192.0.2.1")], "allow": ["10.88.0.1"]}}
    ).ok()
    [connection] = taken
    connection.sendall(b"still\n")
    eventually(lambda: "still" in printed(supervisor, "rules-cut"), "cut although it is allowed")
    supervisor.patch("/v1/domains/rules-cut", {"network": {}}).ok()
    eventually(lambda: "over" in printed(supervisor, "rules-cut"), "not cut")
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        connection.sendall(b"late\n")


def test_rules_that_change_while_a_domain_sleeps(supervisor, made, listener):
    port, *_ = listener
    made("rules-asleep", "exec sleep 1000", allow=["10.88.0.1"])
    assert connects(supervisor, "rules-asleep", "10.88.0.1", port)
    supervisor.post("/v1/domains/rules-asleep/hibernate").ok()
    supervisor.patch("/v1/domains/rules-asleep", {"network": {}}).ok()
    supervisor.post("/v1/domains/rules-asleep/wake").ok()
    assert not connects(supervisor, "rules-asleep", "10.88.0.1", port)


def test_rules_go_by_names_that_the_domain_was_told(supervisor, made, listener, name_server):
    port, *_ = listener
    rules = [rule("deny", "*.blocked.test")]
    made("rules-names", "exec sleep 1000", rules=rules, allow=["10.88.0.1"], dns=name_server)
    assert connects(supervisor, "rules-names", "open.test", port)
    assert not connects(supervisor, "rules-names", "www.blocked.test", port)
    # A name that anybody may have point anywhere opens nothing that is private.
    supervisor.patch("/v1/domains/rules-names", {"network": {"rules": [rule("allow", "open.test")]}}).ok()
    assert not connects(supervisor, "rules-names", "open.test", port)


def test_callers_are_refused_by_rules(supervisor, made):
    serve = "echo here > /tmp/index.html; exec httpd -f -p 80 -h /tmp"
    mapping = {"port": 80, "host_address": "127.0.0.1"}
    domain = made("rules-in", serve, ports=[mapping], rules=[rule("deny", "127.0.0.0/8:80", direction="in")])
    port = domain["network"]["ports"][0]["host_port"]

    def page():
        c = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            c.request("GET", "/")
            return c.getresponse().read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            c.close()

    listens = ["sh", "-c", "grep -q ':0050 .* 0A ' /proc/net/tcp /proc/net/tcp6"]
    eventually(lambda: supervisor.cli("exec", "rules-in", *listens).returncode == 0, "it does not listen")
    assert page() is None
    supervisor.patch(
        "/v1/domains/rules-in", {"network": {"rules": [rule("deny", "127.0.0.0/8:81", direction="in")]}}
    ).ok()
    assert page() == b"here\n"


def test_what_rules_decide_is_logged(supervisor, made, listener, tmp_path):
    port, *_ = listener
    since = f"{time.time():.3f}"
    file = tmp_path / "rules.toml"
    file.write_text(
        f'[[rule]]\naction = "allow"\npattern = "10.88.0.1:{port}"\nlog = true\n'
        '[[rule]]\naction = "deny"\npattern = "169.254.0.0/16"\nlog = true\n'
    )
    made("rules-log", "exec sleep 1000")
    assert supervisor.cli("update", "--rules", str(file), "rules-log").returncode == 0
    assert connects(supervisor, "rules-log", "10.88.0.1", port)
    assert not connects(supervisor, "rules-log", "169.254.169.254", 80)

    def told():
        lines = supervisor.get("/v1/events", since=since, until=f"{time.time():.3f}", subject="rules-log").lines
        found = [e["attributes"] for e in lines if e["kind"] == "firewall"]
        return found if len(found) == 2 else None

    allowed, denied = eventually(told, "no events")
    assert allowed == {
        "action": "allow",
        "direction": "out",
        "protocol": "tcp",
        "peer": f"10.88.0.1:{port}",
        "port": str(port),
    }
    assert (denied["action"], denied["peer"]) == ("deny", "169.254.169.254:80")


def test_rates_change_while_bytes_wait(supervisor, made):
    total = 2 << 20
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        port = server.getsockname()[1]
        command = f"head -c {total} /dev/zero | nc 10.88.0.1 {port}"
        made("slow", command, allow=["10.88.0.1"], rate={"sent": 1024})
        connection = server.accept()[0]
        with connection:
            connection.settimeout(60)
            got = len(connection.recv(1 << 20))
            # The rest would take half an hour.
            domain = supervisor.patch("/v1/domains/slow", {"network": {"rate": {}}}).ok()
            while got < total and (data := connection.recv(1 << 20)):
                got += len(data)
    assert got == total
    assert domain["config"]["network"]["allow"] == ["10.88.0.1"], "rules are as they were"
    answer = supervisor.patch("/v1/domains/slow", {"network": {"rate": {"received": 1023}}})
    assert "network.rate" in answer.problem(400, "invalid_request")
