"""Plots of lines and of bars as SVG, without dependencies."""
import html
import math
import pathlib
from typing import Any

COLOURS = ["#1f6fb2", "#c8502a", "#3a8f4d", "#8a5aa8", "#8a8a8a"]
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 400, 70, 50, 40, 20


def ticks(high: float) -> Any:
    """Round steps from 0 to at least `high`."""
    step = 1.0
    while high / step > 8:
        step *= 2.5 if str(step).lstrip("0.").startswith("2") and step < 1e9 and step * 2.5 == int(step * 2.5) else 2
    while high / step < 3:
        step /= 2
    return [step * i for i in range(int(high / step) + 2)]


def plot(path: pathlib.Path, title: str, x_label: str, y_label: str, lines: dict[str, Any]) -> None:
    """`lines`: {name: [(x, y), ...]}. Both axes begin at 0."""
    points = [p for line in lines.values() for p in line]
    xs, ys = ticks(max(x for x, _ in points)), ticks(max(y for _, y in points))
    at_x = lambda x: LEFT + (WIDTH - LEFT - RIGHT) * x / xs[-1]
    at_y = lambda y: HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * y / ys[-1]
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{WIDTH / 2}" y="20" text-anchor="middle" font-size="14">{html.escape(title)}</text>',
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">{html.escape(x_label)}</text>',
        f'<text transform="translate(16 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" '
        f'text-anchor="middle">{html.escape(y_label)}</text>',
    ]
    for x in xs:
        out.append(f'<text x="{at_x(x):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{x:g}</text>')
    for y in ys:
        out.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at_y(y):.1f}" y2="{at_y(y):.1f}" stroke="#ddd"/>'
            f'<text x="{LEFT - 6}" y="{at_y(y) + 4:.1f}" text-anchor="end">{y:g}</text>'
        )
    for i, (name, line) in enumerate(lines.items()):
        colour = COLOURS[i % len(COLOURS)]
        out.append(
            f'<polyline fill="none" stroke="{colour}" stroke-width="2" '
            f'points="{" ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in line)}"/>'
        )
        if len(line) <= 40:
            out += [f'<circle cx="{at_x(x):.1f}" cy="{at_y(y):.1f}" r="3" fill="{colour}"/>' for x, y in line]
        out.append(
            f'<rect x="{LEFT + 10}" y="{TOP + 4 + 18 * i}" width="12" height="12" fill="{colour}"/>'
            f'<text x="{LEFT + 28}" y="{TOP + 14 + 18 * i}">{html.escape(name)}</text>'
        )
    path.write_text("\n".join([*out, "</svg>"]) + "\n")


def bars(path: pathlib.Path, title: str, groups: dict[str, dict[str, Any]]) -> None:
    """Bars from 1 to left or right, on a scale of doublings; `groups`: {name: {bar: value}}."""
    names = list(dict.fromkeys(n for g in groups.values() for n in g))
    values = [v for g in groups.values() for v in g.values()]
    low, high = math.floor(math.log2(min([*values, 1 / 2]))), math.ceil(math.log2(max([*values, 2])))
    thick, left, width = 12, 260, 760
    height = TOP + 24 + len(groups) * (len(names) * thick + 14) + 20
    at = lambda v: left + (width - left - 60) * (math.log2(v) - low) / (high - low)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="{width / 2}" y="20" text-anchor="middle" font-size="14">{html.escape(title)}</text>',
    ]
    for i, n in enumerate(names):
        x: float = 20 + i * 110
        out.append(
            f'<rect x="{x}" y="30" width="12" height="12" fill="{COLOURS[i % len(COLOURS)]}"/><text x="{x + 18}" '
            f'y="40">{html.escape(n)}</text>'
        )
    top = TOP + 24
    for e in range(low, high + 1):
        x = at(2.0**e)
        out.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top - 6}" y2="{height - 20}" '
            f'stroke="{"#444" if e == 0 else "#ddd"}"/>'
            f'<text x="{x:.1f}" y="{height - 6}" text-anchor="middle">{2.0**e:g}</text>'
        )
    y = top
    for group, bars_ in groups.items():
        out.append(
            f'<text x="{left - 10}" y="{y + len(names) * thick / 2 + 4}" text-anchor="end">{html.escape(group)}</text>'
        )
        for i, n in enumerate(names):
            if n in bars_:
                a, b = sorted((at(1), at(bars_[n])))
                out.append(
                    f'<rect x="{a:.1f}" y="{y + i * thick}" width="{max(b - a, 1):.1f}" height="{thick - 2}" '
                    f'fill="{COLOURS[i % len(COLOURS)]}"/>'
                    f'<text x="{(b if bars_[n] >= 1 else at(1)) + 4:.1f}" y="{y + i * thick + 9}" '
                    f'font-size="10">{bars_[n]:.2f}</text>'
                )
        y += len(names) * thick + 14
    path.write_text("\n".join([*out, "</svg>"]) + "\n")
