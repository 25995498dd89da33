"""A pretended call in a child that waits to become a worker.

A forked process copies each page of memory when it first writes to it, and Python writes to an object by using it: the
first call of a fresh worker would copy some four hundred pages (3 ms), and becoming a worker as many. All of that can
be done while nobody waits. The rehearsal says and does what a call of a Python tool does, on a link of its own, and
leaves nothing behind.
"""

from __future__ import annotations

import os
import socket

from protocol._codecs import daemon_to_worker
from protocol._contracts import Contract
from protocol._worker_messages import Accepted, Call, WorkerReady
from toolworkers import _world as world
from toolworkers._baseline import Baseline
from toolworkers._channel import Channel
from toolworkers._registry import Context
from toolworkers._tools import tool_from_function
from toolworkers.runners import python


def _nothing(text: str = "") -> str:
    return text


_TOOL = tool_from_function(_nothing, Contract(read_only=True), "nothing", "")
_CALL = daemon_to_worker().pack(Call(nonce=1, tool="nothing", arguments='{"text": ""}', deadline_ns=0, key=""))


def rehearse(outer_pidns: int) -> None:
    """Play one call from its frame to its end. Raises what a worker would: better here than with a caller waiting."""
    daemon, ours = socket.socketpair()
    channel = Channel(ours.detach())
    root = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    baseline = Baseline(os.dup(0))
    with daemon:
        channel.send(WorkerReady(0))
        daemon.sendall(_CALL)
        call, _ = channel.receive()
        channel.send(Accepted(call.nonce))
        used = python.used()
        context = Context(deadline_ns=call.deadline_ns, workdir="/")
        ended = python.run(call.nonce, _TOOL, _TOOL.decode(call.arguments), context, call.output_limit)
        world.sweep(outer_pidns)
        python.used(used)
        ended.reusable = baseline.restore(root).same and channel.is_whole()
        channel.send(ended, channel.pack(ended))
    baseline.close()
    channel.close()
    os.close(root)
