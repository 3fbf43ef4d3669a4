"""Files on the host's disk that a workload has for itself."""
import pathlib
import shutil
import subprocess
from typing import Any

from harness.runtimes import WORK, Doppel, Failed, Native

# What a runtime itself keeps by a name.
KEPT = ("volume", "layer", "disk")


class Place:
    """New files on the disk, and a runtime that has them at /mnt, or as /dev/vda; they go in the end. A `disk` has this
    size, and an empty file system."""

    made = 0

    def __init__(self, runtime: Native, kind: str, size: str = "1g") -> None:
        Place.made += 1
        self.runtime, self.kind, self.size = runtime, kind, size
        self.path = WORK / f"bench-disk-{Place.made}"

    def __enter__(self) -> Any:
        shutil.rmtree(self.path, ignore_errors=True)
        self.forget()
        self.path.mkdir(parents=True)
        if self.kind == "disk":
            self.ask("create", "--size", self.size, "--format")
        return self.runtime.on_disk(self.kind, pathlib.Path(self.path))

    def __exit__(self, *_: object) -> None:
        self.forget()
        shutil.rmtree(self.path, ignore_errors=True)

    def forget(self) -> None:
        if self.kind in KEPT:
            self.ask("rm", "--force")

    def ask(self, *verb: str) -> None:
        """What the runtime is to do with what it keeps; the others keep nothing."""
        if isinstance(self.runtime, Doppel):
            argv = [*self.runtime.host, self.runtime.path, self.kind, *verb, self.path.name]
            p = subprocess.run(argv, capture_output=True, text=True)
            if p.returncode:
                raise Failed(f"{self.kind} {self.path.name}: {verb[0]}: {p.stderr.strip()}")
