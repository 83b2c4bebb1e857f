"""FastAPI on uvicorn, with uvloop and httptools: ``fastapi_app.py PORT``."""

from __future__ import annotations

import sys

import fastapi
import pydantic
import uvicorn

from bench.peers.servers.catalog import PRODUCTS


class Search(pydantic.BaseModel):
    query: str
    limit: int = 10


class Product(pydantic.BaseModel):
    sku: str
    name: str
    price_cents: int


CATALOG = [Product(**product) for product in PRODUCTS]


class Echo(pydantic.BaseModel):
    text: str


app = fastapi.FastAPI()


@app.post("/search")
async def search(body: Search) -> list[Product]:
    return [product for product in CATALOG if body.query in product.name][: body.limit]


@app.post("/echo")
async def echo(body: Echo) -> str:
    return body.text


if __name__ == "__main__":
    uvicorn.run(app, port=int(sys.argv[1]), loop="uvloop", http="httptools", access_log=False, log_level="warning")
