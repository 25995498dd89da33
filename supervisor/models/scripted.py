"""A model that plays a file, faults and all, so that everything can be tried without a provider. `docs/models.md` has
every key. Owns what a script may say, and which turn comes next.

Rules
1. Turns are played in their order. One whose ``when`` does not fit what was said last, or whose ``chance`` did not come
   up, is passed over and does not come back.
2. ``repeat`` plays a turn so many times, or for ever, as long as its ``when`` fits. ``$n`` in what it says is the
   number of the time, from 1.
3. A script that begins in the middle of a conversation (a run that is resumed) passes over as many turns that answer as
   the run has had steps; those that only fail before them are passed over too.
4. What is drawn comes from the seed and the number of the turn: the same script does the same every time.
5. A script with no turn left is an error that no retry changes. It never ends a run by its silence.
"""

from __future__ import annotations

import json
import os
import random
import re
import stat
import tomllib
from collections.abc import AsyncGenerator, Iterator
from typing import Annotated, Any, Literal

import msgspec
import trio

from supervisor.clock import now_ns, wall_ms
from supervisor.core.model_events import ModelError, ModelEvent, Request, Stop, StopReason, Text, ToolCall, Usage
from supervisor.core.provider_failures import FailureKind, ProviderFailure
from supervisor.models import failures
from supervisor.models.draft import Draft

MOST_BYTES = 1 << 20
_COUNT = "$n"
_CHARACTERS_A_TOKEN = 4
Whole = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class ScriptError(ValueError):
    """A script that cannot be played; the text says what of it, and where."""


class ScriptedCall(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """``arguments``: a table, or a text that is sent as it is, whatever that is."""

    tool: str
    arguments: dict[str, Any] | str = {}
    id: str | None = None


class Tokens(msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename={"into": "in"}):
    """What a turn reports that it used."""

    into: Whole = 0
    out: Whole = 0
    cached: Whole = 0


class Turn(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One answer, or one failure. Times in milliseconds."""

    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    tokens: Tokens | Literal["none"] | None = None
    finish: StopReason | None = None
    repeat: Positive | Literal["forever"] = 1
    when: str | None = None
    chance: Share = 1.0
    delay_ms: Whole = 0
    piece: Positive = 16
    piece_ms: Whole = 0
    silent: bool = False
    cut_at: Whole | None = None
    cut_by: Literal["close", "reset", "stall"] = "close"
    fail: FailureKind | None = None
    status: Annotated[int, msgspec.Meta(ge=400, le=599)] | None = None
    code: str | None = None
    retry_after: str | None = None

    def __post_init__(self) -> None:
        if self.status is None and (self.code is not None or self.retry_after is not None):
            raise ValueError("`code` and `retry_after` belong to a `status`")
        if sum((self.silent, self.cut_at is not None, self.fail is not None, self.status is not None)) > 1:
            raise ValueError("a turn has one of `silent`, `cut_at`, `fail`, `status`")
        try:
            re.compile(self.when or "")
        except (re.error, RecursionError, OverflowError) as error:
            raise ValueError(f"`when` is no regular expression: {error}") from error

    @property
    def answers(self) -> bool:
        """Whether it is a turn that comes to its end."""
        return not (self.silent or self.fail is not None or self.status is not None or self.cut_at is not None)


class Script(msgspec.Struct, forbid_unknown_fields=True, frozen=True, rename={"turns": "turn"}):
    """``model``: the name under which it is priced."""

    turns: tuple[Turn, ...]
    model: str = "scripted"
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.turns:
            raise ValueError("a script has at least one `turn`")

    @classmethod
    def load(cls, path: str) -> Script:
        """A script out of a file: TOML, or where its name ends in .jsonl one turn a line. Raises ScriptError."""
        try:
            said = _read(path)
            lines = path.endswith(".jsonl")
            return msgspec.convert(_lines(said) if lines else tomllib.loads(said), cls)
        except OSError as error:
            raise ScriptError(f"{path}: {error.strerror}") from error
        except RecursionError as error:
            raise ScriptError(f"{path}: it is nested too deep") from error
        except (msgspec.ValidationError, ValueError) as error:
            raise ScriptError(f"{path}: {error}") from error


def _read(path: str) -> str:
    """Raises OSError, ValueError. The daemon waits for this, and the open of a FIFO would hold it for ever."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("a script is a regular file")
        said = file.read(MOST_BYTES + 1)
    if len(said) > MOST_BYTES:
        raise ValueError(f"a script has at most {MOST_BYTES} bytes")
    return said.decode()


def _lines(said: str) -> dict[str, Any]:
    """The first line may have the keys of the script itself: one without any key of a turn."""
    values = [json.loads(line) for line in said.splitlines() if line.strip()]
    head = values.pop(0) if values and isinstance(values[0], dict) and values[0].keys() <= {"model", "seed"} else {}
    return {**head, "turn": values}


class ScriptedGateway:
    """As `Gateway`; one conversation's."""

    def __init__(self, script: Script) -> None:
        self.model = script.model
        self._script, self._at, self._times, self._begun = script, 0, 0, False

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """As `Gateway.stream`."""
        turn, count = self._next(request)
        await trio.sleep(turn.delay_ms / 1000)
        if turn.silent:
            await trio.sleep_forever()
        _fail(turn)
        left = turn.cut_at
        for event in _events(turn, count, request):
            size = _size(event)
            if left is not None and (size >= left or isinstance(event, Stop)):
                if isinstance(event, Text) and left:
                    yield Text(event.text[:left])
                await _cut(turn)
            left = None if left is None else left - size
            yield event
            await trio.sleep(turn.piece_ms / 1000 if isinstance(event, Text) else 0)

    async def aclose(self) -> None:
        """As `Gateway.aclose`."""

    def _next(self, request: Request) -> tuple[Turn, int]:
        """The turn to play and which time it is. Raises ModelError by rule 5."""
        if not self._begun:
            self._begun = True
            self._pass_over(_steps(request))
        while self._at < len(self._script.turns):
            turn = self._script.turns[self._at]
            if _fits(turn, request) and (self._times or self._comes_up(turn)):
                self._times += 1
                count = self._times
                self._move(turn)
                return turn, count
            self._at, self._times = self._at + 1, 0
        raise failures.broken(FailureKind.OTHER, "the script has no turn left")

    def _move(self, turn: Turn) -> None:
        if turn.repeat != "forever" and self._times >= turn.repeat:
            self._at, self._times = self._at + 1, 0

    def _comes_up(self, turn: Turn) -> bool:
        drawn = random.Random(f"{self._script.seed}:{self._at}").random()  # noqa: S311  # a script's, not a secret
        return drawn < turn.chance

    def _pass_over(self, steps: int) -> None:
        """Rule 3."""
        while steps and self._at < len(self._script.turns):
            turn = self._script.turns[self._at]
            if not turn.answers:
                self._at += 1
            else:
                steps, self._times = steps - 1, self._times + 1
                self._move(turn)


def _fits(turn: Turn, request: Request) -> bool:
    return turn.when is None or re.search(turn.when, _heard_last(request)) is not None


def _heard_last(request: Request) -> str:
    """All that was said to the model since it said something itself; what the host repeats each time is not that."""
    heard: list[str] = []
    for message in request.messages:
        if message.role == "assistant":
            heard.clear()
        elif message.role != "system" and not message.pinned:
            heard.append(message.text)
    return "\n".join(heard)


def _steps(request: Request) -> int:
    """How many turns the conversation has had: by the steps of its run, else by what is there of it."""
    said = [message for message in request.messages if message.role == "assistant"]
    return max((message.step or 0 for message in said), default=0) or len(said)


def _fail(turn: Turn) -> None:
    if turn.status is not None:
        body = json.dumps({"error": {"message": f"scripted status {turn.status}", "code": turn.code}})
        not_before_ns = failures.retry_after_ns(turn.retry_after, now_ns(), wall_ms())
        raise ModelError(failures.of_answer(turn.status, body, not_before_ns))
    if turn.fail is not None:
        raise failures.broken(turn.fail, f"scripted failure: {turn.fail}")


async def _cut(turn: Turn) -> None:
    if turn.cut_by == "stall":
        await trio.sleep_forever()
    kind = FailureKind.RESET if turn.cut_by == "reset" else FailureKind.CUT_STREAM
    kind = FailureKind.EMPTY_STREAM if turn.cut_by == "close" and not turn.cut_at else kind
    raise ModelError(ProviderFailure(kind, None, f"scripted cut at {turn.cut_at}"))


def _events(turn: Turn, count: int, request: Request) -> Iterator[ModelEvent]:
    draft, said = Draft(request), turn.text.replace(_COUNT, str(count))
    for at in range(0, len(said), turn.piece):
        yield from draft.say(said[at : at + turn.piece])
    yield from draft.rest()
    for call in turn.calls:
        draft.begin(call.id, call.tool.replace(_COUNT, str(count))).pieces.append(_arguments(call, count))
    calls = draft.calls()
    yield from calls
    if turn.tokens != "none":
        yield _usage(turn, request, said, calls)
    yield Stop(turn.finish or ("tools" if calls else "end"), "scripted")


def _arguments(call: ScriptedCall, count: int) -> str:
    said = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments, ensure_ascii=False)
    return said.replace(_COUNT, str(count))


def _usage(turn: Turn, request: Request, said: str, calls: list[ToolCall]) -> Usage:
    if isinstance(turn.tokens, Tokens):
        return Usage(turn.tokens.into, turn.tokens.out, turn.tokens.cached)
    told = sum(len(message.text) + sum(len(call.arguments) for call in message.calls) for message in request.messages)
    out = len(said) + sum(len(call.arguments) for call in calls)
    return Usage(1 + told // _CHARACTERS_A_TOKEN, 1 + out // _CHARACTERS_A_TOKEN)


def _size(event: ModelEvent) -> int:
    if isinstance(event, Text):
        return len(event.text)
    return len(event.arguments) if isinstance(event, ToolCall) else 0
