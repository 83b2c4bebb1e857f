"""What a run found, as a document: medians and spread, ratios, and what is promised of them."""

from __future__ import annotations

import importlib.metadata
import json
import platform
import shutil
import statistics
import subprocess
from pathlib import Path
from typing import Any

from bench.peers import contenders
from bench.peers.contenders import BARE_UVICORN, EXPRESS, FASTAPI, NATIVE, NATIVE_IDS, NODE_MODULES
from bench.peers.measure import Sample

Samples = dict[tuple[str, str], list[Sample]]
"""By group and name."""

PACKAGES = (
    "carmy-engine", "trio", "pydantic", "msgspec", "hypercorn", "mcp", "fastmcp", "fastapi", "starlette", "uvicorn", "uvloop",
    "httptools",
)  # fmt: skip

# (key, what it says, measure, numerator, denominator, bound, and whether it is a least or a most). Two measures, if they differ.
RATIOS: tuple[tuple[str, str, str, str, str, float | None, str], ...] = (
    ("native/fastapi", "native, throughput of FastAPI on uvicorn", "rate", NATIVE, FASTAPI, 3.0, "least"),
    ("native/express", "native, throughput of Express", "rate", NATIVE, EXPRESS, 2.5, "least"),
    ("native/uvicorn", "native, throughput of bare uvicorn", "rate", NATIVE, BARE_UVICORN, 0.75, "least"),
    ("native ids/fastapi", "native with a request_id on every call, throughput of FastAPI", "rate", NATIVE_IDS, FASTAPI, 2.0, "least"),
    ("native p99/fastapi p50", "native, p99 of the median of FastAPI", "p99/p50", NATIVE, FASTAPI, 1.0, "most"),
    ("native memory/fastapi", "native, peak memory of FastAPI", "memory_kib", NATIVE, FASTAPI, 1.0, "most"),
    ("native cpu/fastapi", "native, CPU time of a request of FastAPI", "cpu_us", NATIVE, FASTAPI, None, "most"),
    ("hypercorn/bare", "our endpoint on hypercorn, throughput of stock hypercorn with a bare answer", "rate", contenders.HYPERCORN, "bare hypercorn", None, "least"),
    ("hypercorn/fastapi", "our endpoint on hypercorn, throughput of FastAPI", "rate", contenders.HYPERCORN, FASTAPI, None, "least"),
    ("execute/fastmcp", "in process, calls per second of FastMCP in memory", "rate", "carmy engine.execute", "FastMCP in memory", 25.0, "least"),
    ("execute/bare", "in process, calls per second of a bare function with pydantic", "rate", "carmy engine.execute", "bare function with pydantic", None, "least"),
    ("stdio/sdk", "frames over stdio, throughput of the MCP SDK", "rate", "carmy stdio", "MCP SDK over stdio", None, "least"),
    ("stdio/typescript", "frames over stdio, throughput of the TypeScript MCP SDK", "rate", "carmy stdio", "TypeScript MCP SDK over stdio", 1.0, "least"),
    ("mcp stdio/sdk", "MCP over stdio, throughput of the MCP SDK's own server", "rate", "carmy MCP over stdio", "MCP SDK over stdio", 10.0, "least"),
    ("mcp stdio/typescript", "MCP over stdio, throughput of the TypeScript MCP SDK", "rate", "carmy MCP over stdio", "TypeScript MCP SDK over stdio", 0.9, "least"),
    ("mcp stdio cpu/typescript", "MCP over stdio, CPU time of a call of the TypeScript MCP SDK", "cpu_us", "carmy MCP over stdio", "TypeScript MCP SDK over stdio", None, "most"),
    ("mcp native cpu/typescript", "MCP over HTTP on native, CPU time of a call of the TypeScript MCP SDK", "cpu_us", "carmy MCP over HTTP, native", "TypeScript MCP SDK over HTTP", None, "most"),
    ("mcp native cpu/sdk", "MCP over HTTP on native, CPU time of a call of the MCP SDK's own server", "cpu_us", "carmy MCP over HTTP, native", "MCP SDK over HTTP", None, "most"),
    ("mcp cold/sdk", "MCP over stdio, time to the first answer of the MCP SDK's own server", "cold_ms", "carmy MCP over stdio", "MCP SDK over stdio", 0.75, "most"),
    ("mcp stdio/fastmcp", "MCP over stdio, throughput of FastMCP", "rate", "carmy MCP over stdio", "FastMCP over stdio", None, "least"),
    ("mcp http/sdk", "MCP over HTTP, throughput of the MCP SDK's own server", "rate", "carmy MCP over HTTP", "MCP SDK over HTTP", 1.0, "least"),
    ("mcp native/sdk", "MCP over HTTP on native, throughput of the MCP SDK's own server", "rate", "carmy MCP over HTTP, native", "MCP SDK over HTTP", 12.0, "least"),
    ("mcp native/typescript", "MCP over HTTP on native, throughput of the TypeScript MCP SDK", "rate", "carmy MCP over HTTP, native", "TypeScript MCP SDK over HTTP", 10.0, "least"),
    ("mcp http/fastmcp", "MCP over HTTP, throughput of FastMCP", "rate", "carmy MCP over HTTP", "FastMCP over HTTP", None, "least"),
)  # fmt: skip


def versions() -> dict[str, str]:
    """Of everything that was measured."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if shutil.which("node"):
        found["node"] = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    for name in ("express", "@modelcontextprotocol/sdk"):
        file = NODE_MODULES / name / "package.json"
        if file.is_file():
            found[name] = json.loads(file.read_text())["version"]
    return found


def machine() -> dict[str, Any]:
    """What it ran on, as far as it says something about the numbers."""
    with open("/proc/cpuinfo") as file:
        models = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    return {"cpu": models[0] if models else platform.machine(), "cores": len(models), "system": platform.system()}


def _summary(samples: list[Sample]) -> dict[str, dict[str, float]]:
    """Median, least and most of each measure."""
    found: dict[str, dict[str, float]] = {}
    for measure in samples[0]:
        values = [sample[measure] for sample in samples]
        found[measure] = {"median": statistics.median(values), "least": min(values), "most": max(values)}
    return found


def ratios_of(samples: Samples) -> dict[str, float]:
    """The ratios that can be taken, each the median of those of the rounds."""
    by_name = {name: found for (_, name), found in samples.items()}
    found: dict[str, float] = {}
    for key, _, measure, upper, lower, _, _ in RATIOS:
        if upper in by_name and lower in by_name:
            pairs = zip(by_name[upper], by_name[lower], strict=False)
            our_measure, _, their_measure = measure.partition("/")
            found[key] = statistics.median(
                ours[our_measure] / theirs[their_measure or our_measure] for ours, theirs in pairs
            )
    return found


def document(
    samples: Samples, skipped: dict[str, str], growth: dict[str, Any], settings: dict[str, Any]
) -> dict[str, Any]:
    """All of it, to be written as JSON."""
    groups: dict[str, dict[str, Any]] = {}
    for (group, name), found in samples.items():
        groups.setdefault(group, {})[name] = _summary(found)
    return {
        "settings": settings,
        "machine": machine(),
        "versions": versions(),
        "skipped": skipped,
        "groups": groups,
        "ratios": ratios_of(samples),
        "growth": growth,
    }


_COLUMNS = (
    ("rate", "calls/s", "{:.0f}"),
    ("p50", "p50 ms", "{:.2f}"),
    ("p95", "p95 ms", "{:.2f}"),
    ("p99", "p99 ms", "{:.2f}"),
    ("cpu_us", "CPU µs/call", "{:.0f}"),
    ("memory_kib", "peak MiB", "{:.0f}"),
    ("cold_ms", "cold start ms", "{:.0f}"),
)


def tables(found: dict[str, Any]) -> str:
    """The document for people, as Markdown."""
    ran, on = found["settings"], found["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    parts = [f"{ran['rounds']} rounds of {ran['seconds']} s, on {on['cores']} cores ({on['cpu']}). {versions}.", ""]
    for group, members in found["groups"].items():
        present = {column for member in members.values() for column in member}
        columns = [column for column in _COLUMNS if column[0] in present]
        parts += [
            f"### {group[0].upper()}{group[1:]}",
            "",
            "| | " + " | ".join(title for _, title, _ in columns) + " |",
        ]
        parts += ["|---|" + "---:|" * len(columns)]
        for name, member in sorted(members.items(), key=lambda item: -item[1]["rate"]["median"]):
            cells = [_cell(member.get(key), key, form) for key, _, form in columns]
            parts += [f"| {name} | " + " | ".join(cells) + " |"]
        parts += [""]
    parts += ["### Ratios", "", "| | ratio | promised |", "|---|---:|---|"]
    for key, says, _, _, _, bound, sense in RATIOS:
        if key in found["ratios"]:
            ratio = found["ratios"][key]
            parts += [f"| {says} | {ratio:.2f} | {_verdict(ratio, bound, sense)} |"]
    parts += [""]
    if found["skipped"]:
        parts += ["Not measured: " + "; ".join(f"{name} ({why})" for name, why in found["skipped"].items()) + ".", ""]
    return "\n".join(parts)


def _cell(value: dict[str, float] | None, key: str, form: str) -> str:
    if value is None:
        return ""
    scale = 1024 if key == "memory_kib" else 1
    text = form.format(value["median"] / scale)
    if key == "rate":
        text += f" ({form.format(value['least'])}-{form.format(value['most'])})"
    return text


def _verdict(ratio: float, bound: float | None, sense: str) -> str:
    if bound is None:
        return ""
    kept = ratio >= bound if sense == "least" else ratio <= bound
    return f"at {sense} {bound:g}: {'kept' if kept else 'missed'}"


def compared(before: dict[str, float], now: dict[str, float], tolerance: float) -> list[str]:
    """What moved, a line for each ratio."""
    lines: list[str] = []
    for key, ratio in now.items():
        if key not in before:
            lines.append(f"{key:24} {ratio:6.2f}  new")
            continue
        change = ratio / before[key] - 1
        mark = "MOVED" if abs(change) > tolerance else ""
        lines.append(f"{key:24} {before[key]:6.2f} -> {ratio:6.2f}  {change:+6.1%}  {mark}".rstrip())
    return lines


_START, _END = "<!-- results -->\n", "<!-- end -->"


def in_page(page: str) -> str:
    """The results that a page shows."""
    return page.partition(_START)[2].partition(_END)[0].strip()


def write(folder: Path, found: dict[str, Any], page: Path | None = None) -> None:
    """`results.json` and `results.md`, and the part of a page that shows them."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps(found, indent=1) + "\n")
    (folder / "results.md").write_text(tables(found))
    if page is not None:
        before, _, rest = page.read_text().partition(_START)
        page.write_text(f"{before}{_START}\n{tables(found)}\n{_END}{rest.partition(_END)[2]}")
