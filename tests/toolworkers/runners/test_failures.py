from __future__ import annotations

import pytest

from protocol._errors import InvalidArguments
from toolworkers._registry import ToolError
from toolworkers.runners._failures import failed, printable


class SilentError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ToolError("m", code="c", class_="transient_tool"), ("raised", "transient_tool", "c", "m")),
        (ToolError("m", code="sandbox_denied", class_="policy"), ("refused", "policy", "sandbox_denied", "m")),
        (InvalidArguments("m"), ("raised", "argument", "invalid_arguments", "m")),
        (SystemExit(3), ("raised", "tool", "exit", "the tool called exit(3)")),
        (KeyError("k"), ("raised", "tool", "raised", "KeyError: 'k'")),
        (KeyboardInterrupt(), ("raised", "tool", "raised", "KeyboardInterrupt: ")),
        (SilentError(), ("raised", "tool", "raised", "SilentError: (its text cannot be had: RuntimeError)")),
    ],
)
def test_each_exception_has_its_words(error: BaseException, words: tuple[str, ...]) -> None:
    ended = failed(9, error)
    assert (ended.how, ended.error_class, ended.error_code, ended.message) == words
    assert ended.nonce == 9


def test_text_is_made_to_fit_any_codec() -> None:
    assert printable("a\udc80b") == "a\\udc80b"
    assert len(printable("x" * 10_000)) == 4096
    assert printable(7) == "7"
