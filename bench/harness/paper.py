"""The evaluation of the paper that Doppel's Freezer comes from, as tables and plots: bench/results/freezer.*.

Workloads `keep` what they have measured; `write` makes freezer.json, freezer.md and the plots of that, and of what
earlier runs kept, so that parts can be measured alone. What has not been measured is said to be missing.
"""
import json
import pathlib
import statistics
import time
from collections.abc import Iterable, Sequence
from typing import Any

from harness import svg
from harness.counted import total
from harness.machine import machine

_new = {}


class Value(dict):
    """A table that was measured as a whole: it takes the place of the old one."""


def keep(part: str, *path_and_value: Any) -> None:
    """keep("isolation", "doppel", "Node.js", {...}) sets one value."""
    *path, last, value = part, *path_and_value
    place = _new
    for step in path:
        place = place.setdefault(step, {})
    place[last] = Value(value) if isinstance(value, dict) else value


def merge(old: Any, new: Any) -> Any:
    for k, v in new.items():
        merges = isinstance(v, dict) and not isinstance(v, Value) and isinstance(old.get(k, {}), dict)
        old[k] = merge(old.get(k, {}), v) if merges else v
    return old


def table(head: list[Any], rows: Iterable[Any]) -> str:
    return (
        "\n".join([
            "| " + " | ".join(head) + " |",
            "|---|" + "---:|" * (len(head) - 1),
            *("| " + " | ".join(map(str, r)) + " |" for r in rows),
        ])
        + "\n"
    )


def ms(values: Sequence[float]) -> str:
    values = sorted(values)
    return f"{statistics.median(values):.2f} ms ({values[0]:.2f}–{values[-1]:.2f})"


def rate(setup: dict[str, Any]) -> str:
    """How fast a set-up became an image, all its latency counted."""
    return f"{setup['image_kib'] * 1024 / statistics.median(setup['suspend_ms']) / 1e6:.2f} GB/s"


def latencies(data: dict[str, Any]) -> list[str]:
    """Fig. 5.1 and Table 5.1."""
    out = ["## Suspend and resume (Fig. 5.1)\n"]
    setups = data.get("setups", {})
    if not setups:
        return [*out, "Not measured yet.\n"]
    rows = [
        [
            name,
            f"{s['image_kib']} KiB",
            f"{s['processes']}",
            f"{s['segments']}",
            ms(s["stop_ms"]),
            ms(s["pause_ms"]),
            ms(s["suspend_ms"]),
            rate(s),
            ms(s["resume_ms"]),
        ]
        for name, s in setups.items()
    ]
    out.append(
        table(
            [
                "set-up",
                "frozen image",
                "processes",
                "segments",
                "until all stands still",
                "stood still for (the pause)",
                "suspend: until the image is complete",
                "bytes a second",
                "resume: `doppel clone`, to first output",
            ],
            rows,
        )
    )
    out.append(
        "Medians (least–most). Images in memory. Resume includes opening the image and checking every byte of it, once "
        "a command.\n"
    )
    running = data.get("running")
    if running:
        out.append("A Python that goes on, and writes a page a millisecond, while most of it is saved:\n")
        rows = [
            [f"pause of {size}, until all stands still included", ms(values)]
            for size, values in running["pause_ms"].items()
        ]
        speeds = sorted(running["gb_per_s"])
        out.append(
            table(
                ["", ""],
                [
                    *rows,
                    [
                        "bytes a second of 512 MB, until the image is complete",
                        f"{statistics.median(speeds):.2f} GB/s ({speeds[0]:.2f}–{speeds[-1]:.2f})",
                    ],
                ],
            )
        )
    out.append("## Memory overheads (Table 5.1)\n")
    rows = [
        [
            name,
            f"{s['image_kib']} KiB",
            f"{s['tables_kib']} KiB ({100 * s['tables_kib'] / s['image_kib']:.2f} %)",
            f"{s['resume_kib']['own']:.0f} KiB",
            f"{s['resume_kib']['kernel']:.0f} KiB",
        ]
        for name, s in setups.items()
    ]
    out.append(
        table(
            [
                "set-up",
                "frozen image",
                "overhead 1: its header, tables, checksums",
                "resume: private memory of an idle clone",
                "overhead 2: host kernel memory of it",
            ],
            rows,
        )
    )
    out.append(
        "A clone's figures are a tenth of what ten further clones add to one, the process that runs them included.\n"
    )
    return out


def isolation(data: dict[str, Any], results: pathlib.Path) -> list[str]:
    """Fig. 5.2."""
    out = ["## Isolated instances of one program (Fig. 5.2)\n"]
    per = data.get("isolation", {})
    clones, spaces = per.get("doppel", {}), per.get("native", {})
    if not clones or not spaces:
        return [*out, "Not measured yet.\n"]
    for name in clones:
        if name not in spaces:
            continue
        a, b = ({int(n): total(x) / 1024 for n, x in p[name].items()} for p in (clones, spaces))
        counts = sorted(set(a) & set(b))
        file = f"isolation-{name.split()[0].lower().rstrip('.js').rstrip('.')}.svg"
        svg.plot(
            results / file,
            f"{name}: memory of isolated instances",
            "instances",
            "MiB",
            {"Freezer clones": [(n, a[n]) for n in counts], "namespaces": [(n, b[n]) for n in counts]},
        )
        parts = lambda p, n: " + ".join(f"{p[name][str(n)][k] / 1024:.1f}" for k in ("image", "own", "files", "kernel"))
        out.append(f"### {name}\n\n![]({file})\n")
        out.append(
            table(
                [
                    "instances",
                    "clones",
                    "of this: image + private + files + host kernel",
                    "namespaces",
                    "private + files + host kernel",
                ],
                [
                    [n, f"{a[n]:.1f} MiB", parts(clones, n), f"{b[n]:.1f} MiB", parts(spaces, n).split(" + ", 1)[1]]
                    for n in counts
                ],
            )
        )
        first, last = counts[0], counts[-1]
        more = lambda p: (p[last] - p[first]) / (last - first)
        share = 100 * more(a) / a[first]
        out.append(
            f"A further clone takes {more(a):.2f} MiB, {share:.1f} % of the first (goal: ≤ 20 "
            f"%{' ✓' if share <= 20 else ' ✗'}); "
            f"a further namespace {more(b):.2f} MiB, {100 * more(b) / b[first]:.0f} % of the first.\n"
        )
    return out


def sharing(results: pathlib.Path) -> list[str]:
    """Fig. 5.3 and Table 5.2, of sharing.json where it is there."""
    out = ["## Sharing over time (Fig. 5.3), collisions (Table 5.2)\n"]
    try:
        data = json.loads((results / "sharing.json").read_text())
    except OSError:
        return [*out, "Not measured yet: there is no bench/results/sharing.json.\n"]
    if data.get("over_time"):
        keys = [k for k in data["over_time"][0] if k.endswith("_mib")]
        svg.plot(
            results / "sharing.svg",
            "Page sharing over time",
            "seconds",
            "MiB",
            {k[:-4].replace("_", " "): [(p["seconds"], p[k]) for p in data["over_time"]] for k in keys},
        )
        out.append("![](sharing.svg)\n")
    if data.get("collisions"):
        levels = list(data["collisions"][0])
        out.append(
            "Relative frequency of equal keys of different pages, per hash level; the overall figure is their "
            "product.\n"
        )
        out.append(
            table(
                ["run", *levels],
                [[i + 1, *(f"{run[x]:.2g}" for x in levels)] for i, run in enumerate(data["collisions"])],
            )
        )
    return out


def waking(data: dict[str, Any]) -> list[str]:
    out = ["## Waking from disk\n"]
    wakes = data.get("wake", {})
    if not wakes:
        return [*out, "Not measured yet.\n"]
    rows = [
        [name, f"{w['image_mib']:.1f} MiB", f"{w['working_set_kib']} KiB", ms(w["ms"])] for name, w in wakes.items()
    ]
    out.append(table(["wake", "image", "working set", "`doppel wake` to first output"], rows))
    out.append(
        "Cold: the image's pages dropped from the host's cache. Without prefetch the whole image is read and checked "
        "before the domain starts.\n"
    )
    return out


WAYS = {
    "native": "started anew on the host",
    "runc": "started anew in runc",
    "runsc": "`runsc restore` of a checkpoint",
    "CRIU": "`criu restore` on the host",
    "doppel": "`doppel clone` out of a pool",
}


def ways(data: dict[str, Any]) -> list[str]:
    """A warm Python brought to its first output in other ways."""
    out = ["## Against other ways\n"]
    found = data.get("ways", {})
    if not found:
        return [*out, "Not measured yet.\n"]
    show = lambda v: v if isinstance(v, str) else f"{v / 1e6:.2f} ms"
    out.append(
        table(
            ["a Python with 15 modules, to its first output", ""],
            [[text, show(found[k])] for k, text in WAYS.items() if k in found],
        )
    )
    return out


def write(results: pathlib.Path) -> None:
    path = results / "freezer.json"
    data = json.loads(path.read_text()) if path.exists() else {}
    merge(data, _new)
    data["date"], data["machine"] = time.strftime("%Y-%m-%d %H:%M"), machine()
    path.write_text(json.dumps(data, indent=1) + "\n")
    text = [
        "# The Freezer measured as in the paper\n",
        f"Written by `make bench`, {data['date']}; last part measured on {data['machine']}. All memory is counted as "
        "in bench/harness/counted.py.\n",
    ]
    text += latencies(data) + ways(data) + isolation(data, results) + sharing(results) + waking(data)
    (results / "freezer.md").write_text("\n".join(text))
