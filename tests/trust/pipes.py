"""Who of a call is alive, by the kernel's own book: its tool opens a named pipe, and whatever that starts inherits it.

As long as anybody holds it for reading, opening it for writing succeeds (fifo(7)). Asks no daemon, reads no mark, knows
no number; namespaces hide nobody. Who closes all that it has is not seen: `orphans` sees it in the end.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path


def make(path: Path) -> Path:
    """A pipe that nobody holds yet."""
    os.mkfifo(path, 0o600)
    return path


def is_held(path: Path) -> bool:
    """Whether any process has it open."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return False
    return True
