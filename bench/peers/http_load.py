"""Load over HTTP, by wrk in a process of its own."""

from __future__ import annotations

import dataclasses
import http.client
import itertools
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from bench.peers.contenders import Contender

SCRIPT = Path(__file__).with_name("load.lua")
_serial = itertools.count()


class Load(msgspec.Struct):
    """What wrk found. Latencies in milliseconds.

    Attributes:
        bad: Answers that were no success, and broken connections.
    """

    requests: int
    seconds: float
    p50: float
    p95: float
    p99: float
    bad: int

    @property
    def rate(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds


def is_there() -> bool:
    """Whether wrk is installed."""
    return shutil.which("wrk") is not None


def first(port: int, contender: Contender) -> tuple[Contender, bytes]:
    """The contender with the headers of a session, where its server gives one, and what it answers."""
    headers = dict(contender.headers)
    for message in contender.hello:
        answer, _ = _post(port, contender.path, message, headers)
        if session := answer.getheader("Mcp-Session-Id"):
            headers["Mcp-Session-Id"] = session
    answer, body = _post(port, contender.path, contender.body, headers)
    if answer.status != 200:
        raise AssertionError(f"{contender.name} answered with {answer.status}: {body[:300]!r}")
    return dataclasses.replace(contender, headers=headers), body


def _post(port: int, path: str, body: Any, headers: dict[str, str]) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("POST", path, json.dumps(body), headers)
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def load(port: int, contender: Contender, *, seconds: int, connections: int, body: Any = None) -> Load:
    """Send requests over `connections` connections, the next one on each as soon as the last one is answered."""
    environment = {
        **os.environ,
        "BENCH_PATH": contender.path,
        "BENCH_HEADERS": "\n".join(f"{name}: {value}" for name, value in contender.headers.items()),
    }
    if contender.hello:
        environment["BENCH_JSON_RPC"] = "1"
    if contender.fresh_ids:
        environment["BENCH_FRESH_IDS"] = f"{os.getpid()}-{next(_serial)}"
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s", "-s", str(SCRIPT)]
    with tempfile.NamedTemporaryFile("w") as file:
        json.dump(contender.body if body is None else body, file, separators=(",", ":"))
        file.flush()
        environment["BENCH_BODY_FILE"] = file.name
        found = subprocess.run(
            [*command, f"http://127.0.0.1:{port}"], env=environment, capture_output=True, text=True, check=False
        )
    for line in found.stdout.splitlines():
        if line.startswith("BENCH "):
            return msgspec.json.decode(line[6:], type=Load)
    raise AssertionError(f"wrk said {found.stdout} {found.stderr}")
