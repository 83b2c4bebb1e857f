"""The soak in short; ``make soak`` runs it for ten minutes."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from .report import KINDS, write_report
from .run import soak
from .tally import Tally

SECONDS = 15


@pytest.mark.timeout(400)
async def test_a_short_soak_finds_nothing_wrong(tmp_path: Path) -> None:
    """Under load and faults, every answer is right, every record is there, and the servers come to rest."""
    tally = await soak(SECONDS, tmp_path, print)
    logs = {path.name: path.read_text()[-2000:] for path in tmp_path.glob("*.log")}
    assert tally.wrong == [], logs
    assert {transport for transport, _, _ in tally.outcomes} >= {"http", "ws", "mcp", "stdio"}
    assert {"callers that left", "connections dropped", "worker processes killed"} <= tally.faults.keys()
    assert tally.notes


def test_the_report_has_what_was_seen(tmp_path: Path) -> None:
    """The page lists outcomes, faults and what was wrong, and its plots are well-formed."""
    tally = Tally()
    tally.saw("http", "echo", "ok")
    tally.expect("http", "echo", "b", "a")
    tally.faults["servers killed"] += 3
    for second in range(3):
        tally.sample("http", dict.fromkeys(KINDS, float(second)))
    page = write_report(tally, 3, tmp_path).read_text()
    assert "| http | echo | ok | 1 |" in page
    assert "| servers killed | 3 |" in page
    assert "- http echo: 'b', not 'a'" in page
    for kind in KINDS:
        assert ET.parse(tmp_path / f"{kind}.svg").getroot().tag.endswith("svg")
