"""The report of a soak: a page with tables, and a plot for each quantity."""

from __future__ import annotations

from html import escape
from pathlib import Path

from .tally import Tally

WIDTH, HEIGHT, MARGIN = 640, 200, 44
COLOURS = ("#0b6", "#06c", "#c40", "#808")
KINDS = {"rss_mb": "memory (MB)", "tasks": "tasks", "descriptors": "descriptors", "children": "child processes"}


def write_report(tally: Tally, seconds: float, directory: Path) -> Path:
    """Write ``report.md`` and its plots; return the page."""
    lines = [
        "# Soak",
        "",
        f"{seconds:g} seconds, {tally.calls} calls, {tally.wrong_count} wrong answers.",
        "",
        "| transport | tool | outcome | calls |",
        "|---|---|---|---|",
        *(f"| {' | '.join(key)} | {count} |" for key, count in sorted(tally.outcomes.items())),
        "",
        "| fault or check | number |",
        "|---|---|",
        *(f"| {fault} | {count} |" for fault, count in sorted(tally.faults.items())),
        f"| notes written | {len(tally.notes)} |",
        f"| notes in doubt after a kill | {len(tally.doubtful)} |",
        "",
    ]
    if tally.wrong:
        lines += ["## Wrong", "", *(f"- {text}" for text in tally.wrong), ""]
    for kind, title in KINDS.items():
        name = f"{kind}.svg"
        series = {server: [(at, vitals[kind]) for at, vitals in samples] for server, samples in tally.samples.items()}
        (directory / name).write_text(plot(title, series), encoding="utf-8")
        lines += [f"![{title}]({name})", ""]
    page = directory / "report.md"
    page.write_text("\n".join(lines), encoding="utf-8")
    return page


def plot(title: str, series: dict[str, list[tuple[float, float]]]) -> str:
    """An SVG of lines over seconds."""
    points = [point for line in series.values() for point in line] or [(0.0, 0.0)]
    longest = max(at for at, _ in points) or 1.0
    highest = max(value for _, value in points) * 1.1 or 1.0

    def place(at: float, value: float) -> str:
        x = MARGIN + at / longest * (WIDTH - 2 * MARGIN)
        y = HEIGHT - MARGIN - value / highest * (HEIGHT - 2 * MARGIN)
        return f"{x:.1f},{y:.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{MARGIN}" y="16" font-size="13">{escape(title)}</text>',
        f'<polyline fill="none" stroke="#999" points="{place(0, highest)} {place(0, 0)} {place(longest, 0)}"/>',
        f'<text x="{MARGIN - 4}" y="{MARGIN + 4}" text-anchor="end">{highest:.0f}</text>',
        f'<text x="{MARGIN - 4}" y="{HEIGHT - MARGIN}" text-anchor="end">0</text>',
        f'<text x="{WIDTH - MARGIN}" y="{HEIGHT - MARGIN + 16}" text-anchor="end">{longest:.0f} s</text>',
    ]
    for number, (name, line) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        parts += [
            f'<polyline fill="none" stroke="{colour}" points="{" ".join(place(*point) for point in line)}"/>',
            f'<text x="{WIDTH - MARGIN + 4}" y="{MARGIN + 14 * number}" fill="{colour}">{escape(name)}</text>',
        ]
    return "\n".join([*parts, "</svg>", ""])
