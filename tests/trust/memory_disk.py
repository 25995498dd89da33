"""A disk in memory, as an SQLite VFS: it records what is written and what is synced, and it fails when it is told to.

WAL needs no shared memory here, because every connection to a disk of this kind is made exclusive as it opens. What a
power cut makes of the record is `power_cuts`' business.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Literal, NamedTuple

import apsw

Kind = Literal["write", "truncate", "sync", "delete", "mark"]
_NUMBERS = itertools.count()
_PREFIX = "trust-disk-"
CHECKPOINT_PAGES = 24
"""So few that a short history has checkpoints in it; SQLite's own default is 1 000."""


class Op(NamedTuple):
    """One thing that was done to a file. A ``mark`` is ours: ``data`` says what was acknowledged up to here."""

    kind: Kind
    file: str = ""
    offset: int = 0
    data: bytes = b""


Fault = Callable[[Op], Exception | None]
"""Asked before each operation: what goes wrong with it, if anything does. A short write is done by the fault itself."""


class Disk:
    """Files by name. ``history``: everything done since it was made; ``fault``: see `Fault`."""

    def __init__(self, files: dict[str, bytes] | None = None) -> None:
        self.files = {name: bytearray(content) for name, content in (files or {}).items()}
        self.history: list[Op] = []
        self.fault: Fault = lambda _: None
        self.checkpoints = False
        """Whether what is done now is a checkpoint, whose failure costs nothing: the log still has it all, synced."""

    def copy(self) -> Disk:
        """The same disk, for a process that comes after one that is gone: what that one still had open it writes to the
        old one."""
        disk = Disk({name: bytes(content) for name, content in self.files.items()})
        disk.history, disk.fault = [*self.history], self.fault
        return disk

    def mark(self, what: bytes) -> None:
        """Note that ``what`` has been reported as durable."""
        self.history.append(Op("mark", data=what))

    def do(self, op: Op) -> None:
        """Carry it out, unless a fault is due. Raises what the fault says."""
        if (error := self.fault(op)) is not None:
            raise error
        self.write_past_faults(op)

    def write_past_faults(self, op: Op) -> None:
        """Carry it out whatever the fault says: the part of a short write that was written."""
        self.history.append(op)
        apply(self.files, op)


def apply(files: dict[str, bytearray], op: Op) -> None:
    """What an operation does to files."""
    match op.kind:
        case "write":
            content = files.setdefault(op.file, bytearray())
            if len(content) < op.offset:
                content.extend(bytes(op.offset - len(content)))
            content[op.offset : op.offset + len(op.data)] = op.data
        case "truncate":
            content = files.setdefault(op.file, bytearray())
            del content[op.offset :]
            content.extend(bytes(op.offset - len(content)))
        case "delete":
            files.pop(op.file, None)


class _File:
    """One open file, with the methods that SQLite calls (apsw's `VFSFile`). As in Unix it outlives its name."""

    def __init__(self, disk: Disk, name: str) -> None:
        self._disk, self._name = disk, name
        self._content = disk.files.setdefault(name, bytearray())

    def _do(self, op: Op) -> None:
        if self._disk.files.get(self._name) is self._content:
            self._disk.do(op)
        else:  # deleted under it: nobody will ever read this
            apply({self._name: self._content}, op)

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802  # the name that SQLite's interface gives it
        return bytes(self._content[offset : offset + amount])

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802  # as above
        self._do(Op("write", self._name, offset, bytes(data)))

    def xTruncate(self, size: int) -> None:  # noqa: N802  # as above
        self._do(Op("truncate", self._name, size))

    def xSync(self, _flags: int) -> None:  # noqa: N802  # as above
        self._do(Op("sync", self._name))

    def xFileSize(self) -> int:  # noqa: N802  # as above
        return len(self._content)

    def xLock(self, _level: int) -> None:  # noqa: N802  # as above
        """There is one connection."""

    def xUnlock(self, _level: int) -> None:  # noqa: N802  # as above
        """There is one connection."""

    def xCheckReservedLock(self) -> bool:  # noqa: N802  # as above
        return False

    def xFileControl(self, _op: int, _pointer: int) -> bool:  # noqa: N802  # as above
        return False

    def xSectorSize(self) -> int:  # noqa: N802  # as above
        return 4096

    def xDeviceCharacteristics(self) -> int:  # noqa: N802  # as above
        return int(apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE)

    def xClose(self) -> None:  # noqa: N802  # as above
        """Nothing is held."""


class _Vfs(apsw.VFS):
    def __init__(self, name: str, disk: Disk) -> None:
        super().__init__(name, base="")
        self._disk = disk

    def xOpen(self, name: object, flags: list[int]) -> _File:  # type: ignore[override]  # noqa: N802  # its like will do
        flags[1] = flags[0]
        given = name.filename() if isinstance(name, apsw.URIFilename) else name
        return _File(self._disk, str(given or f"temporary-{next(_NUMBERS)}"))

    def xDelete(self, name: str, _sync: bool) -> None:  # noqa: N802  # as above
        self._disk.do(Op("delete", name))

    def xAccess(self, name: str, _flags: int) -> bool:  # noqa: N802  # as above
        return name in self._disk.files

    def xFullPathname(self, name: str) -> str:  # noqa: N802  # as above
        return name


_MOUNTED: dict[str, Disk] = {}


@contextmanager
def mounted(disk: Disk) -> Iterator[str]:
    """The name of a VFS whose files are this disk's, for as long as the block lasts."""
    name = f"{_PREFIX}{next(_NUMBERS)}"
    vfs = _Vfs(name, disk)
    _MOUNTED[name] = disk
    try:
        yield name
    finally:
        vfs.unregister()
        del _MOUNTED[name]


def _exclusive(connection: apsw.Connection) -> None:
    if (disk := _MOUNTED.get(connection.open_vfs)) is not None:
        connection.pragma("locking_mode", "exclusive")
        connection.set_wal_hook(partial(_checkpoint, disk))


def _checkpoint(disk: Disk, connection: apsw.Connection, database: str, pages: int) -> int:
    """What SQLite's own hook does, which tells nobody when it fails: the commit before it has happened. (apsw would
    raise what a VFS in Python raised, from a commit that went through.)"""
    if pages >= CHECKPOINT_PAGES:
        disk.checkpoints = True
        with contextlib.suppress(apsw.Error):
            connection.wal_checkpoint(database)
        disk.checkpoints = False
    return apsw.SQLITE_OK


apsw.connection_hooks.append(_exclusive)
