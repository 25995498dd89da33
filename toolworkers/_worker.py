"""A worker's serve loop: one call at a time, in pid 1 of its own namespace, until the daemon closes its end.

Owns the order of a call's steps, SIGTERM, and the verdict whether the worker may serve again. Leaves becoming a worker
to `_birth`, running to `runners`, bytes to `_channel`, the sweep to `_world`, what a call may leave to `_baseline`.

Rules
1. Accepted goes out before tool code is touched; a refusal before that (tool, directory, arguments) is an Ended alone.
2. One Ended per call, after the children are swept and what was printed is flushed.
3. Nothing a tool does may come back as a wrong answer: what cannot be told (socket gone, descriptor closed) ends the
   process, and so does a tool's forked child that returns here: none but pid 1 ever reaches the loop again.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Literal, NoReturn

import msgspec

from protocol._contracts import Contract, ToolDescription
from protocol._deadlines import NS_PER_MS
from protocol._errors import InvalidArguments, LocalProtocolError
from protocol._worker_messages import Accepted, Call, Ended, WorkerReady
from toolworkers import _world as world
from toolworkers._after_kill import hook_of
from toolworkers._baseline import Baseline, Scratch
from toolworkers._channel import Channel
from toolworkers._registry import Context, Registry, Tool
from toolworkers.runners import command, python
from toolworkers.runners._failures import failed, printable
from toolworkers.runners._progress import ProgressSink

_NOWHERE = Context(deadline_ns=0, workdir="/")
"""What a tool that asks for no Context is not given."""
_KEY_VARIABLE = "DEADLINED_IDEMPOTENCY_KEY"
Refusal = Literal["invalid_arguments", "bad_cwd"]


class Settings(msgspec.Struct):
    """What a zygote hands to each of its workers."""

    registry: Registry
    outer_pidns: int
    user_env: dict[str, str]


class Worker:
    """The serve loop and what it remembers between two calls."""

    def __init__(self, channel: Channel, scratch: Scratch, settings: Settings) -> None:
        self._channel, self._scratch, self._settings = channel, scratch, settings
        self._registry = settings.registry
        self._on_term: Callable[[], None] | None = None
        self._termed = False
        """Whether SIGTERM came for the call that is served."""
        signal.signal(signal.SIGTERM, self._terminate)

    def report(self, missing: list[str], describe: bool, last_words: int) -> None:
        """Take the baseline and say WorkerReady. A description that fits no frame raises."""
        self._baseline = Baseline(last_words)
        self._used = python.used()
        tools = [self._described(tool) for tool in self._registry.describe()] if describe else None
        self._channel.send(WorkerReady(os.getpid(), missing, tools))

    def _described(self, tool: ToolDescription) -> ToolDescription:
        """With the names of what its calls find in their environment."""
        contract, names = tool.contract, set(os.environ)
        if contract.kind == "command":
            names = {*world.command_environment("", "", {}, self._settings.user_env), _KEY_VARIABLE}
        names |= world.declared_environment(contract.env, self._settings.user_env).keys() | set(contract.secrets)
        return msgspec.structs.replace(tool, environment=sorted(names))

    def serve(self) -> NoReturn:
        """Answer calls until the daemon closes its end: ChannelLost is the way out."""
        while True:
            call, descriptors = self._channel.receive()
            self._send(self._answer(call, descriptors))

    def _answer(self, call: Call, descriptors: list[int]) -> Ended:
        """One call from its frame to its end; every descriptor that came with it is closed or in place after it."""
        self._termed = False
        tool = self._registry.get(call.tool)
        if tool is None:
            return self._refuse(
                call, descriptors, "invalid_arguments", f"no tool is named {call.tool!r}", "unknown_tool"
            )
        try:
            if call.cwd is not None:
                os.chdir(call.cwd)
        except (OSError, ValueError) as error:
            return self._refuse(call, descriptors, "bad_cwd", f"{call.cwd!r}: {_reason(error)}", "bad_cwd")
        try:
            arguments = tool.decode(call.arguments)
        except InvalidArguments as error:
            return self._refuse(call, descriptors, "invalid_arguments", str(error), "invalid_arguments")
        if call.accepts:
            self._channel.send(Accepted(call.nonce))
        if call.after_kill:
            tool = hook_of(tool)
        if tool.contract.kind == "command":
            return self._run_command(call, tool, arguments, descriptors)
        return self._run_python(call, tool, arguments, descriptors)

    def _refuse(self, call: Call, descriptors: list[int], how: Refusal, message: str, code: str) -> Ended:
        """Nothing was touched but the directory: the worker is as good as before."""
        for descriptor in descriptors:
            os.close(descriptor)
        os.fchdir(self._scratch.work_descriptor)
        return Ended(
            call.nonce, how, message=printable(message), error_class="argument", error_code=code, reusable=True
        )

    # ------------------------------------------------------------ the two kinds

    def _run_python(self, call: Call, tool: Tool, arguments: dict[str, object], descriptors: list[int]) -> Ended:
        self._take_output(descriptors)
        self._lend_environment(call, tool.contract)
        sink = None
        context = _NOWHERE
        if tool.context_parameter is not None:
            sink = ProgressSink(self._channel, call.nonce)
            context = self._context(call, sink)
            self._hear_term(context.cancel, call, tool.contract)
        ended = python.run(call.nonce, tool, arguments, context, call.output_limit)
        self._on_term = None
        if sink is not None:
            sink.close()
        left = world.sweep(self._settings.outer_pidns)
        ended.left_processes = left.killed
        self._measure(ended)
        may = tool.contract.read_only or tool.contract.reusable
        may = may and not tool.contract.fresh and not call.secrets  # which would stay in this process's memory
        self._judge(ended, left.clean, may, system_v=not tool.contract.read_only)
        return ended

    def _run_command(self, call: Call, tool: Tool, arguments: dict[str, object], descriptors: list[int]) -> Ended:
        run = command.CommandRun(call, self._channel, descriptors, self._settings.outer_pidns)
        context = self._context(call, ProgressSink(self._channel, call.nonce))
        try:
            # Its prints belong to this call. In the standing file they would be those of the next Python tool.
            self._baseline.lend_output(*run.output.lent)
            plan = python.plan(call.nonce, tool, arguments, context)
            self._baseline.take_back_output()
            run.output.take_printed()
            if isinstance(plan, Ended):
                ended = plan
                ended.left_processes = world.sweep(self._settings.outer_pidns).killed
            else:
                self._hear_term(run.terminate, call, tool.contract)
                ended = run.execute(plan, self._environment(call, tool.contract, plan.env))
        finally:
            self._on_term = None
            run.close()
        self._judge(ended, run.clean, not tool.contract.fresh and not call.secrets, system_v=True)
        return ended

    # ------------------------------------------------------------ around a call

    def _context(self, call: Call, sink: ProgressSink) -> Context:
        return Context(
            deadline_ns=call.deadline_ns,
            workdir=self._scratch.work,
            idempotency_key=call.key,
            root=call.cwd,
            sink=sink,
        )

    def _take_output(self, descriptors: list[int]) -> None:
        """The next standing output file, when the daemon has adopted the last one."""
        for descriptor in descriptors:
            self._baseline.take_output(descriptor)

    def _lend_environment(self, call: Call, contract: Contract) -> None:
        """What a Python tool's contract asks for beyond the worker's own; the baseline takes it back."""
        if contract.env or contract.home == "user":
            os.environ.update(world.declared_environment(contract.env, self._settings.user_env))
            os.environ["HOME"] = self._home(contract)
        if call.secrets:
            os.environ.update(call.secrets)

    def _environment(self, call: Call, contract: Contract, planned: dict[str, str]) -> dict[str, str]:
        user = self._settings.user_env
        passed = world.declared_environment(contract.env, user) | call.secrets | planned
        passed[_KEY_VARIABLE] = call.key
        return world.command_environment(self._scratch.tmp, self._home(contract), passed, user)

    def _home(self, contract: Contract) -> str:
        """A private home unless the contract says that it needs the user's (git and cargo do)."""
        return self._settings.user_env.get("HOME", "/") if contract.home == "user" else self._scratch.home

    def _measure(self, ended: Ended) -> None:
        used = python.used(self._used)
        ended.cpu_ms = int(used.cpu_ms - self._used.cpu_ms)
        ended.max_rss_bytes = used.max_rss_bytes
        self._used = used

    def _judge(self, ended: Ended, swept: bool, may_serve_again: bool, system_v: bool) -> None:
        """Put back what can be put back, and say whether nothing of the call is left."""
        remains = self._baseline.restore(self._scratch.work_descriptor)
        ended.left_threads = remains.threads
        ended.reusable = (
            may_serve_again
            and swept
            and remains.same
            and self._channel.is_whole()
            and self._scratch.untouched(system_v)
        )

    def _send(self, ended: Ended) -> None:
        try:
            packed = self._channel.pack(ended)
        except LocalProtocolError as error:  # content was checked; a message or code of a tool's own may still be odd
            ended = failed(ended.nonce, error)
            packed = self._channel.pack(ended)
        self._channel.send(ended, packed)

    def _hear_term(self, on_term: Callable[[], None], call: Call, contract: Contract) -> None:
        """From here on the call hears SIGTERM; at once, where it came before anybody could hear, or was due before the
        call was: a deadline may be nearer than the grace before it."""
        self._on_term = on_term
        grace_ns = contract.term_grace_ms * NS_PER_MS
        if self._termed or (grace_ns and call.deadline_ns - grace_ns <= time.monotonic_ns()):
            on_term()

    def _terminate(self, _number: int, _frame: FrameType | None) -> None:
        self._termed = True
        if self._on_term is not None:
            self._on_term()


def _reason(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
