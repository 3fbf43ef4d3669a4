"""Keepers are killed; programs started in their domains (exec) go on: no byte of their output is lost or comes twice,
their input comes once, codes are right, terminals and signals work.

DOPPEL_KEEPER_KILLS says how often (`make soak`: 200).
"""

import base64
import hashlib
import json
import os
import random
import signal
import threading
import time

import pytest
from conftest import eventually, output_of
from test_keeper_kills import check, kill_keeper, own, start, the_keeper  # noqa: F401 (`own` is a fixture)

KILLS = int(os.environ.get("DOPPEL_KEEPER_KILLS", "30"))
LINES = """
trap 'over=1' TERM
n=0
while [ -z "$over" ]; do
  for _ in 1 2 3 4 5 6 7 8; do echo "out $n"; echo "err $n" >&2; n=$((n + 1)); done
  usleep 5000
done
echo "end $n"
exit 11
"""
TERMINAL = """
trap 'stty size' WINCH
trap 'echo over; exit 4' TERM
echo ready
while :; do usleep 5000; done
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def call(d, method, path, body=b""):
    """A request that may take as long as it likes; its answer, and its bytes or lines as they come."""
    connection = d.connection(timeout=600)
    headers = {"content-type": "application/octet-stream" if isinstance(body, bytes) else "application/json"}
    connection.request(method, path, body if isinstance(body, bytes) else json.dumps(body), headers)
    return connection.getresponse()


def begin(d, command, name="b0", **more):
    answer = call(d, "POST", f"/v1/domains/{name}/exec", {"command": command, **more})
    assert answer.status < 300, answer.read()
    return json.loads(answer.read())["id"]


class Reader(threading.Thread):
    """Reads what a program prints until it ends."""

    def __init__(self, d, exec_id):
        super().__init__()
        self.d, self.id, self.out, self.err, self.code, self.lost = d, exec_id, bytearray(), bytearray(), None, 0
        self.start()

    def run(self):
        for line in call(self.d, "GET", f"/v1/execs/{self.id}/output"):
            item = json.loads(line)
            if item["type"] in ("stdout", "stderr"):
                (self.out if item["type"] == "stdout" else self.err).extend(base64.b64decode(item["data"]))
            elif item["type"] == "exit":
                self.code = item["exit_code"], item.get("reason")
            else:
                self.lost += 1


class Echo(threading.Thread):
    """Gives `cat` bytes without a pattern until it is told to end, and then their end."""

    def __init__(self, d):
        super().__init__()
        self.d, self.id = d, begin(d, ["sh", "-c", "cat; exit 7"], stdin=True)
        self.reader, self.sent, self.bytes, self.over = Reader(d, self.id), hashlib.sha256(), 0, False
        self.start()

    def run(self):
        while not self.over:
            data = random.randbytes(random.choice((1, 100, 5000, 150_000)))
            self.sent.update(data)
            self.bytes += len(data)
            answer = call(self.d, "POST", f"/v1/execs/{self.id}/input", data)
            assert answer.status < 300, answer.read()
            time.sleep(0.002)
        assert call(self.d, "POST", f"/v1/execs/{self.id}/input?close=true").status < 300

    def end(self):
        self.over = True
        self.join()
        self.reader.join()
        assert self.reader.code == (7, None) and not self.reader.lost
        assert len(self.reader.out) == self.bytes and hashlib.sha256(self.reader.out).digest() == self.sent.digest()
        return self.bytes


class Short(threading.Thread):
    """A program that is started about when the keeper dies, and may end when there is none."""

    def __init__(self, d, code):
        super().__init__()
        self.d, self.code, self.result = d, code, None
        self.start()

    def run(self):
        time.sleep(random.random() * 0.02)
        script = (
            f"echo only; usleep {random.choice((0, 0, 5000, random.randrange(100_000)))}; echo error >&2; exit "
            f"{self.code}"
        )
        reader = Reader(self.d, begin(self.d, ["sh", "-c", script]))
        reader.join()
        self.result = bytes(reader.out), bytes(reader.err), reader.code

    def check(self):
        self.join()
        assert self.result == (b"only\n", b"error\n", (self.code, None)), self.result


class Files(threading.Thread):
    """Writes files and reads them again, which are programs of the guest kernel."""

    def __init__(self, d):
        super().__init__()
        self.d, self.over, self.count, self.failed = d, False, 0, None
        self.start()

    def run(self):
        try:
            while not self.over:
                data = random.randbytes(1 << 20)
                answer = call(self.d, "PUT", "/v1/domains/b0/files?path=/tmp/x", data)
                assert answer.status < 300, answer.read()
                assert call(self.d, "GET", "/v1/domains/b0/files?path=/tmp/x").read() == data
                self.count += 1
        except Exception as error:
            self.failed = error


@pytest.mark.parametrize("kind", ["para", "paene"])
def test_programs_outlive_their_keepers(own, kind):
    kills = KILLS if kind == "para" else max(10, KILLS // 10)
    start(own, "b0", "exec sleep 100000", kind=kind)
    lines = Reader(own, begin(own, ["sh", "-c", LINES]))
    terminal = Reader(own, begin(own, ["sh", "-c", TERMINAL], tty=True))
    echo, files = Echo(own), Files(own)
    eventually(lambda: b"ready" in terminal.out and lines.out, "they run")
    count, took = 0, []
    for k in range(kills):
        short = [Short(own, (5, 6, 40 + k % 100)[i]) for i in range(3)]
        time.sleep(random.random() * 0.03)
        took.append(kill_keeper(own))
        own.post(f"/v1/execs/{terminal.id}/resize", {"rows": 20 + k, "columns": 90 + k}).ok()
        size = f"{20 + k} {90 + k}\r\n".encode()
        eventually(lambda: size in terminal.out, "it has its size")
        for one in short:
            one.check()
            count += 1
    own.post(f"/v1/execs/{lines.id}/kill", {"signal": "TERM"}).ok()
    own.post(f"/v1/execs/{terminal.id}/kill", {"signal": "TERM"}).ok()
    lines.join()
    terminal.join()
    files.over = True
    files.join()
    assert not files.failed, files.failed
    assert (lines.code, lines.lost, terminal.code) == ((11, None), 0, (4, None))
    printed = check(bytes(lines.out), "out")
    assert printed == check(bytes(lines.err), "err") and lines.out.endswith(f"end {printed}\n".encode())
    assert bytes(terminal.out).endswith(b"over\r\n")
    print(
        f"{kind}: {kills} kills, {count} short programs, {printed} lines, {echo.end()} bytes both ways, {files.count} "
        "files of 1 MiB"
    )
    own.delete("/v1/domains/b0?force=true").ok()
    eventually(lambda: not own.kept(), "all processes are gone")


@pytest.mark.parametrize("kind", ["para", "paene"])
def test_what_nobody_reads_and_who_cannot_run(own, kind):
    start(own, "b0", "exec sleep 100000", kind=kind)
    # Ends when nobody looks, and nobody has read any of it yet: more than rings and windows hold.
    late = begin(own, ["sh", "-c", "dd if=/dev/zero bs=1k count=3000 2>/dev/null; exit 9"])
    for _ in range(3):
        kill_keeper(own)
    out, _, code = output_of(own.get(f"/v1/execs/{late}/output").lines)
    assert (len(out), set(out), code) == (3000 << 10, {0}, 9)
    # A program that is not there is refused, whichever keeper says so.
    answers = []
    for _ in range(3):
        ask = threading.Thread(target=lambda: answers.append(own.post("/v1/domains/b0/exec", {"command": ["nowhere"]})))
        ask.start()
        kill_keeper(own)
        ask.join()
    assert [(a.status, a.json["code"]) for a in answers] == [
        answers[0].problem(400, "command_not_found") and (400, "command_not_found")
    ] * 3
    # Programs that end with their domain while there is no keeper.
    waits = Reader(own, begin(own, ["sh", "-c", "echo here; exec sleep 100000"]))
    eventually(lambda: waits.out, "it runs")
    keeper = the_keeper(own)
    os.kill(keeper, signal.SIGSTOP)
    os.kill(own.get("/v1/domains/b0").ok()["pid"], signal.SIGKILL)
    os.kill(keeper, signal.SIGKILL)
    waits.join()
    assert (bytes(waits.out), waits.code[0]) == (b"here\n", 137)


def test_what_is_read_while_a_keeper_comes_is_told(own):
    """A program whose output nobody takes waits. What is taken while a keeper is greeted counts, too."""
    start(own, "b0", "exec sleep 100000")
    much = Reader(own, begin(own, ["sh", "-c", "while :; do dd if=/dev/zero bs=64k count=16 2>/dev/null; done"]))
    for _ in range(20):
        before = len(much.out)
        # Until as much waits as may.
        eventually(lambda: len(much.out) > before + (4 << 20), "it goes on")
        time.sleep(random.random() * 0.01)
        kill_keeper(own)
    own.delete("/v1/domains/b0?force=true").ok()
    much.join()


def test_programs_of_a_supervisor_that_died_are_hung_up(own):
    start(own, "b0", "exec sleep 100000")
    begin(own, ["sh", "-c", "trap 'echo hung >/tmp/hung; exit' HUP; while :; do usleep 10000; done"], tty=True)
    own.kill()
    os.kill(the_keeper(own), signal.SIGKILL)
    own.start()
    eventually(lambda: own.get("/v1/domains/b0/files?path=/tmp/hung").status == 200, "it is hung up")
