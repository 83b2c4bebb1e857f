"""The native front end: HTTP/1.1 on trio's sockets."""
