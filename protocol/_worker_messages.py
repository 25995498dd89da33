"""Messages on the two inner links: daemon ⇄ zygote (datagrams that carry descriptors) and daemon ⇄ worker (frames).

Everything a worker says is untrusted: a tool runs in the same process and may have written it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from protocol._contracts import IsolationLevel, Limits, ToolDescription

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""A number that a worker reports: its sign and size are the least that can be checked."""
LONGEST_FINGERPRINT = 256
Fingerprint: TypeAlias = Annotated[str, msgspec.Meta(max_length=LONGEST_FINGERPRINT)]

# ---------------------------------------------------------------- daemon → zygote


class Spawn(msgspec.Struct, tag="spawn", tag_field="op"):
    """Fork a worker. Descriptors with it, in this order: the worker's socket, then ``cgroups`` write ends of
    ``cgroup.procs`` (or ``tasks``) that the child joins before anything else; to a zygote without namespaces then the
    write end for the guard's receipt and the eventfd that tells it to end its worker."""

    worker: int
    scratch: str
    cgroups: int = 0
    describe: bool = False
    isolation: IsolationLevel = "contain"
    limits: Limits = msgspec.field(default_factory=Limits)
    processes_of_uid: int | None = None
    """RLIMIT_NPROC for a daemon that is no root: it counts all processes of the uid, so it allows for other workers."""


ToZygote = Spawn

# ---------------------------------------------------------------- zygote → daemon


class ZygoteReady(msgspec.Struct, tag="zygote_ready", tag_field="op"):
    """Sent once. ``userns``: the zygote lives in a user namespace of its own (the daemon is no root). ``subreaper``: it
    has no namespace, and orphans below it come to it; False with guards: the kernel refused even that."""

    pid: int
    userns: bool
    subreaper: bool = False


class Spawned(msgspec.Struct, tag="spawned", tag_field="op"):
    """The fork is done; one descriptor comes with it: the worker's pidfd."""

    worker: int
    pid: int


class SpawnFailed(msgspec.Struct, tag="spawn_failed", tag_field="op"):
    """No worker came of a Spawn; as a first word, from a zygote that this host does not let be (``worker`` 0)."""

    worker: int
    code: str
    message: str


class Reaped(msgspec.Struct, tag="reaped", tag_field="op"):
    """A worker's wait status: exit ``code`` or ``signal``, and what it and everything it reaped used in its life.

    Also the receipt of a guard, written straight to the daemon: nothing below it is left. From a zygote without
    namespaces the status is the guard's, and the message says that nothing of its worker is left."""

    worker: int
    code: int | None
    signal: int | None
    cpu_ms: Count
    max_rss_bytes: Count


FromZygote = ZygoteReady | Spawned | SpawnFailed | Reaped

# ---------------------------------------------------------------- daemon → worker


class Call(msgspec.Struct, tag="call", tag_field="op"):
    """Run one tool. ``fds`` descriptors come with this frame's first byte, in this order:

    * a command: raw file, pipe read end, pipe write end (with ``split_streams`` the three of stdout, then of stderr);
    * a Python tool: none (its prints go to the worker's standing output file), or the next standing output file.

    ``arguments``: the validated JSON text, unchanged. ``cwd`` None: the worker's scratch directory. ``accepts``: the
    worker says Accepted before it touches tool code; False (a read-only tool): sent counts as accepted (decision 0003).
    """

    nonce: int
    tool: str
    arguments: str
    deadline_ns: int
    key: str
    fds: int = 0
    cwd: str | None = None
    split_streams: bool = False
    output_limit: int = 64 << 20
    accepts: bool = True
    after_kill: bool = False
    """Run the command that the tool's contract wants after a kill, instead of the tool."""
    secrets: dict[str, str] = {}
    """What the tool's contract asks for in ``secrets``: for this call, and kept by nobody."""


ToWorker = Call

# ---------------------------------------------------------------- worker → daemon


class WorkerReady(msgspec.Struct, tag="worker_ready", tag_field="op"):
    """The first frame of a worker: what world it reached (``missing``: what this host refused), the tools if asked."""

    pid: int
    missing: list[str] = []
    tools: list[ToolDescription] | None = None


class Accepted(msgspec.Struct, tag="accepted", tag_field="op"):
    """Sent before tool code is touched: from here on the outcome may be unknown."""

    nonce: int


class Progress(msgspec.Struct, tag="progress", tag_field="op"):
    """At most ten a second: bytes written so far, and what the tool says of itself."""

    nonce: int
    output_bytes: Count = 0
    done: float | None = None
    total: float | None = None
    text: str | None = None


class Ended(msgspec.Struct, tag="ended", tag_field="op"):
    """The terminal frame of a call.

    ``how``: ``ok`` | ``no_result`` | ``exit`` (a command ended, see ``code``/``signal``) | ``raised`` (``error_class``,
    ``error_code``) | ``invalid_arguments`` | ``not_found`` | ``cannot_run`` | ``bad_cwd`` | ``output_limit`` |
    ``refused`` (sandbox). Those of `UNTOUCHED` are the only ones that may come without Accepted before.
    ``reusable``: the worker has proven that nothing of the call is left in it. ``swept_us``: it ended a command at its
    output limit itself; so long from its SIGKILL until no process was left, and ``left_processes`` of them died.
    ``fingerprint``: of what the tool has reached, as it says itself; "": nothing, or it does not say.
    """

    nonce: int
    how: Literal[
        "ok",
        "no_result",
        "exit",
        "raised",
        "invalid_arguments",
        "not_found",
        "cannot_run",
        "bad_cwd",
        "output_limit",
        "refused",
    ]
    content: Any = None
    message: str | None = None
    error_class: str | None = None
    error_code: str | None = None
    code: int | None = None
    signal: str | None = None
    output_bytes: list[Count] = []
    left_processes: Count = 0
    left_threads: Count = 0
    reusable: bool = False
    cpu_ms: Count = 0
    max_rss_bytes: Count = 0
    swept_us: Count | None = None
    fingerprint: Fingerprint = ""


UNTOUCHED = frozenset(("invalid_arguments", "not_found", "cannot_run", "bad_cwd", "refused"))
"""Ways to end for which no tool code need have run."""

FromWorker = WorkerReady | Accepted | Progress | Ended
