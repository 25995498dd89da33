"""deadlined: tool calls that really end. The public face: clients, ``tool``, the command line.

Everything is loaded on first use: ``from deadlined import tool`` loads neither trio nor anyio.
"""

from __future__ import annotations

TYPE_CHECKING = False  # what `typing` says, without the 5 ms of loading it
if TYPE_CHECKING:
    from typing import Any

__owner__ = "deadlined"
__version__ = "0.1.0"

_WHERE = {
    "Client": "deadlined.client",
    "AsyncClient": "deadlined.async_client",
    "CallResult": "protocol",
    "ConnectionLost": "deadlined._errors",
    "DaemonNotRunning": "deadlined._errors",
    "DaemonSilent": "deadlined._errors",
    "DeadlinedError": "deadlined._errors",
    "RequestRefused": "deadlined._errors",
    "CommandPlan": "toolworkers",
    "Context": "toolworkers",
    "ToolError": "toolworkers",
    "command": "toolworkers",
    "tool": "toolworkers",
}
__all__ = sorted(_WHERE)  # noqa: PLE0605  # a list, computed so that no name is written twice


def __getattr__(name: str) -> Any:
    home = _WHERE.get(name)
    if home is None:
        raise AttributeError(f"module 'deadlined' has no attribute {name!r}")
    import importlib  # 1 ms that `exec` never spends

    return getattr(importlib.import_module(home), name)
