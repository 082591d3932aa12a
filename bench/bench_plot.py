"""Line plots as SVG, written directly: panels below one another, each with its own axes, and a
caption below them. A PNG beside it where rsvg-convert is installed."""

import html
import math
import shutil
import subprocess
import textwrap

PLOT_WIDTH, PANEL_HEIGHT, LEFT, RIGHT_LEAST, TOP, BOTTOM = 700, 190, 56, 150, 30, 34
LETTER = 5.6  # width of one in a legend
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#999999", "#56b4e9", "#e69f00", "#6a3d9a",
          "#000000", "#b15928")
CAPTION_LINE, CAPTION_COLUMNS = 15, 140
DOTS_MAX = 40  # a line of no more points shows each of them
POINTS_MAX = 1200  # of a line; more are thinned out to the least and greatest of each stretch


class Panel:
    """`lines`: {name: [(x, y)]}; `marks`, vertical: [(x, text)]; `levels`, across: [(y, text)];
    `x_title`, `y_title`: unless the plot's; `log`: y on a logarithmic scale."""

    def __init__(self, title, lines, marks=(), levels=(), x_title=None, y_title=None, log=False):
        self.title, self.lines, self.marks, self.levels = title, lines, marks, levels
        self.x_title, self.y_title, self.log = x_title, y_title, log


def thinned(points):
    if len(points) <= POINTS_MAX:
        return points
    stretch, out = math.ceil(len(points) * 2 / POINTS_MAX), []
    for at in range(0, len(points), stretch):
        part = points[at:at + stretch]
        out += sorted({min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])})
    return out


def step_of(span):
    """A round distance of about a fifth of `span`."""
    raw = max(span, 1e-9) / 5
    unit = 10 ** math.floor(math.log10(raw))
    return next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= raw)


def text(x, y, what, size=11, anchor="start", color="#333"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
            f'fill="{color}">{html.escape(str(what))}</text>')


def line(x1, y1, x2, y2, color, dashes=""):
    dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" '
            f'stroke="{color}"{dashed}/>')


def y_axis(panel, points):
    """(where to draw lines across, a function from y to the share of the panel's height)"""
    values = [p[1] for p in points] + [y for y, _ in panel.levels]
    if panel.log:
        low = math.floor(math.log10(min((y for y in values if y > 0), default=1)))
        high = max(low + 1, math.ceil(math.log10(max([*values, 1e-9]))))
        return ([10.0 ** n for n in range(low, high + 1)],
                lambda y: (math.log10(max(y, 10.0 ** low)) - low) / (high - low))
    most = max([*values, 1e-9]) * 1.05
    return [n * step_of(most) for n in range(int(most / step_of(most)) + 1)], lambda y: y / most


def draw(panel, top, x_title, y_title, colors):
    points = [p for series in panel.lines.values() for p in series] or [(0, 0)]
    x0, x1 = min(p[0] for p in points), max(max(p[0] for p in points), 1e-9)
    grid, share = y_axis(panel, points)
    left, right, up, down = LEFT, PLOT_WIDTH - 6, top + TOP, top + PANEL_HEIGHT - BOTTOM

    def at(x, y):
        return left + (x - x0) / max(x1 - x0, 1e-9) * (right - left), down - share(y) * (down - up)

    out = [text(left, top + 16, panel.title, 13)]
    for y in grid:
        out += [line(left, at(0, y)[1], right, at(0, y)[1], "#e5e5e5"),
                text(left - 6, at(0, y)[1] + 4, f"{y:g}", 10, "end")]
    for count in range(math.ceil(x0 / step_of(x1 - x0)), int(x1 / step_of(x1 - x0)) + 1):
        x = count * step_of(x1 - x0)
        out += [line(at(x, 0)[0], down, at(x, 0)[0], down + 4, "#999"),
                text(at(x, 0)[0], down + 15, f"{x:g}", 10, "middle")]
    out += [text(right, down + 28, panel.x_title or x_title, 10, "end"),
            text(left - 50, up - 8, panel.y_title or y_title, 10)]
    for x, what in panel.marks:
        out += [line(at(x, 0)[0], up, at(x, 0)[0], down, "#bbb", "3 3"),
                text(at(x, 0)[0] + 3, up + 9, what, 9, color="#777")]
    for y, what in panel.levels:
        out += [line(left, at(0, y)[1], right, at(0, y)[1], "#c00", "6 3"),
                text(right + 6, at(0, y)[1] + 4, what, 10, color="#c00")]
    for number, (name, series) in enumerate(panel.lines.items()):
        color = colors[name]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*p) for p in thinned(series)))
        out += [f'<polyline fill="none" stroke="{color}" stroke-width="1.4" points="{path}"/>',
                *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.2" fill="{color}"/>'
                  for x, y in (at(*p) for p in series if len(series) <= DOTS_MAX)),
                line(right + 6, up + 26 + 15 * number, right + 22, up + 26 + 15 * number, color),
                text(right + 26, up + 30 + 15 * number, name, 10)]
    return out


def write_svg(path, panels, x_title="s", y_title="MiB", caption=""):
    """`path` is a pathlib.Path; the PNG has the same name."""
    below = textwrap.wrap(caption, CAPTION_COLUMNS)
    bottom = PANEL_HEIGHT * len(panels) + 6
    height = bottom + CAPTION_LINE * len(below)
    names = dict.fromkeys(name for panel in panels for name in panel.lines)
    colors = {name: COLORS[number % len(COLORS)] for number, name in enumerate(names)}
    width = PLOT_WIDTH + max([RIGHT_LEAST, *(40 + LETTER * len(name) for name in names)])
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
           f'viewBox="0 0 {width:.0f} {height}" font-family="sans-serif">',
           f'<rect width="{width:.0f}" height="{height}" fill="white"/>']
    for number, panel in enumerate(panels):
        out += draw(panel, number * PANEL_HEIGHT, x_title, y_title, colors)
    out += [text(LEFT, bottom + CAPTION_LINE * number + 6, words, 11, color="#555")
            for number, words in enumerate(below)]
    path.write_text("\n".join(out + ["</svg>"]) + "\n")
    if shutil.which("rsvg-convert"):
        subprocess.run(["rsvg-convert", "-o", path.with_suffix(".png"), path], check=True)
