"""Operations as tools: names, schemas, and the requests that they send."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest
import trio
import trio.testing

from carmy_engine import AgentError, App, Effect, Engine, ExecutionRequest, PublicSpec
from tests.openapi.documents import ISSUES, PETS, UPLOADS

Answering = Callable[[httpx2.Request], httpx2.Response]


class Server:
    """A server in memory that stores the requests."""

    def __init__(self, answer: Answering | None = None) -> None:
        self.requests: list[httpx2.Request] = []
        self._answer = answer or (lambda _: httpx2.Response(200, json={"ok": True}))
        self.client = httpx2.AsyncClient(transport=httpx2.MockTransport(self._handle))

    async def _handle(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        return self._answer(request)

    @property
    def last(self) -> httpx2.Request:
        return self.requests[-1]


async def call(engine: Engine, tool: str, request_id: str | None = None, **arguments: Any) -> Any:
    bound = engine.bind(permissions={f"confirm:{tool}"})
    request = ExecutionRequest(tool=tool, arguments=arguments, request_id=request_id)
    return (await bound.execute(request)).unwrap()


async def specs_of(engine: Engine) -> dict[str, PublicSpec]:
    return {spec.name: spec for spec in (await engine.catalog()).tools}


async def test_operations_become_tools() -> None:
    """Names are made safe, effects come from the methods, and titles and descriptions from the document."""
    app = App("pets").openapi(PETS, client=Server().client, prefix="pets.", effects={"getPet": "none"})
    async with app.open() as engine:
        specs = await specs_of(engine)
    assert [(spec.name, spec.effect, spec.idempotent) for spec in specs.values()] == [
        ("pets.create_pet", Effect.EXTERNAL_WRITE, False),
        ("pets.getPet", Effect.NONE, True),
        ("pets.listPets", Effect.READ, True),
        ("pets.removePet", Effect.DESTRUCTIVE, True),
        ("pets.setPet", Effect.EXTERNAL_WRITE, True),
    ]
    assert specs["pets.listPets"].title == "List pets"
    assert specs["pets.create_pet"].description == "Add a pet."


async def test_schemas_are_those_of_json_schema() -> None:
    """References, nullable types, limits and read-only fields of OpenAPI 3.0 have their form of 2020-12; keys are hidden."""
    async with App("pets").openapi(PETS, client=Server().client).open() as engine:
        specs = await specs_of(engine)
    listing = specs["listPets"].input_schema
    assert listing["properties"]["limit"] == {"type": "integer", "exclusiveMinimum": 0}
    assert list(listing["properties"]) == ["X-Trace", "limit", "tags", "ids", "filter", "session"]
    created = specs["create_pet"].input_schema
    assert created["required"] == ["body"]
    assert list(created["properties"]) == ["X-Trace", "body"]
    pet = created["$defs"]["Pet"]
    assert pet["required"] == ["name"]
    assert pet["properties"] == {
        "name": {"type": "string"},
        "nick": {"type": ["string", "null"]},
        "parent": {"$ref": "#/$defs/Pet"},
        "owner": {"anyOf": [{"allOf": [{"$ref": "#/$defs/Owner"}]}, {"type": "null"}]},
    }


async def test_parameters_are_written_in_their_styles() -> None:
    """Lists and objects in the query, headers and cookies, in the forms that the document asks for."""
    server = Server()
    async with App("pets").openapi(PETS, client=server.client).open() as engine:
        found = await call(
            engine,
            "listPets",
            limit=3,
            tags=["a b", "c&d"],
            ids=[1, 2],
            filter={"age": 3, "kind": ["cat", "dog"]},
            session="x y",
            **{"X-Trace": "t-1"},
        )
        assert found == {"ok": True}
        assert str(server.last.url) == (
            "https://eu.pets.example/v1/pets?limit=3&tags=a%20b&tags=c%26d&ids=1,2"
            "&filter[age]=3&filter[kind]=cat&filter[kind]=dog"
        )
        assert (server.last.headers["x-trace"], server.last.headers["cookie"]) == ("t-1", "session=x%20y")
        await call(engine, "getPet", petId="a/b?c#é")
        assert server.last.url.raw_path == b"/v1/pets/a%2Fb%3Fc%23%C3%A9"
        for bad in ("..", ".", ""):
            with pytest.raises(AgentError, match="'petId' cannot be a segment of a path"):
                await call(engine, "getPet", petId=bad)
        with pytest.raises(AgentError, match="'X-Trace' has characters that a header cannot carry"):
            await call(engine, "listPets", **{"X-Trace": "a\r\nb: c"})
        with pytest.raises(AgentError, match="INVALID_ARGUMENTS"):
            await call(engine, "listPets", limit=0)
        assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("style", "explode", "value", "written"),
    [
        ("simple", False, [3, 4], "3,4"),
        ("simple", False, {"a": 1, "b": 2}, "a,1,b,2"),
        ("simple", True, {"a": 1, "b": 2}, "a=1,b=2"),
        ("label", False, [3, 4], ".3,4"),
        ("label", True, [3, 4], ".3.4"),
        ("label", True, {"a": 1}, ".a=1"),
        ("matrix", False, 5, ";v=5"),
        ("matrix", False, [3, 4], ";v=3,4"),
        ("matrix", True, [3, 4], ";v=3;v=4"),
        ("matrix", False, {"a": 1}, ";v=a,1"),
        ("matrix", True, {"a": 1, "b": True}, ";a=1;b=true"),
    ],
)
async def test_styles_of_paths(style: str, explode: bool, value: object, written: str) -> None:
    """The table of examples of the specification."""
    parameter = {"name": "v", "in": "path", "required": True, "style": style, "explode": explode, "schema": {}}
    document = {
        "openapi": "3.1.0",
        "servers": [{"url": "http://a.example"}],
        "paths": {"/x/{v}": {"get": {"operationId": "get", "parameters": [parameter]}}},
    }
    server = Server()
    async with App("x").openapi(document, client=server.client).open() as engine:
        await call(engine, "get", v=value)
    assert server.last.url.path == f"/x/{written}"


@pytest.mark.parametrize(
    ("style", "explode", "value", "written"),
    [
        ("form", True, {"a": 1, "b": "x y"}, "a=1&b=x%20y"),
        ("form", False, {"a": 1}, "v=a,1"),
        ("spaceDelimited", False, [1, 2], "v=1%202"),
        ("pipeDelimited", False, [1, 2], "v=1%7C2"),
        ("form", False, [], ""),
        ("form", True, [None, "a"], "v=&v=a"),
        ("form", True, True, "v=true"),
        ("form", True, 2**60, f"v={2**60}"),
    ],
)
async def test_styles_of_queries(style: str, explode: bool, value: object, written: str) -> None:
    """The same for queries."""
    parameter = {"name": "v", "in": "query", "style": style, "explode": explode, "schema": {}}
    document = {
        "openapi": "3.1.0",
        "servers": [{"url": "http://a.example"}],
        "paths": {"/x": {"get": {"operationId": "get", "parameters": [parameter]}}},
    }
    server = Server()
    async with App("x").openapi(document, client=server.client).open() as engine:
        await call(engine, "get", v=value)
    assert server.last.url.query.decode() == written


async def test_bodies_are_written_in_their_forms() -> None:
    """JSON, forms, forms with files, bytes and texts."""
    server = Server()
    async with App("pets").openapi(PETS, client=server.client).open() as engine:
        await call(engine, "setPet", petId="1", body={"name": "Rex", "nick": None})
        assert server.last.headers["content-type"] == "application/json"
        assert json.loads(server.last.content) == {"name": "Rex", "nick": None}
        with pytest.raises(AgentError, match="INVALID_ARGUMENTS"):
            await call(engine, "setPet", petId="1", body={"nick": "R"})
    async with App("files").openapi(UPLOADS, client=server.client).open() as engine:
        await call(engine, "charge", body={"amount": 5, "note": "a&b", "tags": ["x", "y"]})
        assert server.last.headers["content-type"] == "application/x-www-form-urlencoded"
        assert server.last.content == b"amount=5&note=a%26b&tags=x&tags=y"
        await call(engine, "upload", body={"file": "iVBORw==", "purpose": "p", "meta": {"a": 1}})
        boundary = server.last.headers["content-type"].partition("boundary=")[2]
        parts = server.last.content.split(f"--{boundary}".encode())
        assert b'name="file"; filename="file"\r\ncontent-type: image/png\r\n\r\n\x89PNG\r\n' in parts[1]
        assert parts[2] == b'\r\ncontent-disposition: form-data; name="purpose"\r\n\r\np\r\n'
        assert parts[3].endswith(b'content-type: application/json\r\n\r\n{"a":1}\r\n')
        assert parts[4] == b"--\r\n"
        await call(engine, "raw", body="AAE=")
        assert server.last.content == b"\0\1"
        with pytest.raises(AgentError, match="'body' must be base64"):
            await call(engine, "raw", body="no base64!")
        await call(engine, "note", body="é")
        assert (server.last.content, server.last.headers["content-type"]) == ("é".encode(), "text/plain; charset=utf-8")


async def test_credentials_come_from_the_host() -> None:
    """They are no arguments; each operation carries those of its first alternative that is configured."""
    server = Server()

    def app(**credentials: str) -> App:
        return App("issues").openapi(
            ISSUES, client=server.client, base_url="https://forge.example/", credentials=credentials
        )

    async with app(token="t0ken", session="s").open() as engine:
        specs = await specs_of(engine)
        assert list(specs["issues_list-for-repo"].input_schema["properties"]) == ["owner", "repo", "state"]
        await call(engine, "issues_list-for-repo", owner="o", repo="r")
        assert server.last.headers["authorization"] == "Bearer t0ken"
        assert str(server.last.url) == "https://forge.example/repos/o/r/issues"
        await call(engine, "meta_get")
        assert "authorization" not in server.last.headers
        await call(engine, "search", q={"text": "a"})
        assert server.last.headers["cookie"] == "sid=s"
        assert str(server.last.url) == "https://forge.example/search?q=%7B%22text%22%3A%22a%22%7D"
    async with app(token="t", key="k&y").open() as engine:
        assert list((await specs_of(engine))["search"].input_schema["properties"]) == ["q"]
        await call(engine, "search", q={})
        assert server.last.url.query == b"q=%7B%7D&api_key=k%26y"


async def test_the_idempotency_key_is_that_of_the_request() -> None:
    """The same request_id of the same caller gives the same key, another caller another one."""
    server = Server(lambda _: httpx2.Response(503, headers={"retry-after": "7"}))
    keys: list[str] = []
    async with App("pets").openapi(PETS, client=server.client).open() as engine:
        for principal, request_id in (("ana", "r1"), ("ana", "r1"), ("bea", "r1"), ("ana", None)):
            request = ExecutionRequest(tool="create_pet", arguments={"body": {"name": "R"}}, request_id=request_id)
            result = await engine.bind(principal=principal).execute(request)
            assert result.error is not None
            assert (result.error.retryable, result.error.retry_after) == (True, 7)
            keys.append(server.last.headers["idempotency-key"])
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        (httpx2.Response(200, json=[1, None]), [1, None]),
        (httpx2.Response(200, text="hi"), "hi"),
        (httpx2.Response(204), None),
        (
            httpx2.Response(200, content=b"\0\1", headers={"content-type": "image/png"}),
            {"mime_type": "image/png", "data": "AAE="},
        ),
        (httpx2.Response(200, content=b'{"a":1}', headers={"content-type": "application/hal+json"}), {"a": 1}),
    ],
)
async def test_answers_become_data(answer: httpx2.Response, value: object) -> None:
    """JSON as it is, texts, nothing, and bytes in base64."""
    async with App("pets").openapi(PETS, client=Server(lambda _: answer).client).open() as engine:
        assert await call(engine, "getPet", petId="1") == value


@pytest.mark.parametrize(
    ("answer", "code", "category", "message"),
    [
        (
            httpx2.Response(404, json={"detail": "no pet"}),
            "HTTP_404",
            "not_found",
            "GET /pets/{petId} answered 404: no pet",
        ),
        (httpx2.Response(422, json={"detail": [{"msg": "bad id"}]}), "HTTP_422", "validation", ": bad id"),
        (httpx2.Response(401, json={"error": {"message": "who?"}}), "HTTP_401", "permission", ": who?"),
        (httpx2.Response(409, text="taken"), "HTTP_409", "conflict", ": taken"),
        (httpx2.Response(429, headers={"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}), "HTTP_429", "capacity", "429"),
        (httpx2.Response(500, text="x" * 9000), "HTTP_500", "internal", "answered 500"),
        (httpx2.Response(302, headers={"location": "http://other"}), "HTTP_302", "internal", "answered 302"),
        (
            httpx2.Response(200, content=b"{", headers={"content-type": "application/json"}),
            "INVALID_ANSWER",
            "validation",
            "json",
        ),
        (httpx2.Response(200, content=b"x" * 2000), "OUTPUT_TOO_LARGE", "capacity", "larger than 1000 bytes"),
    ],
)
async def test_errors_of_an_api(answer: httpx2.Response, code: str, category: str, message: str) -> None:
    """The status decides on code and category; the API's own reason is part of the message."""
    app = App("pets").openapi(PETS, client=Server(lambda _: answer).client, max_response_bytes=1000)
    if code == "HTTP_500":
        app = App("pets").openapi(PETS, client=Server(lambda _: answer).client)
    async with app.open() as engine:
        with pytest.raises(AgentError) as raised:
            await call(engine, "getPet", petId="1")
    error = raised.value
    assert (error.code, error.category) == (code, category)
    assert message in error.message
    assert error.retryable is (code == "HTTP_429")
    assert error.retry_after == (0 if code == "HTTP_429" else None)


def broken(request: httpx2.Request) -> httpx2.Response:
    raise httpx2.ReadError("lost", request=request)


def unreachable(request: httpx2.Request) -> httpx2.Response:
    raise httpx2.ConnectError("refused", request=request)


async def test_lost_connections() -> None:
    """Nothing was sent, it may be repeated, or it is in doubt: three outcomes."""
    for answer, tool, code in (
        (unreachable, "create_pet", "EXECUTOR_UNAVAILABLE"),
        (broken, "getPet", "EXECUTOR_UNAVAILABLE"),
        (broken, "create_pet", "EXECUTION_UNCERTAIN"),
    ):
        async with App("pets").openapi(PETS, client=Server(answer).client).open() as engine:
            arguments: dict[str, Any] = {"petId": "1"} if tool == "getPet" else {"body": {"name": "R"}}
            with pytest.raises(AgentError, match=code):
                await call(engine, tool, **arguments)


class Slow(httpx2.AsyncBaseTransport):
    """A server that never answers."""

    def __init__(self) -> None:
        self.cancelled = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            await trio.sleep_forever()
        finally:
            self.cancelled += 1


async def test_deadlines_reach_the_request(autojump_clock: trio.testing.MockClock) -> None:
    """The request ends with the call."""
    slow = Slow()
    app = App("pets", timeout=5).openapi(PETS, client=httpx2.AsyncClient(transport=slow, timeout=None))
    async with app.open() as engine:
        with pytest.raises(AgentError, match="TIMEOUT"):
            await call(engine, "getPet", petId="1")
    assert slow.cancelled == 1
