"""``python -m tests.soak``: run a soak and write its report; exit code 1 if anything was wrong."""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from pathlib import Path

import trio

from .report import write_report
from .run import soak


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="how long the load lasts")
    parser.add_argument("--report", type=Path, default=Path("build/soak"), help="the directory of the report")
    parser.add_argument("--seed", type=int, default=1, help="of the choices of callers and faults")
    given = parser.parse_args()
    given.report.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="carmy-soak-") as directory:
        tally = trio.run(partial(soak, given.seconds, Path(directory), partial(print, flush=True), given.seed))
        if tally.wrong:
            for log in Path(directory).glob("*.log"):
                (given.report / log.name).write_bytes(log.read_bytes())
    page = write_report(tally, given.seconds, given.report)
    print(*tally.wrong, f"{tally.calls} calls, {tally.wrong_count} wrong; report: {page}", sep="\n")
    sys.exit(1 if tally.wrong_count else 0)


main()
