"""The application: what it consists of, and its life in a process."""
