"""What of a conversation a model is shown: the system's words, what is pinned, and the latest messages.

Rules
1. What a run must not forget (`Pins`) is kept outside the messages, by its owner, and put in anew each time: no trim
   and no fold can lose it or keep an old state of it, and nobody but the host can write it.
2. A trim keeps the system's messages, then the pins, then the latest ``last`` others. What a model asked for and the
   results of it stay together or go together. When the newest such group alone is larger, it stays whole.
3. A result whose call is not there is dropped: no provider takes it, and nobody could tell what it answers.
4. A fold puts one line in the place of all messages of a step; of a step that is not finished it is refused.
5. The same messages give the same context, and a trim of a trim is the trim.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from supervisor.core.model_events import Message

LAST = 20
_PINNED = "Pinned by the host. This holds whatever was said since:"


class Pins(msgspec.Struct, frozen=True):
    """What must never be out of sight. ``approvals``: what a person has allowed or refused, and how far.
    ``unresolved_effects``: calls that may have done something, and nobody knows."""

    goal: str = ""
    constraints: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    approvals: tuple[str, ...] = ()
    unresolved_effects: tuple[str, ...] = ()

    def text(self) -> str:
        """All of it; no pin can pass for another, however many lines it has."""
        lines = [_PINNED]
        for name in self.__struct_fields__:
            value: str | tuple[str, ...] = getattr(self, name)
            said = (value,) if isinstance(value, str) else value
            if any(said):
                lines += [f"{name}:", *(f"- {_indented(one)}" for one in said)]
        return "\n".join(lines)


NO_PINS = Pins()


def trim(messages: Sequence[Message], pins: Pins = NO_PINS, last: int = LAST) -> list[Message]:
    """The context. ``last`` is at least 1, else ValueError."""
    if last < 1:
        raise ValueError(f"the last {last} messages are none; allowed: at least 1")
    system = [message for message in messages if message.role == "system" and not message.pinned]
    pinned = [] if pins == NO_PINS else [Message("system", pins.text(), pinned=True)]
    return [*system, *pinned, *_latest(messages, last)]


def folded(messages: Sequence[Message], step: int, line: str) -> list[Message]:
    """The messages with ``line`` in the place of all those of ``step``.

    Raises ValueError for a step that has none, or in which a call has no result yet.
    """
    own = [message for message in messages if message.step == step]
    waiting = {call.id for message in own for call in message.calls} - {message.answers for message in own}
    if not own or waiting:
        raise ValueError(f"step {step} cannot be folded: {sorted(waiting) or 'nothing of it is here'}")
    first = messages.index(own[0])
    rest = [message for message in messages[first:] if message.step != step]
    return [*messages[:first], Message("user", line, step=step), *rest]


def _latest(messages: Sequence[Message], last: int) -> list[Message]:
    """Whole groups from the end, as many as fit."""
    kept: list[Message] = []
    for group in reversed(list(_groups(messages))):
        if kept and len(group) + len(kept) > last:
            break
        kept[:0] = group
    return kept


def _groups(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """What stays together, in order: a request with every result of it, wherever that stands, or a single message."""
    home: dict[str, list[Message]] = {}
    groups: list[list[Message]] = []
    for message in messages:
        if message.role == "system":
            continue
        if message.answers is not None:
            if message.answers in home:
                home[message.answers].append(message)
            continue
        groups.append([message])
        home |= dict.fromkeys((call.id for call in message.calls), groups[-1])
    return iter(groups)


def _indented(text: str) -> str:
    return "\n  ".join(text.splitlines())
