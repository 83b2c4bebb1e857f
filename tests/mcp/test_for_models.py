"""The texts that a model reads in results of calls: plain, short, and without what only its host can act on."""

from __future__ import annotations

from typing import Any

import pytest

from carmy_engine import App
from tests.mcp.http import VERSIONS
from tests.mcp.inside import Client, Ran, connected

TEXT = 'First "line"\nsecond line, with a tab\tand ü \\ \u2028'


def app_of() -> App:
    """A tool that returns a text, and one that needs a confirmation."""
    app = App("test")

    @app.tool(effect="none")
    async def say(count: int = 1) -> str:
        """Return a text with characters that JSON escapes."""
        return TEXT

    @app.tool(effect="destructive")
    async def destroy(name: str) -> str:
        """Needs a confirmation."""
        return name

    return app


async def text_and_meta(client: Client, tool: str, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The one text in the result of a call, and its ``_meta``."""
    result = await client.result(tool, arguments)
    (block,) = result["content"]
    assert block["type"] == "text"
    return block["text"], result["_meta"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_text_is_plain_text_and_not_json_in_quotes(version: str) -> None:
    """The block has the characters that the tool returned; structured content has the same text."""
    async with connected(Ran(), app=app_of(), version=version) as client:
        result = await client.result("say", {})
        assert result["content"] == [{"type": "text", "text": TEXT}]
        assert result["structuredContent"] == {"result": TEXT}


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_refusal_is_short_for_the_model_and_whole_for_its_host(version: str) -> None:
    """The text names the problems and is no longer than the message of the error; the details are in ``_meta``."""
    async with connected(Ran(), app=app_of(), version=version) as client:
        text, meta = await text_and_meta(client, "say", {"count": "x", "cuont": 1})
        error = meta["carmy/error"]
        assert text == f"invalid arguments: {error['message']}"
        assert [problem["path"] for problem in error["details"]["problems"]] == ["count", "cuont"]
        assert "{" not in text


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_refused_confirmation_tells_the_model_only_what_it_can_do(version: str) -> None:
    """The text names no permission and no second call; how the host grants it is in ``_meta``."""
    async with connected(Ran(), app=app_of(), version=version) as client:
        text, meta = await text_and_meta(client, "destroy", {"name": "x"})
        assert "confirm:" not in text
        assert "permission" not in text
        assert "call again" not in text
        assert "Ask the person" in text
        details = meta["carmy/error"]["details"]
        assert details.pop("confirmation_id").startswith("conf_")
        assert details == {"permission": "confirm:destroy", "expires_in": 600}
        assert meta["carmy/next_actions"] == [
            {"tool": "destroy", "reason": "call again once a person has confirmed this call"}
        ]
