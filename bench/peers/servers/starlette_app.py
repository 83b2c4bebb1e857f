"""Starlette on uvicorn, validated and rendered by pydantic: ``starlette_app.py PORT``."""

from __future__ import annotations

import sys

import pydantic
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bench.peers.servers.catalog import PRODUCTS


class Search(pydantic.BaseModel):
    query: str
    limit: int = 10


class Product(pydantic.BaseModel):
    sku: str
    name: str
    price_cents: int


CATALOG = [Product(**product) for product in PRODUCTS]
WRITE = pydantic.TypeAdapter(list[Product]).dump_json


async def search(request: Request) -> Response:
    body = Search.model_validate_json(await request.body())
    found = [product for product in CATALOG if body.query in product.name][: body.limit]
    return Response(WRITE(found), media_type="application/json")


app = Starlette(routes=[Route("/search", search, methods=["POST"])])

if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), loop="uvloop", http="httptools", access_log=False, log_level="warning")
