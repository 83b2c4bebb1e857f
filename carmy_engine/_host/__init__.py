"""The engine under trio in a thread of its own, called from asyncio tasks or plain threads."""
