"""Certificates of an authority of our own, and servers with TLS."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import trustme

from tests.support.http import Running, serving


class Certificates(NamedTuple):
    """Files in PEM."""

    ca: str
    cert: str
    key: str

    def context(self, *protocols: str) -> ssl.SSLContext:
        """For a client that offers these protocols by ALPN."""
        context = ssl.create_default_context(cafile=self.ca)
        if protocols:
            context.set_alpn_protocols(protocols)
        return context

    @property
    def settings(self) -> dict[str, Any]:
        return {"tls_cert": self.cert, "tls_key": self.key, "http2": True}


@cache
def _authority() -> trustme.CA:
    return trustme.CA()


@contextmanager
def certificates() -> Iterator[Certificates]:
    """A certificate for loopback, its key, and the certificate of the authority."""
    leaf = _authority().issue_cert("localhost", "127.0.0.1")
    with tempfile.TemporaryDirectory() as folder:
        found = Certificates(*(str(Path(folder, name)) for name in ("ca.pem", "cert.pem", "key.pem")))
        _authority().cert_pem.write_to_path(found.ca)
        Path(found.cert).write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        leaf.private_key_pem.write_to_path(found.key)
        yield found


class Secured(NamedTuple):
    """A server with TLS."""

    server: Running
    certificates: Certificates

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server.port}"


@asynccontextmanager
async def serving_tls(
    *tools: Callable[..., Any], http: dict[str, Any] | None = None, **more: Any
) -> AsyncIterator[Secured]:
    """A server with TLS and HTTP/2, on the front end that ``auto`` takes then."""
    with certificates() as files:
        async with serving(*tools, http={"server": "auto", **files.settings, **(http or {})}, **more) as server:
            yield Secured(server, files)
