"""The Model Context Protocol, sans-IO: bytes in, messages out.

- `messages`: JSON-RPC 2.0. `decode` raises `RemoteProtocolError`, which holds the reply that the peer gets.
- `versions`, `methods`: what each version of the protocol has, as tables.
- `connection`: `ServerProtocol` and `ClientProtocol`, the two ends of a connection or an HTTP session, and their transition tables.
- `headers`: the headers of Streamable HTTP. `event_log`: the bounded log of events behind ``Last-Event-ID``.
- `params`, `listing`, `results`: the parameters and results of methods.
"""
