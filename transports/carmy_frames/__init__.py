"""What the carriers of ``carmy-frames/1`` share.

- `carmy_frames.protocol`: what the frames mean. No loop, no sockets, no clocks: bytes in, frames out.
- `carmy_frames.driver`: what drives it, on trio, over any channel of messages (`trio.abc.Channel[bytes]`).
- `carmy_net`: listeners, and who may talk to a server on a socket.

A carrier (`carmy_stdio` and `carmy_websocket` are two) brings the channel and nothing else.
"""
