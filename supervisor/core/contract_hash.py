"""Whether a tool still promises and takes what it did: one digest of its contract and its schema. Pure.

The same in every daemon and after every restart, because keys are sorted and defaults left out: a field that a later
version adds changes the digest of no tool that does not use it.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from protocol._contracts import Contract, ToolDescription
from supervisor.core.canonical import canonical

_USUAL: dict[str, Any] = msgspec.to_builtins(Contract())


def contract_hash(description: ToolDescription) -> str:
    """64 hexadecimal digits. A tool's name and its line for people are not in it."""
    said = msgspec.to_builtins(description.contract)
    unusual = {name: value for name, value in said.items() if value != _USUAL[name]}
    return hashlib.sha256(b"deadlined.contract.v1\0" + canonical([unusual, description.schema])).hexdigest()
