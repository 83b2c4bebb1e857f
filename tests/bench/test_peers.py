"""The measurements beside the peers, as far as they can go wrong without being run for minutes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.peers import contenders, http_load, line_load, results
from bench.peers.__main__ import QUICK
from bench.peers.measure import IN_PROCESS
from bench.peers.processes import free_port, running, until_it_answers
from bench.peers.servers import catalog

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / "bench" / "results"
OURS = [contender for contender in (*contenders.HTTP, *contenders.LINES) if contender.name.startswith("carmy")]
NAMES = {contender.name for contender in (*contenders.HTTP, *contenders.LINES)} | IN_PROCESS.keys()


def test_every_peer_searches_the_same_products() -> None:
    """The programs for Node read the products of the others."""
    assert json.loads((contenders.SERVERS / "catalog.json").read_text()) == catalog.PRODUCTS


@pytest.mark.parametrize("contender", OURS, ids=lambda contender: contender.name)
def test_ours_answers_what_is_asked(contender: contenders.Contender) -> None:
    """Every way in which ours is measured starts, and gives the products."""
    port = free_port()
    command = [part.format(port=port) for part in contender.command]
    with running(command, piped=contender.kind == "lines") as found:
        if contender.kind == "lines":
            answer = line_load.Lines(found, contender).open()
        else:
            _, answer = until_it_answers(found, lambda: http_load.first(port, contender))
    contenders.check(contender.name, answer)


def test_a_wrong_answer_is_not_measured() -> None:
    """A peer with another answer is refused, by name."""
    with pytest.raises(AssertionError, match="Express"):
        contenders.check("Express", b"[]")


def test_ratios_are_of_contenders_that_exist() -> None:
    """A ratio whose contender was renamed would silently be left out."""
    named = {name for _, _, _, upper, lower, _, _ in results.RATIOS for name in (upper, lower)}
    assert named <= NAMES
    assert QUICK <= NAMES


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    """Each round is compared with itself, so that a slow moment of the machine counts for both."""
    others = {"memory_kib": 1.0, "cpu_us": 1.0, "p50": 2.0, "p99": 5.0}
    ours = [{"rate": rate, **others} for rate in (30.0, 300.0, 40.0)]
    theirs = [{"rate": rate, **others} for rate in (10.0, 100.0, 10.0)]
    samples = {("http", contenders.NATIVE): ours, ("http", contenders.FASTAPI): theirs}
    found = results.ratios_of(samples)
    assert (found["native/fastapi"], found["native p99/fastapi p50"]) == (3.0, 2.5)


def test_what_moved_is_marked() -> None:
    """Only a change beyond the tolerance is marked, either way."""
    lines = results.compared({"a": 2.0, "b": 2.0, "c": 2.0}, {"a": 2.1, "b": 1.5, "c": 2.5, "d": 1.0}, 0.1)
    assert [line.endswith("MOVED") for line in lines] == [False, True, True, False]
    assert lines[3].endswith("new")


def test_the_document_shows_what_was_recorded() -> None:
    """The numbers in the page are those of the last recorded run, and its plots are there."""
    page = (REPOSITORY / "docs" / "performance.md").read_text()
    recorded = json.loads((RESULTS / "results.json").read_text())
    assert results.in_page(page) == results.tables(recorded).strip()
    assert (RESULTS / "results.md").read_text() == results.tables(recorded)
    for plot in RESULTS.glob("*.svg"):
        assert f"../bench/results/{plot.name}" in page
