"""Several processes on one file: at most one run for each request, no lost answer, and nobody is told that it is locked."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def rivals(directory: Path, *, processes: int, ids: int, callers: int, on_running: str) -> list[dict[str, str]]:
    """Run them at the same time; the answers of each."""
    running = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.durability.rival", directory / "state.db", directory / "effects"),
                *(str(ids), str(callers), str(number), on_running),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
        )
        for number in range(processes)
    ]
    answers = []
    for process in running:
        output, errors = process.communicate()
        assert process.returncode == 0, errors.decode()
        answers.append(json.loads(output))
    return answers


def check(directory: Path, *, processes: int, ids: int, callers: int, on_running: str = "refuse") -> None:
    answers = rivals(directory, processes=processes, ids=ids, callers=callers, on_running=on_running)
    names = {f"r{number}" for number in range(ids)}
    assert Counter((directory / "effects").read_text().split()) == dict.fromkeys(names, 1)
    assert answers[0].keys() == names
    assert all(each == answers[0] for each in answers)


@pytest.mark.parametrize("processes", [2, 4])
def test_overlapping_requests(tmp_path: Path, processes: int) -> None:
    """Every request runs in one of the processes, and all of their callers get the answer of that run."""
    check(tmp_path, processes=processes, ids=40, callers=6)


@pytest.mark.parametrize("processes", [2, 4])
def test_overlapping_requests_that_wait(tmp_path: Path, processes: int) -> None:
    """Callers that wait for each other's runs all get an answer at the first time of asking."""
    check(tmp_path, processes=processes, ids=40, callers=6, on_running="wait")


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("processes", [2, 4])
def test_overlapping_requests_for_long(tmp_path: Path, processes: int) -> None:
    """The same, with more of everything."""
    check(tmp_path, processes=processes, ids=1000, callers=32)
