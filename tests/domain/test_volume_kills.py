"""The storage service is killed while programs work on a volume.

They go on, nothing that was acknowledged is lost, nothing is done twice.
"""
import os
import pathlib
import signal
import subprocess
import threading

import pytest
from conftest import BUILD, DOPPEL, have_image
from processes import words

# At least so many times in a test.
KILLS = 3


def services(pid):
    """Processes of the storage service of a `doppel run`."""
    found = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            found += (task / "children").read_text().split()
        except OSError:
            continue
    return [int(p) for p in found if b"storage-service" in words(p)]


class Killer(threading.Thread):
    """Kills the storage service of a process again and again, at moments that nobody plans."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.kills, self.over = pid, 0, threading.Event()

    def run(self):
        while not self.over.wait(0.2 + (self.kills * 7 % 13) / 40):
            try:
                for p in services(self.pid):
                    os.kill(p, signal.SIGKILL)
                    self.kills += 1
            except OSError:
                # The one or the other has just ended.
                continue


@pytest.fixture
def killed(tmp_path):
    """Runs a script on the volume /v while its service is killed; gives what it wrote."""
    if not have_image("servers"):
        pytest.skip("no image servers: make test-images")
    tmp_path.chmod(0o777)

    def run(script, **env):
        options = [f"--env={k}={v}" for k, v in env.items()]
        volumes = ["-v", f"{tmp_path}:/v", "-v", f"{BUILD}/image/t:/t:ro"]
        command = [DOPPEL, "run", "--rm", *volumes, *options, "servers", "bash", "-c", script]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as p:
            killer = Killer(p.pid)
            killer.start()
            out, err = p.communicate(timeout=300)
            killer.over.set()
            killer.join()
        assert p.returncode == 0, err
        assert killer.kills >= KILLS, f"the service was killed {killer.kills} times only"
        return out

    return run


def test_reads_that_nobody_waits_for_are_right(killed, need):
    """32 at once by io_uring, past the pages: each gets its own bytes, once."""
    need("direct")
    assert killed("/t/direct /v/file 4").startswith("direct ok")


def test_no_acknowledged_transaction_is_lost(killed, tmp_path):
    *acknowledged, integrity, count = killed(
        """
        sqlite3 /v/db 'pragma journal_mode=wal; create table t(n integer primary key)' >/dev/null
        end=$((SECONDS + 5)) i=0
        while [ $SECONDS -lt $end ]; do i=$((i + 1)); sqlite3 /v/db "insert into t values($i)" && echo $i; done
        sqlite3 /v/db 'pragma integrity_check; select count(*) from t'
        """
    ).split()
    assert acknowledged and acknowledged == [str(i) for i in range(1, len(acknowledged) + 1)]
    assert (integrity, int(count)) == ("ok", len(acknowledged))


def test_nothing_is_done_twice(killed, tmp_path):
    """Appends, exclusive creations, renames and removals, each of which would show if it were done again."""
    script = """
        set -e
        cd /v; mkdir d; exec 3>>log; set -C
        end=$((SECONDS + 5)) i=0
        while [ $i -lt 10 ] || [ $SECONDS -lt $end ]; do
            i=$((i + 1))
            echo $i >&3
            : > d/new$i
            mv -n d/new$i d/old$i
            [ $i -le 5 ] || rm d/old$((i - 5))
            mkdir d/dir; rmdir d/dir
        done
        echo $i; ls d | wc -l
    """
    rounds, left = map(int, killed(script).split())
    assert left == 5
    assert (tmp_path / "log").read_text() == "".join(f"{i}\n" for i in range(1, rounds + 1))


def test_open_files_without_names_stay(killed):
    script = """
        set -e
        cd /v; head -c 3000000 /dev/urandom >f; sum=$(sha256sum <f)
        exec 3<f 4<>gone; rm f gone
        end=$((SECONDS + 5)) i=0
        while [ $SECONDS -lt $end ]; do
            cat /proc/self/fd/3 | sha256sum | grep -q "${sum%% *}"
            i=$((i + 1)); echo $i >&4
        done
        echo $i; wc -l </proc/self/fd/4
    """
    rounds, lines = map(int, killed(script).split())
    assert rounds == lines > 0


def test_programs_go_on_soon(killed):
    """The longest pause of a program that writes all the while, in ms: what a busy machine leaves of 100."""
    script = """
        exec 3>/v/log; last=$(date +%s%3N); worst=0
        end=$((last + 5000)); now=$last
        while [ $now -lt $end ]; do
            echo x >&3; now=${EPOCHREALTIME/./}; now=${now%???}
            [ $((now - last)) -le $worst ] || worst=$((now - last))
            last=$now
        done
        echo $worst
    """
    worst = int(killed(script))
    print(f"longest pause: {worst} ms")
    assert worst < 2000
