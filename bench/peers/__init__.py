"""The engine beside what its users would pick instead, in one run.

``python -m bench.peers`` starts every contender in a process of its own, in turns, checks its answer, loads it, and writes what
it found to ``bench/results``. Every contender has the same tool over the same data (`bench.peers.servers.catalog`).
"""
