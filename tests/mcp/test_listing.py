"""What a catalog looks like to clients."""

from __future__ import annotations

import re
from typing import Any

import jsonschema
import pytest
import trio.testing
from mcp import types

from carmy_engine import App, Catalog, Confirmation, Effect, McpSettings, PublicSpec, RequireToolPermission, Settings
from carmy_mcp.protocol.listing import PAGE_TOOLS, StaleCursorError, page_of
from carmy_mcp.server import tools as server_tools
from tests.mcp.inside import MODERN, Ran, code, connected

NODE = {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}}}


def spec(name: str = "t", output: dict | None = None) -> PublicSpec:
    return PublicSpec(
        name=name,
        description="",
        input_schema={"type": "object"},
        output_schema={"type": "object"} if output is None else output,
        effect=Effect.NONE,
        idempotent=False,
        parallel_safe=True,
        confirmation=Confirmation.NONE,
    )


def listed(output: dict) -> dict | None:
    catalog = Catalog(tools=(spec(output=output),), document=b"", version="v")
    return page_of(catalog, None)[0][0].get("outputSchema")


def test_pages() -> None:
    """A long list comes in pages without gaps; a cursor of another catalog, or an invented one, is refused."""
    names = [f"t{number:04}" for number in range(2 * PAGE_TOOLS + 1)]
    catalog = Catalog(tools=tuple(map(spec, names)), document=b"", version="v1")
    tools, cursor = page_of(catalog, None)
    first = cursor
    while cursor is not None:
        page, cursor = page_of(catalog, cursor)
        tools += page
    assert [tool["name"] for tool in tools] == names
    other = Catalog(tools=catalog.tools, document=b"", version="v2")
    for bad in (first, "", "x", "é", "MTp2Mg"):
        assert bad is not None
        with pytest.raises(StaleCursorError):
            page_of(other, bad)


@pytest.mark.parametrize(
    ("output", "value"),
    [
        ({"type": "string"}, "x"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, None),
        ({"$ref": "#/$defs/Node", "$defs": {"Node": NODE}}, {"next": {"next": None}}),
    ],
)
def test_outputs_that_are_no_objects(output: dict, value: object) -> None:
    """Their schema is that of the member ``result``, and the wrapped value fits it."""
    schema = listed(output)
    assert schema is not None
    jsonschema.validate({"result": value}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"result": [3.5]}, schema)


def test_objects_stay_as_they_are() -> None:
    """An object's schema is listed unchanged."""
    assert listed(NODE | {"$defs": {"Node": NODE}}) == NODE | {"$defs": {"Node": NODE}}


def test_a_schema_that_cannot_be_moved() -> None:
    """One that refers to its own root has no place in another, so none is listed."""
    assert listed({"type": "array", "items": {"$ref": "#"}}) is None


@pytest.mark.parametrize("version", ["2024-11-05", MODERN])
async def test_a_caller_lists_what_it_may_call(version: str) -> None:
    """Page by page, in order, and nothing else; what is not listed cannot be called, and a made-up cursor is refused."""
    app = App("many").policy(RequireToolPermission())
    names = [f"t{number:04}" for number in range(PAGE_TOOLS + 10)]

    def declare(name: str) -> None:
        @app.tool(effect="none", name=name)
        async def nothing() -> None:
            """Do nothing."""

    for name in names:
        declare(name)
    bound = {"permissions": {f"tool:{name}" for name in names if name != "t0003"}}
    async with connected(Ran(), app=app, version=version, bound=bound) as client:
        first = await client.outcome("tools/list")
        assert len(first["tools"]) == PAGE_TOOLS
        second = await client.outcome("tools/list", cursor=first["nextCursor"])
        assert "nextCursor" not in second
        listed = [tool["name"] for tool in first["tools"] + second["tools"]]
        assert listed == [name for name in names if name != "t0003"]
        assert code(await client.result("t0003", {})) == "FORBIDDEN"
        assert code(await client.result("t0004", {})) == "ok"
        assert (await client.outcome("tools/list", cursor="x"))["code"] == types.INVALID_PARAMS


async def test_a_client_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it asks, lists are written only as fast as it reads them; then it gets all of them."""
    rendered: list[object] = []

    def counting(*arguments: Any) -> Any:
        rendered.append(arguments)
        return page_of(*arguments)

    monkeypatch.setattr(server_tools, "page_of", counting)
    app = App("large")

    @app.tool(effect="none", description="x" * 1_500_000)
    async def large() -> None:
        """Replaced."""

    async with connected(Ran(), app=app) as client:
        for _ in range(20):
            await client.request("tools/list")
        await trio.testing.wait_all_tasks_blocked()
        assert len(rendered) < 5
        for _ in range(20):
            assert len((await client.receive())["result"]["tools"]) == 1


NAMES = ["plain_name-1", "with.dot", "with_dot", "x" * 65, "x" * 64]


def named() -> App:
    """An application whose tools have all kinds of names."""
    app = App("named")

    def declare(name: str) -> None:
        @app.tool(effect="none", name=name)
        async def nothing() -> str:
            """Say which one it is."""
            return name

    for name in NAMES:
        declare(name)
    return app


async def test_names_that_common_clients_refuse() -> None:
    """Each tool is listed under a name of its own that they take, and is called by it, or by the name that it was given."""
    async with connected(Ran(), app=named()) as client:
        listed = (await client.outcome("tools/list"))["tools"]
        assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", tool["name"]) for tool in listed)
        assert len({tool["name"] for tool in listed}) == len(NAMES)
        assert {tool.get("title", tool["name"]) for tool in listed} == set(NAMES)
        for tool in listed:
            own = tool.get("title", tool["name"])
            for name in (tool["name"], own):
                assert (await client.result(name, {}))["structuredContent"] == {"result": own}


@pytest.mark.parametrize("text", ["x" * 5000, "é" * 3000])
async def test_a_text_that_structured_content_has_as_well(text: str) -> None:
    """It is cut at the limit, and states how much is missing; the structured content is whole."""
    app = App("long", settings=Settings(mcp=McpSettings(max_text_bytes=1000)))

    @app.tool(effect="none")
    async def long(as_list: bool) -> str | list[str]:
        """Return much."""
        return [text] if as_list else text

    async with connected(Ran(), app=app) as client:
        for as_list in (False, True):
            result = await client.result("long", {"as_list": as_list})
            assert result["structuredContent"] == {"result": [text] if as_list else text}
            shown = result["content"][0]["text"]
            assert len(shown.encode()) < 1100
            left = int(shown.rpartition("(")[2].partition(" ")[0])
            assert left + len(shown.rpartition("…")[0]) == len(text) + 4 * as_list
