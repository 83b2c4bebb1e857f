"""Authenticators: credentials become the context of a caller, or are refused."""
