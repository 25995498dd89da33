"""What is said between clients, daemon and workers: messages, frames, limits, results.

Owns the meaning of bytes and who may say what when. Does no I/O, reads no clock, imports msgspec and the standard
library only. The names below are public; the underscored modules behind them may move. Everything is loaded on first
use, so that the killer and ``deadlined exec`` (which need no msgspec) start as fast as a bare interpreter: this module
itself imports nothing at all, not even ``typing``, which would be half of their start.
"""

from __future__ import annotations

__owner__ = "deadlined"

_HOME = {
    "_framing": ("FrameBuffer", "LineBuffer", "frame", "line", "speaks_json", "FRAME_LIMIT", "FRAME_HARD_LIMIT"),
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
    "_checks": ("FieldValue", "FieldsCheck", "FileCheck", "PersonCheck"),
    "_runs": ("ApprovalView", "OpenEffect", "RunReason", "RunRow", "RunStatus", "RunView", "StopRecord"),
    "_contracts": ("Contract", "ToolDescription", "Limits", "Approval"),
    "_quantities": ("parse_duration_ms", "parse_size_bytes", "say_duration", "say_size"),
    "_places": ("PlaceError", "default_socket", "find_socket"),
    "_deadlines": ("CEILING_MS", "instant_after", "remaining_ms", "valid_budget_ms"),
}
_WHERE = {name: module for module, names in _HOME.items() for name in names}
__all__ = sorted(_WHERE)  # noqa: PLE0605  # a list, computed so that names and homes cannot differ

TYPE_CHECKING = False
if TYPE_CHECKING:  # what `__getattr__` hides from the checkers; a test holds the two lists equal
    from protocol._checks import FieldsCheck as FieldsCheck
    from protocol._checks import FieldValue as FieldValue
    from protocol._checks import FileCheck as FileCheck
    from protocol._checks import PersonCheck as PersonCheck
    from protocol._contracts import Approval as Approval
    from protocol._contracts import Contract as Contract
    from protocol._contracts import Limits as Limits
    from protocol._contracts import ToolDescription as ToolDescription
    from protocol._deadlines import CEILING_MS as CEILING_MS
    from protocol._deadlines import instant_after as instant_after
    from protocol._deadlines import remaining_ms as remaining_ms
    from protocol._deadlines import valid_budget_ms as valid_budget_ms
    from protocol._errors import InvalidArguments as InvalidArguments
    from protocol._errors import LocalProtocolError as LocalProtocolError
    from protocol._errors import ProtocolError as ProtocolError
    from protocol._errors import QuantityError as QuantityError
    from protocol._errors import RemoteProtocolError as RemoteProtocolError
    from protocol._framing import FRAME_HARD_LIMIT as FRAME_HARD_LIMIT
    from protocol._framing import FRAME_LIMIT as FRAME_LIMIT
    from protocol._framing import FrameBuffer as FrameBuffer
    from protocol._framing import LineBuffer as LineBuffer
    from protocol._framing import frame as frame
    from protocol._framing import line as line
    from protocol._framing import speaks_json as speaks_json
    from protocol._outcomes import CallResult as CallResult
    from protocol._outcomes import Delivery as Delivery
    from protocol._outcomes import ErrorClass as ErrorClass
    from protocol._outcomes import ErrorInfo as ErrorInfo
    from protocol._outcomes import Exit as Exit
    from protocol._outcomes import Isolation as Isolation
    from protocol._outcomes import KillReceipt as KillReceipt
    from protocol._outcomes import Notice as Notice
    from protocol._outcomes import OutputInfo as OutputInfo
    from protocol._outcomes import Reason as Reason
    from protocol._outcomes import Status as Status
    from protocol._outcomes import StreamInfo as StreamInfo
    from protocol._outcomes import Timing as Timing
    from protocol._outcomes import Usage as Usage
    from protocol._outcomes import exit_code as exit_code
    from protocol._places import PlaceError as PlaceError
    from protocol._places import default_socket as default_socket
    from protocol._places import find_socket as find_socket
    from protocol._quantities import parse_duration_ms as parse_duration_ms
    from protocol._quantities import parse_size_bytes as parse_size_bytes
    from protocol._quantities import say_duration as say_duration
    from protocol._quantities import say_size as say_size
    from protocol._runs import ApprovalView as ApprovalView
    from protocol._runs import OpenEffect as OpenEffect
    from protocol._runs import RunReason as RunReason
    from protocol._runs import RunRow as RunRow
    from protocol._runs import RunStatus as RunStatus
    from protocol._runs import RunView as RunView
    from protocol._runs import StopRecord as StopRecord
else:

    def __getattr__(name: str) -> object:
        module = _WHERE.get(name)
        if module is None:
            raise AttributeError(f"module 'protocol' has no attribute {name!r}")
        import importlib

        value = globals()[name] = getattr(importlib.import_module(f"protocol.{module}"), name)
        return value
