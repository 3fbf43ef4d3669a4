"""Files of a volume, of a directory of the host and of a disk by block size and by threads (VirtuOS Figs. 3-4, 9-10).

`src/storage.c` writes a file of 16 MB in chunks of each size, a new one and then the same again. FileIO is
sysbench's, as there: 128 files of 1 GB together, blocks of 16 KB; random reads, of which the host has all in its
memory; and reads and writes, of which the domain and the host write when they like. Files were in the memory of
VirtuOS' storage domain for Figs. 3, 4 and 9; here those of a volume that a domain has alone may be in its own
(docs/volumes.md), and those of a host's directory are asked of the storage service each time. A *disk* has a file
system, a *block device* is one without. The other runtimes have no such difference: their figures, taken once on a
directory, stand in each of the rows. Bubblewrap is left out: it is a bind mount, as runc's.
"""
from collections.abc import Iterator
from typing import Any

from harness.place import Place
from harness.runtimes import OWN
from harness.servers import rates

UNIT = "/s"
REPEATS = 3
# The kind of a place, and how it is shown.
KINDS = {"volume": "volume", "directory": "host directory", "disk": "disk", "device": "block device"}
# Those that a runtime of ours has; a block device has no files.
HAS = {"doppel": list(KINDS), "paene": ["volume", "directory"]}
# VirtuOS' own ratios: about as native up to 32 KB and 0.8 from there on; 0.6 to 0.7 of FileIO's rates in memory, and
# "roughly similar" ones with a disk.
SIZES = {"32 B": 1.0, "128 B": 1.0, "512 B": 1.0, "2 KB": 1.0, "8 KB": 1.0, "32 KB": 1.0}
SIZES |= {"128 KB": 0.8, "512 KB": 0.8, "2 MB": 0.8}
READS, MIXED, SYNCED = "FileIO, random reads", "FileIO, reads and writes", "FileIO, reads, writes and fsync"
LOADS = {READS: 0.7, MIXED: 0.95, SYNCED: 0.95}
THREADS = (1, 2, 4, 8, 16)
# What is asked of the service call by call has none.
PROMISED = ("volume", "disk")
TARGETS = {f"{kind}: write by {size}": ratio for kind in PROMISED for size, ratio in SIZES.items()}
TARGETS |= {f"{kind}: {load}, threads: {n}": r for kind in PROMISED for load, r in LOADS.items() for n in THREADS}

MOUNT = "mount -t doppelfs /dev/vda /mnt"
FILEIO = r"""
cd /mnt
options="--file-num=128 --file-total-size=$SIZE --file-block-size=16384"
sysbench fileio $options prepare >/tmp/out 2>&1 || { tail -n 20 /tmp/out >&2; exit 1; }
sync -f /mnt
cat test_file.* >/dev/null
load() {
    local row=$1 n=$2; shift 2
    sysbench fileio $options --time="$D" --threads="$n" "$@" run >/tmp/out 2>&1 || { tail -n 20 /tmp/out >&2; exit 1; }
    awk -v row="$row, threads: $n" '/^ *(reads|writes)\/s:/ { sum += $2 } END { print row ": " sum }' /tmp/out
}
for n in $THREADS; do load "$READS" $n --file-test-mode=rndrd; done
for n in $THREADS; do load "$MIXED" $n --file-test-mode=rndrw --file-fsync-freq=0 --file-fsync-end=off; done
[ -n "$SYNCED" ] || exit 0
# By default all files are synced after each 100 requests.
for n in $THREADS; do load "$SYNCED" $n --file-test-mode=rndrw; done
"""


def measure(runtime: Any, opt: Any) -> Iterator[tuple[str, Any]]:
    if runtime.name == "bwrap":
        return
    kinds = HAS.get(runtime.name)
    for kind in kinds or ["directory"]:
        shown = [KINDS[kind]] if kinds else KINDS.values()
        for row, value in rows(runtime, kind, opt):
            # A block device has no new files.
            has = (name for name in shown if name != KINDS["device"] or row.startswith("overwrite"))
            yield from ((f"{name}: {row}", value) for name in has)


def rows(runtime: Any, kind: str, opt: Any) -> Iterator[tuple[str, Any]]:
    """All of one runtime on one kind of files, each part on new ones."""
    given = "disk" if kind == "device" else kind
    mount, where = (MOUNT, "/mnt") if kind == "disk" else ("true", "/dev/vda" if kind == "device" else "/mnt")
    with Place(runtime, given) as at:
        command = ["/storage", "blocks", *(["-q"] if opt.quick else []), where]
        if kind == "disk":
            command = ["/bin/busybox", "sh", "-c", f'/bin/busybox {mount} && exec "$@"', "mounted", *command]
        for line in at.run(*command, image=OWN).splitlines():
            row, _, value = line.rpartition(": ")
            yield row, (float(value), "MB/s")
    if kind == "device":
        return
    with Place(runtime, given, "4g") as at:
        settings = {
            "SIZE": "128M" if opt.quick else "1G",
            "D": "1" if opt.quick else "3",
            "THREADS": "4" if opt.quick else " ".join(map(str, THREADS)),
            "READS": READS,
            "MIXED": MIXED,
            "SYNCED": "" if opt.quick else SYNCED,
        }
        script = "".join(f"{k}='{v}'\n" for k, v in settings.items()) + f"{mount}\n" + FILEIO
        yield from rates(at, script).items()
