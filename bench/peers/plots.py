"""The plots of a run, as SVG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib import pyplot as plt

OURS, THEIRS = "#1f6f8b", "#b9b9b9"
COLOURS = {"carmy native": OURS, "carmy stdio": OURS, "FastAPI on uvicorn": "#d1603d", "bare uvicorn": "#8d8d8d"}

_GROWTH = {
    "connections": ("requests per second", "connections", "rate"),
    "tools": ("requests per second", "tools registered", "rate"),
    "payload": ("requests per second", "bytes each way", "rate"),
    "in_flight": ("calls per second", "calls in flight on one connection", "rate"),
    "streams": ("p99 of other calls, ms", "open event streams", "p99"),
}


def draw(folder: Path, found: dict[str, Any]) -> None:
    """One plot for each group, and one for each way to grow."""
    # The same text for the same numbers, and letters as letters.
    mpl.rcParams.update({"svg.hashsalt": "carmy", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False,
                         "axes.spines.right": False})  # fmt: skip
    for group, members in found["groups"].items():
        _bars(folder / f"{group.replace(' ', '-')}.svg", group, members)
    for what, lines in found["growth"].items():
        if lines:
            _lines(folder / f"growth-{what.replace('_', '-')}.svg", what, lines)


def _save(figure: Any, file: Path) -> None:
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None, "Creator": None})
    plt.close(figure)


def _bars(file: Path, group: str, members: dict[str, Any]) -> None:
    ordered = sorted(members.items(), key=lambda item: item[1]["rate"]["median"])
    names = [name for name, _ in ordered]
    rates = [member["rate"]["median"] for _, member in ordered]
    low = [member["rate"]["median"] - member["rate"]["least"] for _, member in ordered]
    high = [member["rate"]["most"] - member["rate"]["median"] for _, member in ordered]
    figure, axes = plt.subplots(figsize=(7, 0.6 + 0.32 * len(names)))
    colours = [OURS if name.startswith("carmy") else THEIRS for name in names]
    bars = axes.barh(names, rates, xerr=[low, high], color=colours, error_kw={"elinewidth": 0.8})
    axes.bar_label(bars, labels=[f"{rate:,.0f}" for rate in rates], padding=8, fontsize=8)
    axes.set_xlabel(f"calls per second, {group}: median, least and most")
    axes.margins(x=0.15)
    _save(figure, file)


def _lines(file: Path, what: str, lines: dict[str, Any]) -> None:
    y_label, x_label, measure = _GROWTH[what]
    figure, axes = plt.subplots(figsize=(5.5, 3))
    for name, points in lines.items():
        xs = [point["x"] for point in points]
        axes.plot(
            xs,
            [point[measure] for point in points],
            marker="o",
            markersize=3,
            label=name,
            color=COLOURS.get(name, "#555555"),
        )
    axes.set_xscale("symlog" if what == "streams" else "log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.legend(frameon=False, fontsize=8)
    _save(figure, file)
