"""What is said between clients, daemon and workers: messages, frames, limits, results.

Owns the meaning of bytes and who may say what when. Does no I/O, reads no clock, imports msgspec and the standard
library only. The names below are public; the underscored modules behind them may move. Everything is loaded on first
use, so that the killer and ``deadlined exec`` (which need no msgspec) start as fast as a bare interpreter.
"""

from __future__ import annotations

TYPE_CHECKING = False  # what `typing` says, without the 5 ms of loading it
if TYPE_CHECKING:
    from typing import Any

__owner__ = "deadlined"

_HOME = {
    "_framing": ("FrameBuffer", "LineBuffer", "frame", "line", "FRAME_LIMIT", "FRAME_HARD_LIMIT"),
    "_errors": ("ProtocolError", "LocalProtocolError", "RemoteProtocolError", "InvalidArguments", "QuantityError"),
    "_outcomes": (
        "CallResult",
        "Delivery",
        "ErrorClass",
        "ErrorInfo",
        "Exit",
        "Isolation",
        "KillReceipt",
        "Notice",
        "OutputInfo",
        "Reason",
        "Status",
        "StreamInfo",
        "Timing",
        "Usage",
        "exit_code",
    ),
    "_contracts": ("Contract", "ToolDescription", "Limits", "Approval"),
    "_quantities": ("parse_duration_ms", "parse_size_bytes", "say_duration", "say_size"),
    "_places": ("PlaceError", "default_socket", "find_socket"),
    "_deadlines": ("CEILING_MS", "instant_after", "remaining_ms", "valid_budget_ms"),
}
_WHERE = {name: module for module, names in _HOME.items() for name in names}
__all__ = sorted(_WHERE)  # noqa: PLE0605  # a list, computed so that no name is written twice


def __getattr__(name: str) -> Any:
    module = _WHERE.get(name)
    if module is None:
        raise AttributeError(f"module 'protocol' has no attribute {name!r}")
    import importlib  # 1 ms that `exec` never spends

    return getattr(importlib.import_module(f"protocol.{module}"), name)
