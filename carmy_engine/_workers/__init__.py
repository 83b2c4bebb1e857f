"""Tools in worker processes: the pool in the engine's process, and the program of a worker."""
