"""The command ``call`` with the URL of a server that it cannot reach."""

from __future__ import annotations

import pytest
import trio

from carmy_engine import ExecutionRequest
from carmy_engine.cli._outcome import Failure
from carmy_engine.cli._remote import RemoteServer
from tests.http_client.test_connecting import listening, of_an_unknown_authority


@pytest.mark.parametrize("has_tls", [True, False])
async def test_a_failed_handshake_is_reported_in_the_words_of_tls(has_tls: bool) -> None:
    """The failure has the reason that TLS gives."""
    words = "TLS: the certificate is not valid: unable to get local issuer" if has_tls else "TLS: "
    with trio.fail_after(20):
        async with listening(of_an_unknown_authority() if has_tls else None) as port:
            with pytest.raises(Failure) as raised:
                await trio.to_thread.run_sync(
                    RemoteServer(f"https://127.0.0.1:{port}").call, ExecutionRequest(tool="x")
                )
    assert words in str(raised.value)
