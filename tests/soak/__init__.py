"""A soak: mixed load over all transports, with faults injected. ``python -m tests.soak --seconds 600`` writes a report."""
