"""What importing carmy_engine costs, next to what it stands on; each import in a fresh process, medians of both.

The floor is what any program with these libraries pays: trio, pydantic, msgspec, and one model.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile

FLOOR = "import trio, msgspec, pydantic\nclass Model(pydantic.BaseModel):\n    number: int\n"
SUBJECTS = {
    "floor": FLOOR,
    "carmy_engine": "import carmy_engine\n",
    "one tool": "import carmy_engine\n@carmy_engine.tool(effect='none')\nasync def add(a: int, b: int = 1) -> int:\n    return a + b\n",
    "carmy --help": "import carmy_engine.cli\n",
}
ROUNDS = 15

TIMED = "import time\nstart = time.perf_counter()\n{}\nprint(time.perf_counter() - start)"


def seconds(script: str, cache: str) -> float:
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environ["PYTHONPYCACHEPREFIX"] = cache
    command = [sys.executable, "-c", TIMED.format(script)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True, env=environ).stdout)


def main() -> None:
    times: dict[str, list[float]] = {name: [] for name in SUBJECTS}
    with tempfile.TemporaryDirectory() as cache:
        for script in SUBJECTS.values():
            seconds(script, cache)  # compiles
        for _ in range(ROUNDS):  # turn about, so that a busy moment of the machine falls on all of them
            for name, script in SUBJECTS.items():
                times[name].append(seconds(script, cache))
    medians = {name: statistics.median(found) for name, found in times.items()}
    for name, median in medians.items():
        print(f"{name:>14}  {median * 1000:6.0f} ms  {median / medians['floor']:.2f} of the floor")


if __name__ == "__main__":
    main()
