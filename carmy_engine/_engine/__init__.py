"""The order of steps, and the object that callers hold."""
