"""``python``: code in a fresh worker's own interpreter; the value of its last expression is the content.

The worker ends with the call, so nothing here restores what the code changes. Prints go to the call's output.
"""

from __future__ import annotations

import ast
import linecache
import sys
import traceback
from types import ModuleType
from typing import Any

from toolworkers._content import ContentTooLarge, to_content
from toolworkers._context import Context
from toolworkers._tools import ToolError, tool

_FILE = "<python>"
_NO_CODE = (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError)
_REPR_LIMIT = 64 << 10


@tool(approval="never", fresh=True, failure_is_feedback=True, repeat_after_unknown="allow")
def python(code: str, ctx: Context) -> Any:
    """Run Python code in a fresh process. The value of the last expression is the result; prints are its output."""
    statements, last = _compiled(code)
    namespace = _own_main(code, ctx)
    try:
        exec(statements, namespace)  # noqa: S102  # running the caller's code is this tool
        value = None if last is None else eval(last, namespace)  # noqa: S307  # likewise
        return _content(value)
    except SystemExit as error:
        if error.code in (None, 0):
            return None
        raise ToolError(f"the code ended with sys.exit({error.code!r})", code="exit") from error
    except ContentTooLarge:
        raise
    except Exception as error:  # the boundary to a stranger's code
        raise ToolError(_told(error)) from error


def _compiled(code: str) -> tuple[Any, Any]:
    """All statements but a last expression, and that expression or None."""
    try:
        tree = ast.parse(code, _FILE)
        last = None
        if tree.body and isinstance(tree.body[-1], ast.Expr):
            last = compile(ast.Expression(tree.body.pop().value), _FILE, "eval", dont_inherit=True)  # type: ignore[attr-defined]  # an Expr, as the line above says
        return compile(tree, _FILE, "exec", dont_inherit=True), last
    except _NO_CODE as error:
        told = "".join(traceback.format_exception_only(error)).strip()
        raise ToolError(told, code="syntax_error", class_="argument") from error


def _own_main(code: str, ctx: Context) -> dict[str, Any]:
    """A ``__main__`` of the code's own, as ``python FILE`` would give it; its source for tracebacks."""
    module = ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.path.insert(0, str(ctx.root))
    linecache.cache[_FILE] = (len(code), None, code.splitlines(keepends=True), _FILE)
    return vars(module)


def _content(value: Any) -> Any:
    try:
        return to_content(value)
    except ContentTooLarge:  # a part of it would pass for the whole
        raise
    except ToolError:
        return repr(value)[:_REPR_LIMIT]


def _told(error: Exception) -> str:
    """Print the traceback, without the frames of this file, into the call's output; what to say in the result."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    traceback.print_exception(type(error), error, trace)
    last = "".join(traceback.format_exception_only(error)).strip()
    return last if trace is None else f"line {trace.tb_lineno}: {last}"
