"""Hostile loads: a fork bomb and memory hogs under --memory leave the host unharmed."""
import subprocess
import time

from conftest import descendants, domain_cgroups, eventually, still_there


def free_memory():
    for line in open("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10


def test_memory_hog_anonymous(domain, need):
    need("hog")
    r = domain.run("/t/hog", "anon", opts=["--memory", "128m"], timeout=120)
    assert (r.code == 0 and r.out.startswith("refused after")) or r.code in (125, 137), (r.code, r.out, r.err)
    if r.out:
        assert int(r.out.split()[2]) <= 160


def test_memory_hog_files(domain, need):
    need("hog")
    r = domain.run("/t/hog", "shm", opts=["--memory", "128m"], timeout=120)
    assert (r.code == 0 and r.out.startswith("refused after")) or r.code in (125, 137), (r.code, r.out, r.err)


def test_memory_hog_leaves_other_domain_alone(domain, need):
    need("hog")
    other = domain.start("cat", image="busybox")
    hog = domain.start("/t/hog", "anon", opts=["--memory", "96m"])
    hog.communicate(timeout=120)
    out, _ = other.communicate(b"still here", timeout=60)
    assert out == b"still here" and other.returncode == 0


def test_exec_without_room_says_so(domain, programs):
    """Before there is no way back: the program that wants to start another is told, and lives."""
    assert domain.run("/t/execroom", opts=["--memory", "64m"]).ok() == "Cannot allocate memory 0\n"


def test_fork_bomb(domain, need):
    need("hog")
    free, cgroups = free_memory(), domain_cgroups()
    p = domain.start("/t/hog", "fork", opts=["--memory", "256m"], stdin=subprocess.DEVNULL)
    seen, counts = {}, [0, 0, 0]
    end = time.monotonic() + 8
    # Until it has no more room: it is as large as it was a second ago.
    while time.monotonic() < end and p.poll() is None and not 0 < counts[-1] <= counts[-3]:
        time.sleep(0.5)
        now = descendants(p.pid)
        seen.update(now)
        counts.append(len(now))
        assert len(now) < 6000
        subprocess.run(["true"], check=True, timeout=60)  # the host still starts programs
    p.kill()
    p.communicate(timeout=60)
    assert eventually(lambda: not still_there(seen)), f"{len(still_there(seen))} processes left"
    # What a domain leaves behind whose runner was killed, a later start sweeps.
    swept = lambda: domain.run("true", image="busybox").code == 0 and domain_cgroups() <= cgroups
    assert eventually(swept), domain_cgroups() - cgroups
    assert eventually(lambda: free_memory() > free - (200 << 20))


def test_descriptor_exhaustion(domain):
    code = (
        "import os\nfds=[]\ntry:\n  while True: fds.append(os.open('/dev/null', 0))\nexcept OSError as e: "
        "print(e.errno, len(fds) > 100)\nfor f in fds: os.close(f)\nprint(os.system('true'))"
    )
    assert domain.run("python3", "-c", code).ok() == "24 True\n0\n"
