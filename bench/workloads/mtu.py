"""TCP by MTU (Xen Table 6, the para/paene study's Table 3): a server in the runtime and a client, each in a network
namespace of the host, with a pair of virtual cards of that MTU between them that pass on what is sent as packets, one
by one.

Doppel publishes the server's port in its namespace; runc, runsc and bubblewrap have that namespace as their host's.
"""

import shutil
import subprocess

from harness.runtimes import OWN, Cannot, Failed, Native

from workloads.network import Server

UNIT = "MB/s"
REPEATS = 3
MTUS = [1500, 500]
CLIENT, SERVER = "10.77.0.1", "10.77.0.2"
SETUP = """
set -e
ip link set lo up
ip link add near type veth peer name far netns $FAR
ip address add $CLIENT/24 dev near
ip link set near up
nsenter --net=/proc/$FAR/ns/net sh -ec "ip link set lo up; ip address add $SERVER/24 dev far; ip link set far up"
"""


class Cable:
    """Two namespaces, kept by a process each, and the cards."""

    def __enter__(self):
        self.keepers = []
        try:
            for _ in range(2):
                p = subprocess.Popen(
                    ["unshare", "--net", "sh", "-c", "echo ready; exec sleep infinity"], stdout=subprocess.PIPE
                )
                self.keepers.append(p)
                p.stdout.readline()
            self.near, self.far = ([*("nsenter", f"--net=/proc/{p.pid}/ns/net")] for p in self.keepers)
            env = {
                "CLIENT": CLIENT,
                "SERVER": SERVER,
                "FAR": str(self.keepers[1].pid),
                "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            }
            self.called([*self.near, "sh", "-c", SETUP], env)
        except BaseException:
            self.__exit__()
            raise
        return self

    def called(self, argv, env=None):
        p = subprocess.run(argv, capture_output=True, text=True, env=env)
        if p.returncode:
            raise Failed(f"the cable: {p.stderr.strip()[-200:]}")

    def resize(self, mtu):
        # With more segments in one it would carry 64 KB at once, whatever the MTU.
        for enter, card in (self.near, "near"), (self.far, "far"):
            self.called([*enter, "ip", "link", "set", card, "mtu", str(mtu), "gso_max_segs", "1"])

    def __exit__(self, *_):
        for p in self.keepers:
            p.kill()
            p.wait()


def measure(runtime, opt):
    if not shutil.which("ip"):
        raise Cannot("no iproute2 to make cards with")
    native = Native(runtime.roots)
    with Cable() as cable:

        def client(*command):
            argv = [*cable.near, *native.argv(*command)]
            p = subprocess.run(argv, capture_output=True, text=True, timeout=60)
            if p.returncode:
                raise Failed(f"{runtime.name}: {' '.join(command)}: {p.stderr.strip()[-200:]}", p.stdout)
            return float(p.stdout)

        class Far(Server):
            address, enter = SERVER, cable.far

            def listens(self):
                try:
                    client("/net", "echo", f"{SERVER}:{self.port}", "5")
                except Failed as e:
                    raise OSError(str(e)) from None

        with Far(runtime, "/net", "serve", "PORT", image=OWN) as s:
            for mtu in MTUS:
                cable.resize(mtu)
                for way, what in ("TX", "source"), ("RX", "sink"):
                    rate = client("/net", what, f"{SERVER}:{s.port}", "200" if opt.quick else "1000")
                    yield f"TCP, MTU {mtu}: {way}", rate / 1e6
