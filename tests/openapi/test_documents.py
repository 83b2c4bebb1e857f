"""Documents: where they come from, what is refused, and what a document of strangers can cost."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import fastapi
import httpx2
import pydantic
import pytest
import trio
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from carmy_engine import AgentError, App, DeclarationError, Effect, ExecutionRequest, StartupError
from tests.openapi.documents import ISSUES, PETS
from tests.openapi.test_requests import Server, call, specs_of


def document(**paths: Any) -> dict[str, Any]:
    return {
        "openapi": "3.1.0",
        "servers": [{"url": "http://a.example"}],
        "paths": {f"/{name}": item for name, item in paths.items()},
    }


def taking(schema: object) -> dict[str, Any]:
    """A path with an operation whose body has this schema."""
    return {"post": {"operationId": "op", "requestBody": {"content": {"application/json": {"schema": schema}}}}}


def problems_of(source: object, **options: Any) -> list[str]:
    found = App("x").openapi(source, **options).check()
    assert all(isinstance(problem, AgentError) and problem.code == "INVALID_SCHEMA" for problem in found)
    return [problem.message for problem in found if isinstance(problem, AgentError)]


async def test_a_document_comes_from_a_file_or_an_address(tmp_path: Path) -> None:
    """Relative addresses of servers are those of the document; the document is fetched when the application opens."""
    (tmp_path / "pets.json").write_text(json.dumps(PETS))
    async with App("pets").openapi(tmp_path / "pets.json", client=Server().client).open() as engine:
        assert len(await specs_of(engine)) == 5

    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, json=ISSUES if request.url.path.endswith(".json") else {})

    server = Server(answer)
    app = App("issues").openapi("https://forge.example/docs/v1.json", client=server.client, include=["meta/*"])
    assert app.check() == []
    assert server.requests == []
    async with app.open() as engine:
        await call(engine, "meta_get")
    assert str(server.last.url) == "https://forge.example/api/meta"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (httpx2.Response(404), "status 404"),
        (httpx2.Response(200, text="openapi: 3.1.0"), "convert YAML to JSON"),
        (httpx2.Response(200, text="[" * 100_000), "not JSON"),
        (httpx2.Response(200, json={"swagger": "2.0"}), "no member 'openapi'"),
        (httpx2.Response(200, content=b" " * (16 * 1024 * 1024 + 1)), "larger than"),
        (httpx2.Response(200, content=b"", headers={"content-encoding": "gzip"}), "compressed"),
    ],
)
async def test_documents_that_cannot_be_read(answer: httpx2.Response, says: str) -> None:
    """The start fails, and its error names the address and the reason."""
    app = App("x").openapi("https://a.example/openapi.json", client=Server(lambda _: answer).client)
    with pytest.raises(StartupError, match=says):
        async with app.open():
            pass


def test_all_problems_are_reported_together() -> None:
    """Each operation with its reason; what cannot be matched; and none of them hides another."""
    found = problems_of(
        document(
            remote={"get": {"parameters": [{"$ref": "https://evil.example/p.json"}]}},
            nothing=taking({"$ref": "#/components/schemas/None"}),
            media={"post": {"requestBody": {"content": {"application/x-ndjson": {}}}}},
            style={"get": {"parameters": [{"name": "a", "in": "query", "style": "matrix"}]}},
            anchor=taking({"$anchor": "a"}),
            **{"x/{id}": {"get": {}}},
            secret={"get": {"security": [{"key": []}]}},
            unnamed={"get": {"parameters": [{"in": "query"}]}},
        ),
        include=["*", "missing*"],
        effects={"none": "read"},
        credentials={"other": "x"},
    )
    expected = [
        ("GET /remote", "leads out of the document"),
        ("POST /nothing", "refers to nothing"),
        ("POST /media", "no form that can be written: application/x-ndjson"),
        ("GET /style", "has the style 'matrix', which a query has not"),
        ("POST /anchor", "has $anchor"),
        ("GET /x/{id}", "no parameter fills in id"),
        ("GET /secret", "pass credentials={'key': ...}"),
        ("GET /unnamed", "has no name"),
        ("include='missing*'", "matches no operation"),
        ("effects", "no operation 'none'"),
        ("credentials", "no security scheme 'other'"),
    ]
    assert len(found) == len(expected)
    for message, (place, reason) in zip(found, expected, strict=True):
        assert place in message
        assert reason in message


async def test_a_schema_that_cannot_be_checked_keeps_the_application_from_starting() -> None:
    """What the engine's own validator refuses is named by the tool."""
    with pytest.raises(StartupError, match="tool 'op': input_schema"):
        async with App("x").openapi(document(a=taking({"type": 7}))).open():
            pass


def deep(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


def chain(length: int) -> dict[str, Any]:
    schemas = {f"S{number}": {"$ref": f"#/components/schemas/S{number + 1}"} for number in range(length)}
    return {
        **document(a=taking({"$ref": "#/components/schemas/S0"})),
        "components": {"schemas": {**schemas, f"S{length}": {}}},
    }


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (document(a=taking(deep(100))), "more than 64 levels"),
        (document(a=taking({"anyOf": [{}] * 30_000})), "more than 20000 parts"),
        (chain(25_000), "more than 20000 parts"),
        (document(a={"$ref": "#/paths/~1a"}), "references follow each other"),
        (
            document(a={"get": {"parameters": [{"$ref": "#/paths/~1a/get/parameters/0"}]}}),
            "references follow each other",
        ),
        (document(**{f"p{number}": {"get": {}} for number in range(1001)}), "more than 1000 operations"),
        ({"openapi": "3.2.0"}, "its version is '3.2.0'"),
        ({}, "no member 'openapi'"),
    ],
)
def test_documents_of_strangers_have_bounds(source: dict[str, Any], says: str) -> None:
    """Depth, parts, references and operations are limited, and a circle ends."""
    before = sys.getrecursionlimit()
    found = problems_of(source)
    assert any(says in message for message in found), found[:3]
    assert sys.getrecursionlimit() == before


async def test_a_chain_of_definitions_is_followed_without_recursion() -> None:
    """A long one is converted step by step."""
    async with App("x").openapi(chain(3000), client=Server().client).open() as engine:
        assert len((await specs_of(engine))["op"].input_schema["$defs"]) == 3001


async def test_names_are_unique() -> None:
    """Operations without an id get one of method and path; equal names get numbers; arguments as well."""
    parameters = [{"name": "a b", "in": "query"}, {"name": "a_b", "in": "query"}, {"name": "body", "in": "header"}]
    source = document(
        a={"get": {}, "post": {"operationId": "get/a", "parameters": parameters}},
        b={"get": {"operationId": "get.a"}},
        c={"get": {"operationId": "get a"}},
    )
    async with App("x").openapi(source, client=Server().client).open() as engine:
        specs = await specs_of(engine)
    assert sorted(specs) == ["get.a", "get_a", "get_a_2", "get_a_3"]
    assert list(specs["get_a_2"].input_schema["properties"]) == ["a_b", "a_b_query", "body_header"]


async def test_operations_are_chosen() -> None:
    """By id, name or method and path, with stars; a name that another tool has is reported."""
    for include, exclude, names in (
        (["GET *"], [], ["getPet", "listPets"]),
        (["*Pet"], ["DELETE *", "setPet"], ["getPet"]),
        (["POST /pets"], [], ["create_pet"]),
    ):
        app = App("x").openapi(PETS, client=Server().client, include=include, exclude=exclude)
        async with app.open() as engine:
            assert sorted(await specs_of(engine)) == names
    app = App("x").openapi(PETS, client=Server().client).openapi(PETS, client=Server().client)
    with pytest.raises(StartupError, match="5 problems") as raised:
        async with app.open():
            pass
    assert {problem.code for problem in raised.value.problems if isinstance(problem, AgentError)} == {"DUPLICATE_TOOL"}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"include": "GET *"}, "lists of patterns"),
        ({"effects": {"a": "harmless"}}, "effects"),
        ({"credentials": {"a": "x\ny"}}, "no text that a header can carry"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], says: str) -> None:
    """Where they are given."""
    with pytest.raises(DeclarationError, match=says):
        App("x").openapi(PETS, **options)
    with pytest.raises(DeclarationError, match="asgi="):
        App("x").openapi(Starlette())


class Item(pydantic.BaseModel):
    name: str
    price: float = pydantic.Field(gt=0)


def shop(events: list[str]) -> fastapi.FastAPI:
    @contextlib.asynccontextmanager
    async def lifespan(_: fastapi.FastAPI) -> AsyncIterator[dict[str, str]]:
        events.append("start")
        yield {"greeting": "hi"}
        events.append("stop")

    made = fastapi.FastAPI(lifespan=lifespan)

    @made.get("/items/{number}", operation_id="item")
    async def item(number: int, request: fastapi.Request, q: str | None = None) -> dict[str, Any]:
        if number > 9:
            raise fastapi.HTTPException(404, "no such item")
        return {"number": number, "q": q, "greeting": request.state.greeting}

    @made.post("/items", operation_id="add")
    async def add(item: Item) -> Item:
        return item

    @made.get("/slow", operation_id="slow")
    async def slow() -> None:
        events.append("begun")
        try:
            await trio.sleep_forever()
        finally:
            events.append("cancelled")

    @made.get("/broken", operation_id="broken")
    async def broken() -> None:
        raise RuntimeError("secret")

    return made


async def test_an_application_in_process() -> None:
    """A FastAPI application runs beside the engine, lifespan included; deadlines cancel its handlers."""
    events: list[str] = []
    async with App("shop").openapi(shop(events)).open() as engine:
        assert events == ["start"]
        specs = await specs_of(engine)
        assert specs["item"].effect is Effect.READ
        assert await call(engine, "item", number=7, q="a b") == {"number": 7, "q": "a b", "greeting": "hi"}
        assert await call(engine, "add", body={"name": "mouse", "price": 9.5}) == {"name": "mouse", "price": 9.5}
        with pytest.raises(AgentError, match=r"HTTP_404: GET /items/\{number\} answered 404: no such item"):
            await call(engine, "item", number=10)
        with pytest.raises(AgentError, match="INVALID_ARGUMENTS"):
            await call(engine, "add", body={"name": "mouse", "price": -1})
        with pytest.raises(AgentError, match="HTTP_500") as raised:
            await call(engine, "broken")
        assert "secret" not in str(raised.value)
        result = await engine.execute(ExecutionRequest(tool="slow", timeout_ms=50))
        assert result.error is not None
        assert result.error.code == "TIMEOUT"
        assert events == ["start", "begun", "cancelled"]
    assert events[-1] == "stop"


async def test_another_application_needs_its_document() -> None:
    """Starlette has no document of its own."""

    async def hello(request: Any) -> JSONResponse:
        return JSONResponse({"hello": request.query_params["name"]})

    source = document(hello={"get": {"operationId": "hello", "parameters": [{"name": "name", "in": "query"}]}})
    del source["servers"]
    app = App("x").openapi(source, asgi=Starlette(routes=[Route("/hello", hello)]))
    async with app.open() as engine:
        assert await call(engine, "hello", name="Ana") == {"hello": "Ana"}


async def test_an_application_that_does_not_start() -> None:
    """Its failure is a problem of the start."""

    @contextlib.asynccontextmanager
    async def lifespan(_: fastapi.FastAPI) -> AsyncIterator[None]:
        raise RuntimeError("no database")
        yield

    app = App("x").openapi(fastapi.FastAPI(lifespan=lifespan))
    with pytest.raises(StartupError, match="the application has not started"):
        async with app.open():
            pass
