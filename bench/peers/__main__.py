"""``python -m bench.peers``: measure everything, and write JSON, tables and plots. With ``--quick``: a few ratios beside the recorded ones."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from bench.peers import contenders, results
from bench.peers.growth import GROWTH, grow
from bench.peers.measure import CONNECTIONS, measurements

RESULTS = Path(__file__).parent.parent / "results"
PAGE = RESULTS.parent.parent / "docs" / "performance.md"
"""Shows what is recorded in `RESULTS`."""

QUICK = frozenset(
    {
        contenders.NATIVE,
        contenders.NATIVE_IDS,
        contenders.HYPERCORN,
        contenders.FASTAPI,
        contenders.BARE_UVICORN,
        "bare hypercorn",
        "carmy stdio",
        "MCP SDK over stdio",
        "carmy engine.execute",
        "FastMCP in memory",
        "bare function with pydantic",
    }
)
TOLERANCE = 0.1
"""Of a ratio: below it, two runs of the same program on a shared machine differ as well."""


def in_turns(names: frozenset[str] | None, rounds: int, seconds: int) -> tuple[results.Samples, dict[str, str]]:
    """Every measurement once in each round, in an order that turns round from one to the next."""
    planned, skipped = measurements(names)
    samples: results.Samples = {}
    for number in range(rounds):
        for group, name, take in planned if number % 2 == 0 else reversed(planned):
            if name in skipped:
                continue
            try:
                sample = take(seconds)
            except Exception as problem:  # a peer that fails is reported; the others are still measured
                if name.startswith("carmy"):
                    raise
                skipped[name] = f"{type(problem).__name__}: {problem}"[:300]
                samples.pop((group, name), None)
                continue
            samples.setdefault((group, name), []).append(sample)
            print(f"round {number + 1}: {name}: {sample['rate']:.0f}/s", file=sys.stderr, flush=True)
    return samples, skipped


def full(rounds: int, seconds: int, out: Path, only: frozenset[str] | None, growth: frozenset[str] | None) -> None:
    started = time.perf_counter()
    samples, skipped = in_turns(only, rounds, seconds)
    grown = grow(min(seconds, 2), growth)
    settings = {"rounds": rounds, "seconds": seconds, "connections": CONNECTIONS}
    found = results.document(samples, skipped, grown, settings)
    results.write(out, found, PAGE if out == RESULTS else None)
    from bench.peers.plots import draw  # noqa: PLC0415 - matplotlib takes a second, and nothing else needs it

    draw(out, found)
    print((out / "results.md").read_text())
    print(f"written to {out} after {time.perf_counter() - started:.0f} s")


def quick(rounds: int, seconds: int, recorded: Path, only: frozenset[str]) -> None:
    samples, skipped = in_turns(only, rounds, seconds)
    before = json.loads((recorded / "results.json").read_text())["ratios"]
    print("\n".join(results.compared(before, results.ratios_of(samples), TOLERANCE)))
    for name, why in skipped.items():
        print(f"not measured: {name} ({why})")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only the ratios, beside those that were recorded last")
    parser.add_argument("--rounds", type=int, help="measurements of each contender")
    parser.add_argument("--seconds", type=int, help="of load in each")
    parser.add_argument("--only", action="append", help="this contender (may be repeated)")
    parser.add_argument(
        "--growth", action="append", choices=[*GROWTH, "none"], help="only this way to grow (may be repeated)"
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help="where results are written, or read with --quick")
    given = parser.parse_args()
    only = frozenset(given.only) if given.only else None
    if given.quick:
        quick(given.rounds or 3, given.seconds or 1, given.out, only or QUICK)
        return
    growth = frozenset(given.growth) - {"none"} if given.growth else None
    full(given.rounds or 5, given.seconds or 3, given.out, only, growth)


if __name__ == "__main__":
    main()
