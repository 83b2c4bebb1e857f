"""The rows of the table of types, by family."""
