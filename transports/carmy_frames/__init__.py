"""The frame protocol ``carmy-frames/1``, shared by its carriers `carmy_stdio` and `carmy_websocket`.

- `carmy_frames.protocol`: the meaning of frames, sans-IO: bytes in, frames out.
- `carmy_frames.driver`: servers and clients of the protocol on trio, over any `carmy_net.BatchChannel`.

A carrier brings the channel and nothing else.
"""
