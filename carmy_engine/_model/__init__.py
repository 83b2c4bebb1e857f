"""Data types of the engine: requests, results, events, errors and records.

These modules perform no I/O, read no clock and import no transport. Every other folder may import them.
"""
