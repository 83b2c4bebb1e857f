"""Resources and prompts of a server, through the client and through a gateway."""

from __future__ import annotations

import base64
from pathlib import Path

import msgspec
import pytest
import trio

from carmy_engine import AgentError, App, Settings
from carmy_engine.abc import Completer, PromptReader, ResourceReader
from carmy_engine.content import Image, PromptResult, ReadResult, Text
from carmy_mcp import open_mcp
from carmy_mcp.client.executor import McpClient
from tests.mcp import far
from tests.mcp.test_client import request, scripted
from tests.mcp.test_client_asking import served
from tests.mcp.test_client_http import official


@pytest.mark.parametrize("old", [False, True], ids=["stateless", "sessions"])
async def test_the_official_server(*, old: bool) -> None:
    """What the official SDK's server lists can be read: texts, bytes, prompts with arguments."""
    with trio.fail_after(50):
        async with official(old=old) as url, open_mcp(url) as client:
            listed = await client.resources()
            assert [(spec.name, spec.uri) for spec in listed.resources] == [("first", "notes://first")]
            assert [spec.uri_template for spec in listed.templates] == ["pictures://{name}"]
            note = msgspec.json.decode((await client.read_resource("notes://first")).data_json or b"", type=ReadResult)
            assert [(part.mime_type, part.text) for part in note.contents] == [("text/markdown", "# milk")]
            read = await client.read_resource("pictures://cat")
            picture = msgspec.json.decode(read.data_json or b"", type=ReadResult)
            assert picture.contents[0].data == b"cat"
            (spec,) = (await client.prompts()).prompts
            assert spec.name == "greet"
            assert spec.arguments["required"] == ["name"]
            assert spec.arguments["properties"].keys() == {"name", "style"}
            got = await client.get_prompt("greet", {"name": "Ana"})
            prompt = msgspec.json.decode(got.data_json or b"", type=PromptResult)
            assert [message.content for message in prompt.messages] == [Text("Greet Ana, short!")]
            unknown = await client.read_resource("nothing://here")
            assert unknown.error is not None
            assert unknown.error.code == "RESOURCE_NOT_FOUND"


async def test_a_gateway_to_the_official_server() -> None:
    """Mounted, they are the application's own, with its prefix; images of tools stay images."""
    app = App("gateway").mount(
        open_mcp(far.official(), env=far.PATHS, tools={"picture": {"effect": "read"}}), prefix="far."
    )
    with trio.fail_after(50):
        async with app.open() as engine:
            assert [spec.uri for spec in (await engine.resources()).resources] == ["notes://first"]
            assert (await engine.read_resource("notes://first")).data["contents"][0]["text"] == "# milk"
            got = await engine.get_prompt("far.greet", {"name": "Ana"})
            assert got.data["messages"][0]["content"]["text"] == "Greet Ana, short!"
            picture = await engine.execute(request("far.picture"))
            data = base64.b64encode(b"\x89PNG").decode()
            assert picture.data == {"type": "image", "mime_type": "image/png", "data": data}


def reading() -> App:
    """An application of ours with resources and prompts."""
    app = App("reading", settings=Settings(address="127.0.0.1:0"))

    @app.resource("orders://{id}", completion=lambda argument, value, given: ["7", "77", "8"])
    async def order(id: str) -> Image:  # noqa: A002 - the variable of the address
        """An order."""
        return Image(id.encode(), "image/png")

    @app.prompt
    async def summary(order: int) -> str:
        """A summary."""
        return f"Summarise {order}!"

    return app


async def test_a_server_of_ours() -> None:
    """A server of this package gives what its engine gives: the same data, errors and completions."""
    app = reading()
    async with app.open() as engine, served(reading()) as url, open_mcp(url) as client:
        assert isinstance(client, ResourceReader | PromptReader | Completer)
        assert (await client.read_resource("orders://7")).data == (await engine.read_resource("orders://7")).data
        for arguments in ({"order": 7}, {"order": "seven"}, {}):
            theirs, ours = await client.get_prompt("summary", arguments), await engine.get_prompt("summary", arguments)
            assert (theirs.data, theirs.error and theirs.error.code) == (ours.data, ours.error and ours.error.code)
        assert (await client.complete("resource", "orders://{id}", "id", "7")).values == ("7", "77")
        with pytest.raises(AgentError, match="PROMPT_NOT_FOUND"):
            await client.complete("prompt", "nothing", "id", "7")


async def test_a_server_without_any(tmp_path: Path) -> None:
    """A server that declares neither is not asked for them."""
    client: McpClient
    async with scripted(tmp_path) as client:
        assert not (await client.resources()).resources
        assert not (await client.prompts()).prompts
        assert not (await client.complete("prompt", "a", "b", "")).values
        refused = await client.read_resource("notes://first")
        assert refused.error is not None
        assert refused.error.code == "TOOL_ERROR"
