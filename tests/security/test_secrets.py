"""The ready-made authenticators for secrets that the host lists."""

from __future__ import annotations

import hashlib

import pytest

from carmy_engine import AgentContext, BearerTokens
from carmy_engine.abc import Credentials
from carmy_engine.errors import ConfigurationError

ANA, BOB = AgentContext(principal="ana"), AgentContext(principal="bob")


def present(token: str | None) -> Credentials:
    return Credentials(transport="http", bearer=token, headers={}, peer=None)


def test_knows_its_tokens() -> None:
    """Each token gives its own context; anything else gives none."""
    tokens = BearerTokens({"a": ANA, "b": BOB})
    assert tokens(present("a")) is ANA
    assert tokens(present("b")) is BOB
    for wrong in (None, "", "c", "A", "a ", "\ud800", "a" * 100_000):
        assert tokens(present(wrong)) is None


def test_hashes_are_as_good_as_tokens() -> None:
    """A configuration may hold the hash instead of the token."""
    tokens = BearerTokens.from_hashes({hashlib.sha256(b"a").hexdigest(): ANA})
    assert tokens(present("a")) is ANA


def test_keeps_no_token() -> None:
    """The object holds hashes only, and shows nothing when printed."""
    tokens = BearerTokens({"very-secret-token": AgentContext(principal="ana")})
    assert "secret" not in repr(tokens)
    assert all(not isinstance(part, str) for pair in tokens._contexts for part in pair)


@pytest.mark.parametrize("token", ["", " ", "a b", "a\n"])
def test_impossible_tokens(token: str) -> None:
    """A token that no client could send is refused when it is configured."""
    with pytest.raises(ConfigurationError, match="bearer token"):
        BearerTokens({token: ANA})


@pytest.mark.parametrize("digest", ["", "abc", "G" * 64, "A" * 64])
def test_impossible_hashes(digest: str) -> None:
    """What is no hash is refused when it is configured."""
    with pytest.raises(ConfigurationError, match="SHA-256"):
        BearerTokens.from_hashes({digest: ANA})
