"""Drawings of a graph: Mermaid, and plain text."""

from __future__ import annotations

from ._layout import END, Layout


def mermaid(layout: Layout) -> str:
    """A flowchart in Mermaid's syntax."""
    ids = {path: f"n{number}" for number, path in enumerate(layout.nodes)}
    lines = ["flowchart TD", f"    start((start)) --> {ids[layout.entry]}"]
    lines += [f'    {ids[path]}["{path}"]' for path in layout.nodes]
    ends = False
    for path in layout.nodes:
        ways = _ways(layout, path)
        for target, label in ways:
            arrow = "-.->" if label in ("error", "join") else "-->"
            ends = ends or target == END
            lines.append(f"    {ids[path]} {arrow}{f'|{label}|' if label else ''} {ids.get(target, 'stop')}")
    if ends:
        lines.append("    stop((end))")
    return "\n".join(lines) + "\n"


def text(layout: Layout) -> str:
    """One line for each node, with its ways on."""
    lines = [f"start -> {layout.entry}"]
    for path, node in layout.nodes.items():
        ways = ", ".join(
            f"{label + ': ' if label else ''}{'end' if target == END else target}"
            for target, label in _ways(layout, path)
        )
        rules = [
            f"{name}={value:g}"
            for name, value in (("timeout", node.timeout), ("retries", node.retries), ("max_visits", node.max_visits))
            if value
        ]
        lines.append(f"{path} -> {ways}" + (f"  [{', '.join(rules)}]" if rules else ""))
    return "\n".join(lines) + "\n"


def _ways(layout: Layout, path: str) -> list[tuple[str, str]]:
    ways = [*layout.ways(path)]
    if path in layout.fan_outs:
        ways.append((layout.fan_outs[path].then, "join"))
    elif path not in layout.edges and path not in layout.branches:
        ways.insert(0, (END, ""))
    return ways
