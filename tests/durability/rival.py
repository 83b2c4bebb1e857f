"""One of several processes on one file: ``python -m tests.durability.rival STORE EFFECTS IDS CALLERS SEED ON_RUNNING``.

Its callers send the same requests as those of all others, each in an order of its own, until every one has an answer. It writes the
answers, as one JSON object of request_ids and execution ids, or says what went wrong.
"""

from __future__ import annotations

import json
import random
import sys
from typing import Any

import trio

from carmy_engine import App, ExecutionRequest

ALLOWED: dict[str, set[tuple[str, Any]]] = {"refuse": {("EXECUTION_UNCERTAIN", "running")}, "wait": set()}
"""What a caller may be told before it has its answer, as long as nobody dies."""


async def main(store: str, effects: str, ids: int, callers: int, seed: int, on_running: Any) -> dict[str, str]:
    app = App("rival").store(f"sqlite:{store}")
    answers: dict[str, str] = {}

    @app.tool(effect="write", parallel_safe=True)
    async def work(tag: str) -> str:
        """Add a line to the file."""
        with open(effects, "a") as file:  # noqa: ASYNC230 - one line
            file.write(f"{tag}\n")
        return tag

    async def call(rng: random.Random) -> None:
        order = list(range(ids))
        rng.shuffle(order)
        for number in order:
            name = f"r{number}"
            while True:
                request = ExecutionRequest(tool="work", arguments={"tag": name}, request_id=name, on_running=on_running)
                result = await engine.execute(request)
                if result.error is None:
                    break
                told = (result.error.code, (result.error.details or {}).get("state"))
                if told not in ALLOWED[on_running]:
                    raise AssertionError(f"{name}: {result.error}")
                await trio.lowlevel.checkpoint()
            if answers.setdefault(name, result.execution_id) != result.execution_id:
                raise AssertionError(f"{name} has two answers")

    async with app.open() as engine, trio.open_nursery() as nursery:
        for number in range(callers):
            nursery.start_soon(call, random.Random(seed * 1000 + number))
    return answers


if __name__ == "__main__":
    ids, callers, seed = map(int, sys.argv[3:6])
    given = trio.run(main, sys.argv[1], sys.argv[2], ids, callers, seed, sys.argv[6])
    print(json.dumps(given))
