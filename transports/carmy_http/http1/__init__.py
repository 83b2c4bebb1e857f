"""HTTP/1.1 as bytes: heads of requests and responses."""
