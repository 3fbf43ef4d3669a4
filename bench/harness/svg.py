"""Line plots as SVG, without dependencies."""
import html

COLOURS = ["#1f6fb2", "#c8502a", "#3a8f4d", "#8a5aa8"]
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 640, 400, 70, 50, 40, 20


def ticks(high):
    """Round steps from 0 to at least `high`."""
    step = 1.0
    while high / step > 8:
        step *= 2.5 if str(step).lstrip("0.").startswith("2") and step < 1e9 and step * 2.5 == int(step * 2.5) else 2
    while high / step < 3:
        step /= 2
    return [step * i for i in range(int(high / step) + 2)]


def plot(path, title, x_label, y_label, lines):
    """`lines`: {name: [(x, y), ...]}. Both axes begin at 0."""
    points = [p for line in lines.values() for p in line]
    xs, ys = ticks(max(x for x, _ in points)), ticks(max(y for _, y in points))
    at_x = lambda x: LEFT + (WIDTH - LEFT - RIGHT) * x / xs[-1]  # noqa: E731
    at_y = lambda y: HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * y / ys[-1]  # noqa: E731
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{WIDTH / 2}" y="20" text-anchor="middle" font-size="14">{html.escape(title)}</text>',
           f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">{html.escape(x_label)}</text>',
           f'<text transform="translate(16 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" text-anchor="middle">{html.escape(y_label)}</text>']
    for x in xs:
        out.append(f'<text x="{at_x(x):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{x:g}</text>')
    for y in ys:
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at_y(y):.1f}" y2="{at_y(y):.1f}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 6}" y="{at_y(y) + 4:.1f}" text-anchor="end">{y:g}</text>')
    for i, (name, line) in enumerate(lines.items()):
        colour = COLOURS[i % len(COLOURS)]
        out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{" ".join(f"{at_x(x):.1f},{at_y(y):.1f}" for x, y in line)}"/>')
        if len(line) <= 40:
            out += [f'<circle cx="{at_x(x):.1f}" cy="{at_y(y):.1f}" r="3" fill="{colour}"/>' for x, y in line]
        out.append(f'<rect x="{LEFT + 10}" y="{TOP + 4 + 18 * i}" width="12" height="12" fill="{colour}"/>'
                   f'<text x="{LEFT + 28}" y="{TOP + 14 + 18 * i}">{html.escape(name)}</text>')
    path.write_text("\n".join([*out, "</svg>"]) + "\n")
