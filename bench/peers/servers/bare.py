"""The least an ASGI application can do: it reads the body and sends an answer that was made before.

``bare.py uvicorn|hypercorn PORT``
"""

from __future__ import annotations

import json
import sys
from typing import Any

from bench.peers.servers.catalog import EXPECTED

ANSWER = json.dumps(EXPECTED, separators=(",", ":")).encode()
HEADERS = [(b"content-type", b"application/json"), (b"content-length", str(len(ANSWER)).encode())]


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "lifespan":
        while True:
            event = await receive()
            await send({"type": f"{event['type']}.complete"})
            if event["type"] == "lifespan.shutdown":
                return
    while (await receive()).get("more_body", False):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": ANSWER})


def main(server: str, port: str) -> None:
    # Each server is imported where it is the one that is measured.
    if server == "uvicorn":
        import uvicorn  # noqa: PLC0415

        uvicorn.run(app, port=int(port), loop="uvloop", http="httptools", access_log=False, log_level="warning")
    else:
        import hypercorn.trio  # noqa: PLC0415
        import trio  # noqa: PLC0415
        from hypercorn.config import Config  # noqa: PLC0415

        config = Config()
        config.bind = [f"127.0.0.1:{port}"]
        config.loglevel = "ERROR"
        trio.run(hypercorn.trio.serve, app, config)


if __name__ == "__main__":
    main(*sys.argv[1:])
