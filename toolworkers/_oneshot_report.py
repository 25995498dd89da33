"""What the first process of a one-shot call is told, and the report it leaves in a pipe. No I/O in here.

The report is a line of plain words: msgspec and json cost more than the whole rest of ``exec``. It comes from a process
of ours that runs no tool code, through a descriptor no tool can reach, so it is not judged like a worker's frame.
"""

from __future__ import annotations

TYPE_CHECKING = False  # what `typing` says, without the 5 ms of loading it
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class OneShot:
    """What pid 1 is told. ``program``: the file to run; ``argv``: its words, its name first. ``stdin``: a descriptor
    for the command's 0, None: the caller's. ``outputs``: for each captured stream (the command's descriptors, pipe read
    end, pipe write end, raw file); empty = nothing is captured. ``own_group``: the command leads a process group.
    ``holder``: ``namespace`` | ``any`` (a guard where there is none) | ``guard``. ``limited``: the default limits hold.
    """

    __slots__ = (
        "argv",
        "deadline_ns",
        "environment",
        "holder",
        "limited",
        "output_limit",
        "outputs",
        "own_group",
        "program",
        "stdin",
        "term_grace_ns",
        "usage",
    )

    def __init__(
        self,
        program: str,
        argv: list[str],
        environment: Mapping[str, str],
        deadline_ns: int,
        term_grace_ns: int = 0,
        stdin: int | None = None,
        outputs: Sequence[tuple[Sequence[int], int, int, int]] = (),
        output_limit: int = 0,
        usage: bool = False,
        own_group: bool = False,
        holder: str = "namespace",
        limited: bool = False,
    ) -> None:
        self.holder, self.limited = holder, limited
        self.program, self.argv, self.environment, self.stdin = program, argv, environment, stdin
        self.deadline_ns, self.term_grace_ns = deadline_ns, term_grace_ns
        self.outputs, self.output_limit, self.usage, self.own_group = outputs, output_limit, usage, own_group


class Report:
    """What pid 1 says. ``how``: ``exited`` | ``deadline`` | ``cancelled`` | ``output_limit`` | ``not_found`` |
    ``cannot_run`` | ``too_late`` (the deadline passed before the start) | ``refused`` (the host) | ``broken`` (we) |
    ``begun`` (it goes on).

    Instants in CLOCK_MONOTONIC nanoseconds, 0 = it did not happen; ``code`` of the command, negative = −signal.
    """

    __slots__ = (
        "code",
        "cpu_us",
        "dropped",
        "due_ns",
        "how",
        "killed",
        "left",
        "message",
        "missing",
        "rss_kib",
        "signalled_ns",
        "started_ns",
    )

    def __init__(self, how: str, message: str = "") -> None:
        self.how, self.message, self.missing = how, message, ""
        self.code: int | None = None
        self.started_ns = self.due_ns = self.signalled_ns = 0
        self.killed = self.left = self.dropped = self.cpu_us = self.rss_kib = 0

    def encode(self) -> bytes:
        """One line, short enough to be written in one piece (PIPE_BUF)."""
        values = (getattr(self, name) for name in self.__slots__)
        return ("\t".join(str(value).replace("\n", " ").replace("\t", " ")[:1000] for value in values) + "\n").encode(
            errors="replace"
        )

    @classmethod
    def decode(cls, written: bytes) -> Report | None:
        """The last whole line of what pid 1 wrote; None when it died before it wrote one."""
        lines = written.decode(errors="replace").split("\n")[:-1]
        if not lines:
            return None
        report = cls("")
        for name, text in zip(cls.__slots__, lines[-1].split("\t"), strict=True):
            value: str | int | None = text
            if name not in ("how", "message", "missing"):
                value = None if text == "None" else int(text)
            setattr(report, name, value)
        return report
