"""Tables of results: {row: {runtime: [value, ...]}} with the units of rows as `UNITS` has them."""
import statistics
from collections.abc import Sequence
from typing import Any

# Those whose targets are in them, not ratios to native.
ABSOLUTE = ("%", "MiB", "KiB", "B")
# Unit: how a value is shown, and whether more is better.
UNITS = {
    "ns": (
        lambda v: (
            f"{v:.1f} ns"
            if v < 1000
            else f"{v / 1000:.2f} µs"
            if v < 1e6
            else f"{v / 1e6:.2f} ms"
            if v < 1e9
            else f"{v / 1e9:.2f} s"
        ),
        False,
    ),
    "MiB": (lambda v: f"{v:.1f} MiB", False),
    "KiB": (lambda v: f"{v:.0f} KiB" if abs(v) >= 10 else f"{v:.2f} KiB", False),
    "B": (lambda v: f"{v:,.0f} B", False),
    "/s": (lambda v: f"{v:.0f}/s" if v >= 100 else f"{v:.1f}/s", True),
    "MB/s": (lambda v: f"{v:.0f} MB/s", True),
    # A number of things.
    "n": (lambda v: f"{v:,.0f}", True),
    # Of what was promised or of an ideal.
    "%": (lambda v: f"{v:.1f} %", True),
}


def spread(values: Sequence[float]) -> float:
    """Half the distance between the quartiles."""
    if len(values) < 4:
        return (max(values) - min(values)) / 2
    q = statistics.quantiles(values, n=4)
    return (q[2] - q[0]) / 2


def ratio(per: dict[str, list[float]], name: str) -> float | None:
    """A runtime's median over the native one, or None."""
    if not per.get(name) or not per.get("native"):
        return None
    base = statistics.median(per["native"])
    return statistics.median(per[name]) / base if base else None


def cell(per: dict[str, list[float]], name: str, unit: str) -> str:
    values = per.get(name)
    if not values:
        return "–"
    mid = statistics.median(values)
    r = ratio(per, name) if name != "native" and unit not in ("KiB", "%", "n") else None
    around = f" ±{100 * spread(values) / mid:.0f} %" if mid and len(values) > 1 else ""
    return f"{UNITS[unit][0](mid)}{around}" + (f" ({r:.2f}×)" if r is not None else "")


def verdict(per: dict[str, list[float]], unit: str, target: Any, kind: str = "doppel") -> str:
    """The target, mostly a ratio to native, and whether Doppel holds it."""
    if target is None:
        return ""
    r = ratio(per, kind) if unit not in ABSOLUTE else statistics.median(per[kind]) if per.get(kind) else None
    more = UNITS[unit][1]
    mark = "" if r is None else " ✓" if (r >= target if more else r <= target) else " ✗"
    return f"{'≥' if more else '≤'} {target}{mark}"


def table(
    rows: dict[str, dict[str, list[float]]], units: dict[str, str], targets: dict[str, Any], names: list[str]
) -> str:
    lines = ["| operation | " + " | ".join(names) + " | target |", "|---|" + "---:|" * (len(names) + 1)]
    for title, per in rows.items():
        unit = units[title]
        cells = [cell(per, n, unit) for n in names]
        lines.append(f"| {title} | " + " | ".join(cells) + f" | {verdict(per, unit, targets.get(title))} |")
    return "\n".join(lines)
