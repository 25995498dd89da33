"""The far side of the pipe: every process that is not the daemon. No Trio here, and nothing heavy at the top.

Public: ``tool``, ``command``, ``Context``, ``CommandPlan``, ``ToolError``.
Entry of the processes: ``python -m toolworkers``.
"""

from __future__ import annotations

TYPE_CHECKING = False  # what `typing` says, without the 5 ms of loading it
if TYPE_CHECKING:
    from typing import Any

    from toolworkers._registry import CommandPlan as CommandPlan
    from toolworkers._registry import Context as Context
    from toolworkers._registry import ToolError as ToolError
    from toolworkers._registry import command as command
    from toolworkers._registry import tool as tool

__owner__ = "deadlined"
__all__ = ["CommandPlan", "Context", "ToolError", "command", "tool"]  # loaded on first use


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'toolworkers' has no attribute {name!r}")
    from toolworkers import _registry

    return getattr(_registry, name)
