"""What the carriers of ``carmy-frames/1`` share.

- `carmy_wire.protocol`: what the frames mean. No loop, no sockets, no clocks: bytes in, frames out.
- `carmy_wire.driver`: what drives it, on trio, over any channel of messages (`trio.abc.Channel[bytes]`).
- `carmy_wire.serving`: listeners, and who may talk to a server on a socket.

A carrier (`carmy_stdio` and `carmy_websocket` are two) brings the channel and nothing else.
"""
