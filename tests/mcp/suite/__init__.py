"""The official conformance suite: the server and the client that it tests, and its run."""
