"""What a model has said so far in one turn, in pieces. Owns how pieces become text and whole calls, and that each call
has an id of its own. Pure.

Rules
1. A call is whole when its turn is: nobody sees part of one.
2. An id that a provider gives is kept. The same call told again under one id is one call. Where there is no id, or the
   one of another call, one is made, unique in the conversation (the number of its messages is part of it): a provider
   refuses a history in which two calls have one id.
3. Half of a surrogate pair at the end of a piece waits for the other half.
"""

from __future__ import annotations

import msgspec

from supervisor.core.model_events import Request, Text, ToolCall
from supervisor.models import well_formed

_FIRST_HALVES = range(0xD800, 0xDC00)


class Piecewise:
    """One call as it grows."""

    __slots__ = ("id", "name", "pieces")

    def __init__(self, given_id: str | None = None, name: str | None = None) -> None:
        self.id, self.name, self.pieces = given_id or "", name or "", list[str]()


class Draft:
    """One turn's, in answer to ``request``."""

    def __init__(self, request: Request) -> None:
        self._made = f"call_{len(request.messages)}_"
        self._calls: list[Piecewise] = []
        self._held = ""
        self.said_anything = False

    @property
    def has_calls(self) -> bool:
        """Whether any call was begun."""
        return bool(self._calls)

    def say(self, piece: str) -> list[Text]:
        """A piece of text: what of it can be told now."""
        said = self._held + piece
        self._held = said[-1:] if said and ord(said[-1]) in _FIRST_HALVES else ""
        return self._told(said[: len(said) - len(self._held)])

    def rest(self) -> list[Text]:
        """What was held back, at the end of the turn."""
        held, self._held = self._held, ""
        return self._told(held)

    def begin(self, given_id: str | None = None, name: str | None = None) -> Piecewise:
        """A call; it stands where it was begun."""
        call = Piecewise(given_id, name)
        self._calls.append(call)
        return call

    def calls(self) -> list[ToolCall]:
        """All of them, whole (rule 2)."""
        told: dict[str, ToolCall] = {}
        for call in map(_whole, self._calls):
            if told.get(call.id) != call or not call.id:
                own = self._own_id(call.id, told)
                told[own] = msgspec.structs.replace(call, id=own)
        return list(told.values())

    def _own_id(self, given: str, taken: dict[str, ToolCall]) -> str:
        number = len(taken)
        while not given or given in taken:
            given, number = f"{self._made}{number}", number + 1
        return given

    def _told(self, said: str) -> list[Text]:
        if not said:
            return []
        self.said_anything = True
        return [Text(well_formed.text(said))]


def _whole(call: Piecewise) -> ToolCall:
    arguments = well_formed.arguments("".join(call.pieces))
    return ToolCall(well_formed.text(call.id), well_formed.text(call.name), arguments)
