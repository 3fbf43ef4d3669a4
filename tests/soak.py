#!/usr/bin/env python3
"""Runs servers and stressors for a long time in one domain and looks for leaks: `make soak`.

    tests/soak.py [DOPPEL] [--seconds N] [--rounds N] [--only NAME]...

Every round runs the scripts of tests/domain/servers in a domain that lives through all rounds, stress-ng's main
stressors for N seconds each (60 if not said) and all others for a few, and cleans up inside. Two rounds warm up: freed
memory stays with the heap, so that it takes the busiest moment to know how much it needs. After each later round there
must be no more host processes than after the second, and no more memory in the arena (the guest kernel's heap), in the
page file (files and shared pages), or in all processes together, but for the slack below. What the arena holds of the
host is only shown: it is never given back.
"""
import argparse
import base64
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "domain"))
import store  # noqa: E402, F401
from conftest import descendants, domain_memory  # noqa: E402

SCRIPTS = HERE / "domain/servers"
LIB = (SCRIPTS / "lib.sh").read_text()
SERVERS = ["redis", "nginx", "postgres", "ssh", "rsync", "sqlite", "sysbench"]
MAIN = {
    "cpu": "cpu",
    "vm": "vm",
    "pipe": "pipe",
    "futex": "futex",
    "fork": "fork",
    "timer": "timer",
    "signal": "signal",
    "file": "hdd",
}
# Growth that is no leak: the heap's and the page file's high-water marks differ a little from round to round.
SLACK_BYTES, SLACK_SHARE = 4 << 20, 0.1
WARM_UP = 2
SHELL = 'while read -r line; do code=0; eval "$line" </dev/null || code=$?; echo "@$code"; done'
CLEAN = """
for p in $(ls /proc | grep -x '[0-9]*'); do [ $p = 1 ] || [ $p = $$ ] || kill -9 $p 2>/dev/null; done
userdel -rf guest 2>/dev/null; rm -rf /tmp/* /tmp/.[!.]* /dev/shm/* /root/.ssh /etc/ssh/ssh_host_*; ipcrm -a; sync; true
"""


class Domain:
    def __init__(self, doppel):
        argv = [doppel, "run", "--rm", "-i", "-e", "HOME=/tmp", "servers", "--", "bash", "-c", SHELL]
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )

    def run(self, script, **env):
        """Runs a script; value: exit code and output."""
        text = base64.b64encode(script.encode()).decode()
        words = " ".join(f"{k}={v}" for k, v in env.items())
        self.process.stdin.write(
            f"echo {text} | base64 -d >/root/script && (cd /tmp && exec env {words} bash /root/script 2>&1)\n"
        )
        self.process.stdin.flush()
        out = []
        for line in self.process.stdout:
            # A program may have left its last line unfinished.
            rest, mark, code = line.rstrip("\n").rpartition("@")
            if mark and code.isdigit():
                return int(code), "".join(out) + rest
            out.append(line)
        sys.exit(f"the domain ended with {self.process.wait()}:\n{''.join(out)[-3000:]}")

    def state(self):
        """Host processes, and bytes in the arena (in use, and held of the host), the page file, and all of them."""
        used = int(self.run("awk '/^Slab:/ { print $2 }' /proc/meminfo")[1]) << 10
        procs = descendants(self.process.pid)
        for _ in range(20):  # those of the command above end
            time.sleep(0.1)
            procs = min(procs, descendants(self.process.pid), key=len)
        sizes = {
            "processes": len(procs),
            "arena": used,
            "arena-held": 0,
            "pages": 0,
            "memory": domain_memory(self.process.pid),
        }
        for p in procs:
            try:
                for m in os.scandir(f"/proc/{p}/map_files"):
                    target = os.readlink(m.path)
                    for name, key in (("arena", "arena-held"), ("pages", "pages")):
                        if f"memfd:doppel-{name}" in target:
                            sizes[key] = max(sizes[key], os.stat(m.path).st_blocks * 512)
            except FileNotFoundError:
                pass  # it just ended
        return sizes


def jobs(seconds, only):
    """What a round consists of: name, script, environment."""
    each = max(1, seconds // 12)
    for s in SERVERS:
        yield s, s, {"SECONDS_OF_LOAD": each, "REQUESTS": 2000 * seconds}
    for name, stressor in MAIN.items():
        yield (
            f"stress-ng {stressor}, {seconds} s",
            "stress",
            {"CLASS": name, "STRESSORS": stressor, "SECONDS_OF_LOAD": seconds},
        )
    for name in MAIN:
        yield f"stress-ng, {name} stressors, {each} s each", "stress", {"CLASS": name, "SECONDS_OF_LOAD": each}


def leaks(first, now):
    """What has grown more than it may."""
    found = (
        [] if now["processes"] <= first["processes"] else [f"{now['processes'] - first['processes']} host processes"]
    )
    for k in ("arena", "pages", "memory"):
        if now[k] > first[k] * (1 + SLACK_SHARE) + SLACK_BYTES:
            found.append(f"{k}: {first[k] >> 10} to {now[k] >> 10} KiB")
    return found


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("doppel", nargs="?", default=str(HERE.parent / "target/release/doppel"))
    ap.add_argument("--seconds", type=int, default=60, help="of each main stressor")
    ap.add_argument("--rounds", type=int, default=3)
    ap.add_argument("--only", action="append", default=[], help="jobs whose name contains this; may be repeated")
    opt = ap.parse_args()
    domain, first, bad = Domain(opt.doppel), None, []
    domain.run(CLEAN)
    print(f"before: {domain.state()}", flush=True)
    for k in range(opt.rounds):
        for name, script, env in jobs(opt.seconds, opt.only):
            if opt.only and not any(o in name for o in opt.only):
                continue
            start = time.monotonic()
            code, out = domain.run(LIB + (SCRIPTS / f"{script}.sh").read_text(), **env)
            print(
                f"round {k + 1}: {name}: {'ok' if code == 0 else f'FAILED ({code})'} in {time.monotonic() - start:.0f} "
                "s",
                flush=True,
            )
            if code:
                bad.append(name)
                print(out[-3000:])
            domain.run(CLEAN)
        time.sleep(1)
        now = domain.state()
        print(f"after round {k + 1}: {now}", flush=True)
        if k < WARM_UP:
            first = now
        bad += [f"grew after round {k + 1}: {x}" for x in leaks(first, now)]
    domain.process.stdin.close()
    code = domain.process.wait(30)
    if code:
        bad.append(f"the domain ended with {code}")
    print("soak: " + ("; ".join(bad) if bad else "ok"))
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
