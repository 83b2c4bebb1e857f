"""Servers that tests use if they are there: their addresses, and the reason to skip without them."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import psycopg
import pytest

POSTGRESQL = os.environ.get("CARMY_TEST_POSTGRESQL", "postgresql://postgres@127.0.0.1:5432/postgres")
REDIS = os.environ.get("CARMY_TEST_REDIS", "redis://127.0.0.1:6379")


def answers(url: str) -> bool:
    """True if a server listens at the address of a URL."""
    parts = urlsplit(url)
    try:
        socket.create_connection((parts.hostname, parts.port), timeout=1).close()
    except OSError:
        return False
    return True


needs_postgresql = pytest.mark.skipif(not answers(POSTGRESQL), reason="there is no PostgreSQL (CARMY_TEST_POSTGRESQL)")
needs_redis = pytest.mark.skipif(not answers(REDIS), reason="there is no Redis (CARMY_TEST_REDIS)")


@contextmanager
def new_schema() -> Iterator[str]:
    """The name of a schema of PostgreSQL that does not exist, dropped at the end."""
    schema = f"carmy_{uuid.uuid4().hex[:12]}"
    try:
        yield schema
    finally:
        with psycopg.connect(POSTGRESQL, autocommit=True) as connection:
            connection.execute(f"SET client_min_messages = error; DROP SCHEMA IF EXISTS {schema} CASCADE")  # type: ignore[arg-type]


def expire_leases(schema: str) -> None:
    """Let all leases end, as if their processes had been silent for that long."""
    with psycopg.connect(POSTGRESQL, autocommit=True) as connection:
        connection.execute(f"UPDATE {schema}.owners SET expires_at = clock_timestamp()")  # type: ignore[arg-type]
