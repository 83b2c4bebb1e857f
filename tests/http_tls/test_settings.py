"""The settings of TLS and HTTP/2, and the front end that ``auto`` stands for."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from carmy_engine import ConfigurationError, HttpSettings, Settings, open_engine
from carmy_http import serve
from carmy_http.server import http_problems
from carmy_http.tls import front_end_of, tls_context
from tests.support.tls import certificates


@pytest.mark.parametrize(
    ("settings", "front_end"),
    [
        ({}, "native"),
        ({"tls_cert": "c", "tls_key": "k"}, "hypercorn"),
        ({"http2": True}, "hypercorn"),
        ({"server": "hypercorn"}, "hypercorn"),
        ({"server": "native"}, "native"),
    ],
)
def test_auto_takes_the_front_end_that_can(settings: dict[str, Any], front_end: str) -> None:
    """``auto`` is hypercorn where TLS or HTTP/2 is configured, and native otherwise."""
    assert front_end_of(HttpSettings(**settings)) == front_end


async def problems_of(**settings: Any) -> list[str]:
    """What `check` reports; serving has to raise one of the same."""
    whole = Settings(address="127.0.0.1:0", http=HttpSettings(**settings))
    found = [str(problem) for problem in await http_problems(whole, authenticated=False)]
    if found:
        async with open_engine(tools=[], settings=whole) as engine:
            with pytest.raises(ConfigurationError) as raised:
                await serve(engine)
        assert str(raised.value) in found
    return found


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"tls_cert": "CERT"}, ["http.tls_key"]),
        ({"tls_key": "KEY"}, ["http.tls_cert"]),
        ({"http2": True}, ["http.http2 needs http.tls_cert"]),
        ({"server": "native", "tls_cert": "CERT", "tls_key": "KEY"}, ["http.tls_cert needs", "http.tls_key needs"]),
        (
            {"server": "native", "tls_cert": "CERT", "tls_key": "KEY", "http2": True},
            ["cert", "key", "http.http2 needs"],
        ),
        ({"tls_cert": "/no/such", "tls_key": "KEY"}, ["http.tls_cert = '/no/such' cannot be read: No such file"]),
        ({"tls_cert": "CERT", "tls_key": "/no/such"}, ["http.tls_key = '/no/such' cannot be read: No such file"]),
        ({"tls_cert": "/", "tls_key": "KEY"}, ["http.tls_cert = '/' cannot be read: Is a directory"]),
        ({"tls_cert": "a\0b", "tls_key": "KEY"}, ["cannot be read"]),
        ({"tls_cert": "KEY", "tls_key": "KEY"}, ["are not a certificate chain"]),
        ({"tls_cert": "CERT", "tls_key": "CERT"}, ["are not a certificate chain"]),
        ({"tls_cert": "CERT", "tls_key": "OTHER"}, ["is not the key of the certificate"]),
    ],
)
async def test_settings_that_cannot_serve_are_named(settings: dict[str, Any], named: list[str]) -> None:
    """A contradiction or a file that cannot be used is reported with the name of its setting, before anything listens."""
    with certificates() as files, certificates() as others:
        paths = {"CERT": files.cert, "KEY": files.key, "OTHER": others.key}
        found = await problems_of(**{name: paths.get(value, value) for name, value in settings.items()})
    assert len(found) == len(named)
    for problem, part in zip(found, named, strict=True):
        assert part in problem


async def test_good_files_are_no_problem() -> None:
    """A certificate and its key, with and without HTTP/2, are accepted."""
    with certificates() as files:
        assert await problems_of(tls_cert=files.cert, tls_key=files.key) == []
        assert await problems_of(**files.settings) == []
        assert tls_context(HttpSettings(**files.settings)).minimum_version == ssl.TLSVersion.TLSv1_2


async def test_a_key_with_a_passphrase_is_refused_without_asking(tmp_path: Path) -> None:
    """An encrypted key is a problem; the terminal is not asked for its passphrase."""
    with certificates() as files:
        from cryptography.hazmat.primitives.serialization import (
            BestAvailableEncryption,
            Encoding,
            PrivateFormat,
            load_pem_private_key,
        )

        key = load_pem_private_key(Path(files.key).read_bytes(), None)
        locked = tmp_path / "locked.pem"
        locked.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")))
        (problem,) = await problems_of(tls_cert=files.cert, tls_key=str(locked))
    assert "unencrypted private key" in problem
