"""The command that a contract wants run when a call did not end by itself: a command tool made out of ``after_kill``.

It is a template like any other: the program is literal, ``{name}`` is an argument of the call that was ended, a value
fills an element and chooses none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from toolworkers._plans import CommandPlan
from toolworkers._templates import Element, Slot, parse_element, render
from toolworkers._tools import Tool


def hook_of(tool: Tool) -> Tool:
    """The command tool that takes the same arguments and runs the tool's ``after_kill``."""
    assert tool.contract.after_kill is not None
    contract = msgspec.structs.replace(tool.contract, kind="command", read_only=False, fresh=False, term_grace_ms=0)
    return msgspec.structs.replace(
        tool, contract=contract, function=_planner(_template(tool.contract.after_kill.argv)), context_parameter=None
    )


def refuse_unusable(tool: Tool) -> None:
    """Raises ValueError for an ``after_kill`` whose program is no literal, or that names no argument of the tool."""
    hook = tool.contract.after_kill
    if hook is None:
        return
    program, *others = _template(hook.argv)
    if any(isinstance(piece, Slot) for piece in program):
        raise ValueError("after_kill.argv[0] must be the literal name of a program: no value ever chooses what is run")
    names = tool.arguments.__struct_fields__
    for element in others:
        for piece in element:
            if isinstance(piece, Slot) and piece.name not in names:
                raise ValueError(
                    f"after_kill.argv uses {{{piece.name}}}, which is no argument of {tool.name}; there are:"
                    f" {', '.join(names) or 'none'}"
                )


def _template(argv: tuple[str, ...]) -> list[Element]:
    return [parse_element(text) for text in argv]


def _planner(template: list[Element]) -> Callable[..., CommandPlan]:
    def plan(**arguments: Any) -> CommandPlan:
        return CommandPlan(render(template, arguments))

    return plan
