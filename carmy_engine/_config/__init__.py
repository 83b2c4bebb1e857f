"""Settings and their sources."""
