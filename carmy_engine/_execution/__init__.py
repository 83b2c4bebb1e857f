"""One run of one request."""
