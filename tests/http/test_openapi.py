"""The OpenAPI document: complete, per caller, cached, and true according to Schemathesis."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import hypothesis
import msgspec
import pytest
import requests
import schemathesis
import trio
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok

from carmy_engine import AgentContext, BearerTokens, RequireToolPermission, tool
from carmy_http.api.endpoints import BY_ID, ROUTES
from carmy_http.api.openapi import OPENAPI_PATH, OPERATIONS
from carmy_http.api.protected_resource import METADATA_PATH
from tests.http.tools import delete, echo, nothing
from tests.support.http import Running, serving

TOKEN = "t-0123456789abcdef-ana"
ANA = {"Authorization": f"Bearer {TOKEN}"}
PERMISSIONS = frozenset({"tool:echo", "tool:order", "tool:delete", "executions:list", "confirmations:answer"})
TOKENS = BearerTokens({TOKEN: AgentContext(principal="ana", permissions=PERMISSIONS)})
EXAMPLES = 8


class Item(msgspec.Struct, forbid_unknown_fields=True):
    """A line of an order."""

    product: str
    count: int = 1
    parts: list[Item] = []


@tool(effect="none", parallel_safe=True, register=False)
async def order(items: list[Item], note: str | None = None) -> int:
    """Count the lines."""
    return len(items)


async def fetch(server: Running, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    answer = await server.get(OPENAPI_PATH, headers)
    assert answer.status == 200
    document: dict[str, Any] = answer.json
    return document


def test_every_endpoint_is_documented() -> None:
    """The table has each method of each route, and nothing else; the metadata of OAuth has a document of its own."""
    routes = {
        (method.lower(), path)
        for path, route in ROUTES.items()
        if not path.startswith(METADATA_PATH)
        for method in route.methods
    }
    by_id = {(method.lower(), prefix) for prefix, route in BY_ID.items() for method in route.methods}
    documented = {(each.method, each.path.partition("{")[0]) for each in OPERATIONS}
    assert len(documented) == len(OPERATIONS)
    assert documented == routes | by_id


async def test_every_documented_address_exists() -> None:
    """``OPTIONS`` of each path allows exactly the documented methods."""
    async with serving(echo) as server:
        document = await fetch(server)
        for path, methods in document["paths"].items():
            answer = await server.get(path.replace("{", "").replace("}", ""), method="OPTIONS")
            allowed = set(answer.headers["allow"].lower().split(", ")) - {"head", "options"}
            assert (answer.status, allowed) == (204, set(methods)), path


async def test_document_lists_what_the_caller_may_use() -> None:
    """A tool that the caller may not use is nowhere in the document, and an unknown caller gets none."""
    async with serving(echo, nothing, order, policies=[RequireToolPermission()], authenticator=TOKENS) as server:
        refused = await server.get(OPENAPI_PATH)
        document = await fetch(server, ANA)
    assert (refused.status, refused.code) == (401, "UNAUTHENTICATED")
    assert document["openapi"] == "3.1.0"
    assert document["info"]["title"] == "shop"
    assert document["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    assert document["paths"]["/health"]["get"]["security"] == []
    schemas = document["components"]["schemas"]
    assert schemas["Call"]["discriminator"]["mapping"] == {
        "echo": "#/components/schemas/Call.echo",
        "order": "#/components/schemas/Call.order",
    }
    assert schemas["Call.order"]["required"] == ["tool", "arguments"]
    assert schemas["Call.echo"]["required"] == ["tool"]
    assert "nothing" not in json.dumps(list(schemas))


async def test_without_authenticator_and_tools() -> None:
    """Nothing asks for credentials, and the body of a call is the general one."""
    async with serving() as server:
        document = await fetch(server)
    assert "security" not in document
    assert "securitySchemes" not in document["components"]
    assert document["components"]["schemas"]["Call"] == {"$ref": "#/components/schemas/CallBody"}
    assert not [path for path, one in document["paths"].items() for each in one.values() if "401" in each["responses"]]


async def test_every_reference_resolves() -> None:
    """Also those inside the schemas of tools, which are recursive."""
    async with serving(order) as server:
        document = await fetch(server)

    def references(value: Any) -> list[str]:
        if isinstance(value, dict):
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [found for item in value.values() for found in references(item)]
        return [found for item in value for found in references(item)] if isinstance(value, list) else []

    found = set(references(document))
    assert any(each.startswith("#/components/schemas/Input.order/") for each in found)
    for reference in found:
        place: Any = document
        for part in reference.removeprefix("#/").split("/"):
            place = place[part]


async def test_cached_below_a_prefix() -> None:
    """The entity tag works as that of the discovery document does; the prefix is in ``servers``."""
    async with serving(echo, http={"root_path": "/shop"}) as server:
        first = await server.get("/shop" + OPENAPI_PATH)
        again = await server.get("/shop" + OPENAPI_PATH, {"if-none-match": first.headers["etag"]})
        assert first.json["servers"] == [{"url": "/shop"}]
    assert (again.status, again.headers["etag"]) == (304, first.headers["etag"])
    assert first.headers["cache-control"] == "private, max-age=60"


def attack(port: int, document: dict[str, Any]) -> list[int]:
    """Send valid and invalid requests to every operation, and check every answer against the document."""
    schema = schemathesis.openapi.from_dict(document)
    url = f"http://127.0.0.1:{port}"
    statuses: list[int] = []
    with requests.Session() as session:
        for found in schema.get_all_operations():
            assert isinstance(found, Ok)
            operation = found.ok()
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

                @hypothesis.given(case=operation.as_strategy(mode))
                @hypothesis.settings(
                    max_examples=EXAMPLES,
                    derandomize=True,
                    database=None,
                    deadline=None,
                    suppress_health_check=list(hypothesis.HealthCheck),
                    phases=[hypothesis.Phase.generate],
                )
                def check(case: Case) -> None:
                    # A call may ask for a deadline that it cannot meet: 504 is a true answer to a valid request.
                    answer = case.call_and_validate(
                        base_url=url, session=session, headers=ANA, excluded_checks=[not_a_server_error]
                    )
                    assert answer.status_code < 500 or answer.status_code == 504, answer.content
                    statuses.append(answer.status_code)

                try:
                    check()
                except Unsatisfiable:
                    # Without parameters and a body, no request is invalid.
                    assert mode is GenerationMode.NEGATIVE
                    assert not operation.body
    return statuses


@pytest.mark.timeout(60)
async def test_schemathesis() -> None:
    """Schemathesis finds no answer that the document does not describe: statuses, types, headers and bodies."""
    async with serving(echo, order, delete, policies=[RequireToolPermission()], authenticator=TOKENS) as server:
        document = await fetch(server, ANA)
        statuses = await trio.to_thread.run_sync(attack, server.port, document)
    assert {200, 400, 404} <= set(statuses)
