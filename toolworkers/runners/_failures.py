"""What a tool threw → the words of its terminal frame. The one mapping, for Python tools and for plans of commands."""

from __future__ import annotations

import contextlib
import sys
import traceback

from protocol._errors import InvalidArguments
from protocol._outcomes import ErrorClass
from protocol._worker_messages import Ended
from toolworkers._registry import ToolError

_TEXT_LIMIT = 4096
_stderr = sys.stderr


def failed(nonce: int, error: BaseException) -> Ended:
    """The Ended of a call whose code raised ``error``. Never raises, whatever the exception's own methods do."""
    if isinstance(error, ToolError):
        how = "refused" if error.class_ is ErrorClass.POLICY else "raised"
        ended = Ended(nonce, how, error_class=error.class_.value, error_code=_word(error.code))  # type: ignore[arg-type]  # the two words above
        ended.message = printable(error.message)
        return ended
    if isinstance(error, InvalidArguments):
        return _raised(nonce, "argument", "invalid_arguments", printable(error))
    if isinstance(error, SystemExit):
        return _raised(nonce, "tool", "exit", f"the tool called exit({printable(error.code)})")
    return _raised(nonce, "tool", "raised", f"{type(error).__name__}: {printable(error)}")


def _raised(nonce: int, error_class: str, code: str, message: str) -> Ended:
    return Ended(nonce, "raised", error_class=error_class, error_code=code, message=message)


def tell_traceback(error: BaseException) -> None:
    """Print where it happened into the call's output, without our own frame. A failure to print is nothing."""
    with contextlib.suppress(BaseException):
        inside = error.__traceback__ and error.__traceback__.tb_next
        traceback.print_exception(type(error), error, inside and inside.tb_next, file=_stderr)


def printable(thing: object) -> str:
    """A thing's text that any codec can carry: no lone surrogates, at most 4096 characters. Never raises."""
    try:
        text = thing if type(thing) is str else str(thing)
        return text[:_TEXT_LIMIT].encode("utf-8", "backslashreplace").decode()
    except BaseException as error:  # noqa: BLE001  # a tool's exception may do anything in its __str__
        return f"(its text cannot be had: {type(error).__name__})"


def _word(code: object) -> str:
    return printable(code)[:64]
