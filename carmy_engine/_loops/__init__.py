"""Two event loops, trio and asyncio, in two threads: calls from each into the other."""
