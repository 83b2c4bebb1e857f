"""Requests from the test suites of other HTTP projects, with the verdicts of those projects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from carmy_net.http1 import BodyReader, FramingError, HeadReader, read_head


class Fixture(NamedTuple):
    """A request, or several, as bytes.

    Attributes:
        data: What a client sends.
        valid: The verdict of the project that it comes from.
    """

    data: bytes
    valid: bool


FIXTURES = {
    name: Fixture(entry["bytes"].encode("latin-1"), entry["valid"])
    for name, entry in json.loads(Path(__file__).with_suffix(".json").read_text()).items()
}

_CODING = "only a single 'chunked' is understood"
_UPGRADED = "an upgrade is declined, so that what follows is the next request"
_NO_PROXY = "this server is no proxy"
_ROUTE = "the target has no address here, which is a 404"

DEPARTURES = {
    "gunicorn: invalid/009": "a limit of its own",
    "gunicorn: invalid/016": _ROUTE,
    "gunicorn: invalid/041": "what a repeated Content-Type means is up to the address",
    "gunicorn: invalid/rfc9112_chunked_missing_final_crlf_01": "the rest is waited for, and late",
    "gunicorn: invalid/rfc9112_target_asterisk_non_options_01": _ROUTE,
    "gunicorn: invalid/rfc9112_target_authority_non_connect_01": _ROUTE,
    "gunicorn: invalid/rfc9112_target_relative_01": _ROUTE,
    "gunicorn: valid/009": _CODING,
    "gunicorn: valid/025": _CODING,
    "gunicorn: valid/025_line": _CODING,
    "gunicorn: valid/027": "a target is ASCII (RFC 3986)",
    "gunicorn: valid/029": _CODING,
    "gunicorn: valid/030": _CODING,
    "gunicorn: valid/031": "HTTP/1.1 needs a Host",
    "gunicorn: valid/rfc9112_smuggle_gzip_chunked_01": _CODING,
    "gunicorn: valid/rfc9112_smuggle_te_identity_chunked_01": _CODING,
    "gunicorn: valid/rfc9112_target_authority_connect_01": _NO_PROXY,
    "gunicorn: valid/rfc9112_target_authority_ipv6_01": _NO_PROXY,
    "llhttp: sample: No HTTP version": "HTTP/0.9 is not spoken",
    "llhttp: method: SOURCE request with ICE": "another protocol",
    "llhttp: method: OPTIONS request with RTSP": "another protocol",
    "llhttp: method: ANNOUNCE request with RTSP": "another protocol",
    "llhttp: method: PRI request HTTP2": "a method like any other in HTTP/1.1",
    "llhttp: connection: No restart when keep-alive is off (1.0)": "the connection closes instead",
    "llhttp: connection: CRLF between requests, explicit `close`": "the connection closes instead",
    "llhttp: connection: CRLF between requests, explicit `close` followed by tab": "the connection closes instead",
    "llhttp: connection: Multiple tokens with folding and LWS": _UPGRADED,
    "llhttp: connection: Setting a flag and pausing": _UPGRADED,
    "llhttp: connection: Emitting part of body and pausing": _UPGRADED,
    "llhttp: connection: Upgrade GET request": _UPGRADED,
    "llhttp: connection: Upgrade POST request": _UPGRADED,
    "llhttp: transfer-encoding: Parsing and setting flag": "an empty line is no chunk size",
    "llhttp: transfer-encoding: POST with `chunked` as last transfer-encoding": _CODING,
    "llhttp: transfer-encoding: POST with `chunked` as last transfer-encoding (multiple headers)": _CODING,
    "llhttp: transfer-encoding: Missing last-chunk": "the rest is waited for, and late",
    "llhttp: invalid: HTTP protocol and ANNOUNCE method": "any method is one, and an unknown one a 405",
    "llhttp: invalid: Invalid method": "any method is one, and an unknown one a 405",
}
"""Fixtures on which this project decides otherwise, each with the reason."""


def is_refused(data: bytes) -> bool:
    """Whether some part of these bytes is no HTTP/1, read as a connection is that closes when its client asks for that."""
    buffer, heads = bytearray(data), HeadReader()
    try:
        while (raw := heads.take(buffer)) is not None:
            head = read_head(raw)
            body = BodyReader(head.length)
            body.take(buffer)
            if not body.complete or not head.keep_alive:
                break
    except FramingError:
        return True
    return False
