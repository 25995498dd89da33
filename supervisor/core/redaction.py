"""Takes known secrets out of what is recorded and told: each value becomes the name of its variable, in brackets. Pure.

Rules
1. Longest value first, so that one that contains another is taken out whole.
2. A value shorter than `LEAST` characters is left alone: it would be found in words that have nothing to do with it.
3. In text that is JSON already, a value is looked for as JSON writes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from protocol._outcomes import CallResult

LEAST = 6
_TEXTS = ("summary", "next_action")


class Redaction:
    """``values``: secrets by the names of their variables."""

    def __init__(self, values: Mapping[str, str] | None = None) -> None:
        self._plain: list[tuple[str, str]] = []
        self._in_json: list[tuple[str, str]] = []
        self.learn(values or {})

    def __bool__(self) -> bool:
        return bool(self._plain)

    def learn(self, values: Mapping[str, str]) -> None:
        """More that nobody may read."""
        known = {**dict(self._plain), **{value: f"[{name}]" for name, value in values.items() if len(value) >= LEAST}}
        self._plain = sorted(known.items(), key=lambda pair: -len(pair[0]))
        self._in_json = [(form, name) for value, name in self._plain for form in _forms(value)]

    def text(self, text: str) -> str:
        """A text without them."""
        return _without(text, self._plain)

    def json(self, text: str) -> str:
        """A text that is JSON, and stays it, without them."""
        return _without(text, self._in_json)

    def value(self, value: Any) -> Any:
        """The same for what is in lists and dicts."""
        match value:
            case str():
                return self.text(value)
            case dict():
                return {self.value(name): self.value(one) for name, one in value.items()}
            case list() | tuple():
                return [self.value(one) for one in value]
            case _:
                return value

    def result(self, result: CallResult) -> None:
        """Take them out of everything in a result that a tool may have put there. The raw output stays as it is."""
        result.content, result.items = self.value(result.content), self.value(result.items)
        for name in _TEXTS:
            if (text := getattr(result, name)) is not None:
                setattr(result, name, self.text(text))
        if result.error is not None:
            result.error.message, result.error.code = self.text(result.error.message), self.text(result.error.code)
        if result.output.view:
            result.output.view = self.text(result.output.view)
        for notice in result.notices:
            notice.text = self.text(notice.text)


def _forms(value: str) -> Iterable[str]:
    return {json.dumps(value, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)}


def _without(text: str, values: list[tuple[str, str]]) -> str:
    for value, name in values:
        if value in text:
            text = text.replace(value, name)
    return text
