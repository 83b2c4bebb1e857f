"""Access lines and metrics, made of the records of executions."""
