"""A Python type in JSON: its validator, its serialiser, its JSON Schema and its error messages."""
