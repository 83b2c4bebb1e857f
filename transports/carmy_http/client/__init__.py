"""The client: an executor over HTTP."""
