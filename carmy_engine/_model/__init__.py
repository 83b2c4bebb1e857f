"""Pure data: what a request, a result, an event, an error and a record are.

Nothing here performs I/O, reads a clock or knows a transport. Everything else in the package may import it.
"""
