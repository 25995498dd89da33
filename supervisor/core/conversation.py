"""What was said in a run: the model's turns, the results of what it asked for, the words of people and of the host.

Rules
1. Whatever comes in is text that every reader can take: half surrogate pairs become replacement characters here, once.
2. Each request of a model has exactly one result, which comes behind it. Where none came, because the run ended first,
   the transcript has one that says so.
3. The ids of calls are unique in the conversation: one that was used before, or is empty, is made anew.
4. A step is folded when it is finished and `FOLD_AFTER` later ones are: one line of the host's is left of it.
5. It is dumped and loaded without loss.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from protocol._outcomes import CallResult
from supervisor.core.context import LAST, Pins, folded, trim
from supervisor.core.folding import fold
from supervisor.core.model_events import Message, ToolCall

FOLD_AFTER = 8
_UNANSWERED = "[no result: the run ended before this call did. Whether it has done anything is unknown]"
_NOT_SENT = "[no result: the run ended before this call was made. It was not executed]"


class Conversation:
    """``system``: the words that come first, always. ``earlier``: messages of an earlier run of the same session."""

    def __init__(self, system: str, earlier: Sequence[Message] = ()) -> None:
        self._system = Message("system", system)
        self.messages: list[Message] = [_of_no_step(message) for message in earlier if message.role != "system"]
        self._ids = {call.id for message in self.messages for call in message.calls}
        self._lines: dict[int, str] = {}
        """Of finished steps that are not folded yet, in order: the line that will be left."""

    def said_by_user(self, text: str, step: int | None = None) -> None:
        """A person's words, or the host's."""
        self.messages.append(_sayable(Message("user", text, step=step)))

    def decided(self, text: str, calls: Sequence[ToolCall], step: int) -> tuple[ToolCall, ...]:
        """A turn of the model. The calls as they stand in the conversation from now on (rule 3)."""
        own = tuple(msgspec.structs.replace(call, id=self._unique(call.id)) for call in calls)
        self.messages.append(_sayable(Message("assistant", text, own, step=step)))
        return self.messages[-1].calls

    def answered(self, call: ToolCall, text: str, step: int) -> None:
        """The result of a call, as the model reads it."""
        self.messages.append(_sayable(Message("tool", text, answers=call.id, step=step)))

    def finished(self, step: int, results: Sequence[CallResult]) -> int | None:
        """A step is over. The step that is folded now; None: none is."""
        self._lines[step] = fold(step, results).line
        if len(self._lines) <= FOLD_AFTER:
            return None
        oldest = next(iter(self._lines))
        line = self._lines.pop(oldest)
        self.messages = folded(self.messages, oldest, line)
        return oldest

    def context(self, pins: Pins, last: int = LAST) -> list[Message]:
        """What a model is shown."""
        return [_sayable(message) for message in trim([self._system, *self.messages], pins, last)]

    def transcript(self, in_flight: Sequence[str] = ()) -> list[Message]:
        """All of it, whole (rule 2). ``in_flight``: ids of calls that were made and have no result."""
        answered = {message.answers for message in self.messages}
        whole: list[Message] = []
        for message in self.messages:
            whole.append(message)
            for call in message.calls:
                if call.id not in answered:
                    text = _UNANSWERED if call.id in in_flight else _NOT_SENT
                    whole.append(Message("tool", text, answers=call.id, step=message.step))
        return whole

    def dump(self) -> dict[str, Any]:
        """As plain values."""
        plain: dict[str, Any] = msgspec.to_builtins({"messages": self.messages, "lines": list(self._lines.items())})
        return plain

    def load(self, kept: dict[str, Any]) -> None:
        """What `dump` gave. Raises msgspec.ValidationError."""
        self.messages = msgspec.convert(kept["messages"], list[Message])
        self._ids = {call.id for message in self.messages for call in message.calls}
        self._lines = dict(msgspec.convert(kept["lines"], list[tuple[int, str]]))

    def _unique(self, name: str) -> str:
        number = len(self._ids)
        unique = name
        while not unique or unique in self._ids:
            number += 1
            unique = f"call_{number}"
        self._ids.add(unique)
        return unique


def _of_no_step(message: Message) -> Message:
    """The steps of an earlier run are none of this one, though they have the same numbers."""
    return msgspec.structs.replace(_sayable(message), step=None)


def _sayable(message: Message) -> Message:
    calls = tuple(ToolCall(sayable(call.id), sayable(call.name), sayable(call.arguments)) for call in message.calls)
    return msgspec.structs.replace(message, text=sayable(message.text), calls=calls)


def sayable(text: str) -> str:
    """The text as every reader can take it (rule 1)."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
