"""The front end on hypercorn, over a guarded stream."""
