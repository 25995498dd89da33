"""Says half of what it had to say and dies as HOSTILE_HOW says; with HOSTILE_FD in the middle of a frame too."""

import ctypes
import os
import signal

from _bounded import bound

bound()
if "HOSTILE_FD" in os.environ:
    os.write(int(os.environ["HOSTILE_FD"]), (500).to_bytes(4, "big") + b"the first words of a frame")
os.write(1, b"half a lin")
how = os.environ["HOSTILE_HOW"]
if how == "segfault":
    ctypes.memset(8, 0, 8)
elif how == "abort":
    os.abort()
elif how == "kill":
    os.kill(os.getpid(), signal.SIGKILL)  # the first process of a namespace only thinks of it (pid_namespaces(7))
elif how == "exit":
    os._exit(255)
raise RuntimeError(how)
