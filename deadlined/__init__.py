"""deadlined: tool calls that really end. The public face: clients, ``tool``, the command line.

Everything is loaded on first use: ``from deadlined import tool`` loads neither trio nor anyio.
"""

from __future__ import annotations

TYPE_CHECKING = False  # what `typing` says, without the 5 ms of loading it
if TYPE_CHECKING:
    from typing import Any

    from deadlined._errors import ConnectionLost as ConnectionLost
    from deadlined._errors import DaemonNotRunning as DaemonNotRunning
    from deadlined._errors import DaemonSilent as DaemonSilent
    from deadlined._errors import DeadlinedError as DeadlinedError
    from deadlined._errors import RequestRefused as RequestRefused
    from deadlined._errors import RunStopped as RunStopped
    from deadlined.async_client import AsyncClient as AsyncClient
    from deadlined.client import Client as Client
    from protocol import CallResult as CallResult
    from protocol import FieldsCheck as FieldsCheck
    from protocol import FieldValue as FieldValue
    from protocol import FileCheck as FileCheck
    from protocol import PersonCheck as PersonCheck
    from protocol import RunView as RunView
    from protocol import StopRecord as StopRecord
    from toolworkers import CommandPlan as CommandPlan
    from toolworkers import Context as Context
    from toolworkers import ToolError as ToolError
    from toolworkers import command as command
    from toolworkers import tool as tool

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
    "FieldValue": "protocol",
    "FieldsCheck": "protocol",
    "FileCheck": "protocol",
    "PersonCheck": "protocol",
    "RequestRefused": "deadlined._errors",
    "RunStopped": "deadlined._errors",
    "RunView": "protocol",
    "StopRecord": "protocol",
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
