"""The runtimes that are compared: the host itself, Doppel (para and paene, also through its supervisor, `harness.api`),
runc, crun, gVisor's runsc and bubblewrap.

Key types: `Native` and its likes. `argv(*command, image=…)` is the command line that runs `command` on the files of
an image; `run(…)` runs it to its end and gives its output, or raises `Failed`. All runtimes use the same files: an
image is unpacked once for those that want a directory. Natively, `bench` runs as it is and other images run in a
chroot with /proc, /dev and a tmpfs on /tmp, so that programs and their versions are the same everywhere.
"""
import copy
import json
import os
import pathlib
import shutil
import subprocess
import time
from typing import Any

BENCH = pathlib.Path(__file__).resolve().parent.parent
WORK = BENCH / "work"
# A small image of this benchmark's own: a static program and busybox.
OWN = "bench"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Servers change to a user of their own.
CAPABILITIES = ["CAP_SETUID", "CAP_SETGID", "CAP_CHOWN", "CAP_FOWNER", "CAP_DAC_OVERRIDE", "CAP_SYS_CHROOT"]
ENTER = """
# A CPU group of its own, as the others have: on a busy machine its share would be another one.
cpu=/sys/fs/cgroup/cpu/bench-native
mkdir -p $cpu 2>/dev/null && echo $$ 2>/dev/null >$cpu/cgroup.procs
[ -z "$DISK" ] || mount --bind "$DISK" "$0/mnt"
mount --rbind /dev "$0/dev" && mount -t proc proc "$0/proc" && mount -t tmpfs -o mode=1777 tmp "$0/tmp" &&
exec chroot "$0" /usr/bin/env -i PATH="$PATH" HOME=/root "$@"
"""


class Failed(Exception):
    """A command that did not succeed; `out` is what it printed."""

    def __init__(self, text: str, out: str = "") -> None:
        super().__init__(text)
        self.out = out


class Cannot(Failed):
    """What a runtime has no means for, or what is not built yet: it is said, and is no failure."""


class Native:
    name = "native"
    # Only for workloads that name it in ALSO.
    asked_only = False
    # A directory of the host's disk that is at /mnt inside.
    disk = ""

    def __init__(self, roots: Any) -> None:
        # Directories of the images: `Roots`.
        self.roots = roots

    def argv(self, *command: Any, image: str = OWN) -> list[str]:
        root = self.roots.of(image)
        if image == OWN:
            arguments = (self.disk if a == "/mnt" and self.disk else a for a in command[1:])
            return [str(root / command[0].lstrip("/")), *arguments]
        # A PID namespace, so that nothing outlives the command.
        apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        return [*apart, "env", f"DISK={self.disk}", "sh", "-c", ENTER, str(root), *command]

    def run(self, *command: Any, image: str = OWN, timeout: float = 300) -> str:
        """What the command prints."""
        argv = self.argv(*command, image=image)
        try:
            p = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=timeout
            )
        except subprocess.TimeoutExpired:
            self.clean()
            raise Failed(f"{self.name}: {command[0]} did not end in {timeout} s") from None
        if p.returncode:
            raise Failed(
                f"{self.name}: {command[0]} ended with {p.returncode}: {(p.stderr or p.stdout).strip()[-300:]}",
                p.stdout,
            )
        return p.stdout

    def clean(self) -> None:
        """Takes away what a killed command may have left."""

    def close(self) -> None:
        """Ends what the runtime has started for all its measurements."""

    def limited(
        self,
        memory: int | None = None,
        pids: int | None = None,
        weight: int | None = None,
        io_weight: int | None = None,
    ) -> Any:
        """This runtime, whose instances may use so many bytes and processes, and have these weights among others, of
        CPUs and of files (100 is the usual one). The host itself limits nothing, and only ours weigh files."""
        return self

    def on_disk(self, kind: str, place: pathlib.Path) -> Any:
        """This runtime with files of the host's disk at /mnt: of a `volume` of this name or a `directory`, or with a
        `layer` of its image that stays, or with a `disk` of this name as /dev/vda. What has no such difference takes
        the directory."""
        one = copy.copy(self)
        one.disk = str(place)
        return one


class Doppel(Native):
    name = "doppel"
    # Runtimes with limits of their own, whose domains have a label by which they are found.
    made, label = 0, None

    def __init__(self, roots: Any, path: str) -> None:
        super().__init__(roots)
        self.path = path
        self.options: list[str] = []
        self.host: list[str] = []
        self.api: Any = None

    def argv(self, *command: Any, image: str = OWN) -> list[str]:
        return [*self.host, self.path, "run", "--rm", *self.options, image, "--", *command]

    def limited(
        self,
        memory: int | None = None,
        pids: int | None = None,
        weight: int | None = None,
        io_weight: int | None = None,
    ) -> Any:
        one = copy.copy(self)
        given = {"--memory": memory, "--pids-limit": pids, "--cpu-weight": weight, "--io-weight": io_weight}
        # Weights and numbers of processes are the supervisor's to give.
        one.host = ["env", f"DOPPEL_HOST=unix://{self.api.supervisor.socket}"]
        Doppel.made += 1
        one.label = f"bench={os.getpid()}-{Doppel.made}"
        one.options = [
            *self.options,
            "--label",
            one.label,
            *(str(x) for k, v in given.items() if v is not None for x in (k, v)),
        ]
        return one

    def on_disk(self, kind: str, place: pathlib.Path) -> Any:
        one = copy.copy(self)
        given = {
            "volume": ["--volume", f"{place.name}:/mnt"],
            "directory": ["--volume", f"{place}:/mnt"],
            "layer": [f"--persist={place.name}"],
            "disk": ["--block-device", place.name],
        }
        one.options = [*self.options, *given[kind]]
        return one

    def clean(self) -> None:
        # A domain of the supervisor outlives the command that has started it.
        if self.label:
            doppel = [*self.host, self.path]
            found = subprocess.run(
                [*doppel, "ps", "-aq", "--no-trunc", "-f", f"label={self.label}"], capture_output=True, text=True
            ).stdout.split()
            if found:
                subprocess.run([*doppel, "rm", "-f", *found], capture_output=True)


class Paene(Doppel):
    """Doppel on the host's own kernel."""

    name = "paene"

    def __init__(self, roots: Any, path: str) -> None:
        super().__init__(roots, path)
        self.options = ["--kind", "paene"]


class Bubblewrap(Native):
    """bwrap, on the files of the image."""

    name = "bwrap"
    network = ("--unshare-net",)

    def argv(self, *command: Any, image: str = OWN) -> list[str]:
        root = str(self.roots.of(image))
        tmp = [] if image == OWN else ["--perms", "1777", "--tmpfs", "/tmp"]
        env = ["--clearenv", "--setenv", "PATH", PATH, "--setenv", "HOME", "/root"]
        # No user namespace: root may map one user into it, and servers have users of their own.
        apart = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", *self.network]
        caps = [x for c in CAPABILITIES for x in ("--cap-add", c)]
        return [
            "bwrap",
            *apart,
            *caps,
            "--die-with-parent",
            "--bind",
            root,
            "/",
            "--proc",
            "/proc",
            "--dev",
            "/dev",
            *tmp,
            *(["--bind", self.disk, "/mnt"] if self.disk else []),
            *env,
            *command,
        ]


class Oci(Native):
    """runc or runsc, on a minimal bundle."""

    bundles = 0

    def __init__(self, roots: Any, name: str, *options: str, program: str = "") -> None:
        super().__init__(roots)
        self.name, self.options, self.count = name, options, 0
        self.program = program or name
        self.bundle = WORK / name
        self.bundle.mkdir(parents=True, exist_ok=True)
        (self.bundle / "config.json").unlink(missing_ok=True)  # `runc spec` keeps one that is there
        subprocess.run(["runc", "spec"], cwd=self.bundle, check=True, capture_output=True)
        self.config = json.loads((self.bundle / "config.json").read_text())
        self.config["process"]["terminal"] = False
        self.config["process"]["env"] = [f"PATH={PATH}", "HOME=/root"]
        for caps in self.config["process"]["capabilities"].values():
            caps += [c for c in CAPABILITIES if c not in caps]
        self.mounts = self.config["mounts"]
        self.id, self.prefix = "", f"bench-{os.getpid()}-"

    def argv(self, *command: Any, image: str = OWN) -> list[str]:
        tmp = {"destination": "/tmp", "type": "tmpfs", "source": "tmp", "options": ["mode=1777"]}
        self.config["root"] = {"path": str(self.roots.of(image)), "readonly": False}
        self.config["mounts"] = self.mounts if image == OWN else [*self.mounts, tmp]
        self.config["process"]["args"] = list(command)
        # Another instance may be reading it.
        (self.bundle / "config.new").write_text(json.dumps(self.config))
        (self.bundle / "config.new").rename(self.bundle / "config.json")
        self.count += 1
        self.id = f"{self.prefix}{self.count}"
        return [*self.enter(), self.program, *self.options, "run", "--bundle", str(self.bundle), self.id]

    def limited(
        self,
        memory: int | None = None,
        pids: int | None = None,
        weight: int | None = None,
        io_weight: int | None = None,
    ) -> Any:
        one = copy.copy(self)
        one.config = copy.deepcopy(self.config)
        limits = {
            "memory": {"limit": memory} if memory else {},
            "pids": {"limit": pids} if pids else {},
            "cpu": {"shares": weight * 1024 // 100} if weight else {},
        }
        one.config["linux"]["resources"].update({k: v for k, v in limits.items() if v})
        # Its instances may start while others' configuration is read.
        Oci.bundles += 1
        one.bundle = WORK / f"{self.name}-{os.getpid()}-{Oci.bundles}"
        one.bundle.mkdir(parents=True)
        one.prefix = f"{self.prefix}{Oci.bundles}-"
        return one

    def on_disk(self, kind: str, place: pathlib.Path) -> Any:
        one = copy.copy(self)
        mount = {"destination": "/mnt", "type": "bind", "source": str(place), "options": ["rbind", "rw"]}
        one.mounts = [*self.mounts, mount]
        return one

    def close(self) -> None:
        for bundle in WORK.glob(f"{self.name}-{os.getpid()}-*"):
            shutil.rmtree(bundle)

    def clean(self) -> None:
        subprocess.run([*self.enter(), self.program, *self.options, "kill", self.id, "KILL"], capture_output=True)
        time.sleep(0.2)
        subprocess.run([*self.enter(), self.program, *self.options, "delete", "--force", self.id], capture_output=True)

    def enter(self) -> list[str]:
        """What comes before its commands."""
        return []


class Crun(Oci):
    """crun, which refuses hosts that have control groups of both versions: there it runs in a mount namespace in which
    the second one is not mounted, entered by nsenter (about a millisecond of each start)."""

    UNIFIED = pathlib.Path("/sys/fs/cgroup/unified")

    def __init__(self, roots: Any) -> None:
        super().__init__(roots, "crun")
        self.asked_only = True
        self.keeper: subprocess.Popen[bytes] | None = None

    def enter(self) -> list[str]:
        """The command that enters the namespace, which a process of ours keeps."""
        if not self.UNIFIED.exists():
            return []
        if not self.keeper:
            script = f"umount {self.UNIFIED} && echo ready && exec sleep infinity"
            self.keeper = subprocess.Popen(["unshare", "--mount", "sh", "-c", script], stdout=subprocess.PIPE)
            self.keeper.stdout.readline()
        return ["nsenter", f"--mount=/proc/{self.keeper.pid}/ns/mnt"]

    def close(self) -> None:
        super().close()
        if self.keeper:
            self.keeper.kill()
            self.keeper.wait()
            self.keeper = None


class Roots:
    """Directories with the files of images."""

    def __init__(self, doppel: Any) -> None:
        self.doppel = doppel
        self.known: dict[str, pathlib.Path] = {}

    def of(self, image: str) -> pathlib.Path:
        """The directory of an image, unpacked if it has not been."""
        if image not in self.known:
            self.known[image] = own() if image == OWN else self.unpack(image)
        return self.known[image]

    def unpack(self, image: str) -> Any:
        p = subprocess.run(
            [self.doppel, "image", "inspect", "--quick", "--json", image], capture_output=True, text=True
        )
        if p.returncode:
            raise Failed(f"no image {image}: {p.stderr.strip()[-200:]}")
        digest = json.loads(p.stdout)["digest"]
        root = WORK / f"root-{image}-{digest[:16]}"
        if not root.exists():
            for old in WORK.glob(f"root-{image}-*"):
                shutil.rmtree(old)
            store = pathlib.Path(os.environ.get("DOPPEL_STORE", "/var/lib/doppel"))
            part = WORK / "root-part"
            shutil.rmtree(part, ignore_errors=True)
            subprocess.run(
                ["fsck.erofs", f"--extract={part}", store / f"images/sha256-{digest}.erofs"],
                check=True,
                capture_output=True,
            )
            part.rename(root)
        return root


def own() -> Any:
    """Builds the root file system of the image `bench`."""
    root = WORK / "rootfs"
    for d in ("bin", "tmp", "proc", "sys", "dev", "etc", "mnt"):
        (root / d).mkdir(parents=True, exist_ok=True)
    (root / "tmp").chmod(0o1777)
    (root / "www").mkdir(exist_ok=True)
    (root / "www/page").write_bytes(b"a page of a usual size\n" * 98 + b"....")  # Denali's 2,258 bytes
    for program in ("micro", "lmb", "work", "net", "disk", "storage"):
        subprocess.run(
            ["gcc", "-O2", "-static", "-pthread", "-Wall", "-o", root / program, BENCH / f"src/{program}.c"], check=True
        )
    shutil.copy("/bin/busybox", root / "bin/busybox")
    return root


def present(doppel: Any) -> list[Any]:
    """The runtimes of this machine, the host first."""
    roots = Roots(doppel)
    runtimes = [Native(roots)]
    if doppel and os.path.exists(doppel):
        subprocess.run([doppel, "image", "rm", OWN], capture_output=True)
        subprocess.run([doppel, "image", "import", roots.of(OWN), OWN], check=True, stdout=subprocess.DEVNULL)
        from harness.api import Api

        both, api = [Doppel(roots, doppel), Paene(roots, doppel)], Api(roots, doppel)
        for one in both:
            one.api = api
        runtimes += [*both, api]
    if shutil.which("runc"):
        runtimes.append(Oci(roots, "runc"))
        if shutil.which("crun"):
            runtimes.append(Crun(roots))
        if shutil.which("runsc"):
            options = ("--platform=systrap", "--network=none", "--ignore-cgroups")
            gofer = Oci(roots, "runsc-gofer", *options, "--directfs=false", program="runsc")
            gofer.asked_only = True
            runtimes += [Oci(roots, "runsc", *options), gofer]
    if shutil.which("bwrap"):
        runtimes.append(Bubblewrap(roots))
    return runtimes
