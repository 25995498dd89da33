"""Who executes a call inside a worker: a Python tool in place, a command as a child."""
