"""What makes two calls the same call, and two outcomes the same outcome: SHA-256 over their canonical forms. Pure.

Rules
1. ``args_fp`` is over a version word, the tool's name, its contract hash, the place where the call runs, and the
   canonical bytes of its arguments (`call_form`). It is kept whole, 64 hexadecimal digits; 16 are shown.
2. ``call_fp`` is over tool and ``args_fp``. A ``situation`` is ``call_fp`` and the state version of the run, side by
   side: it is compared inside of one run, and nobody is shown it.
3. An outcome is status, error code, exit code or signal, content, and for a call that ended by itself its error message
   and its output. What a kill cut off says when the kill came and no more, so it does not count.
4. Output is what was written: by its digest where that is known and of all of it; else by the sizes of the streams and
   the view, without the place of the raw file. With patterns to scrub, by the scrubbed view alone: sizes vary with
   what varies.
5. Times, identifiers of calls, places of files, processes, notices never count.
"""

from __future__ import annotations

import hashlib
from typing import Any

from protocol._contracts import Contract
from protocol._outcomes import CallResult, ErrorInfo, OutputInfo, Status
from supervisor.core.call_form import Surroundings
from supervisor.core.canonical import canonical
from supervisor.core.contract_hash import contract_hash
from supervisor.core.output import without_marker, without_place
from supervisor.core.scrubbing import Scrubber, scrub_of
from supervisor.core.tools import ServedTool

__all__ = [
    "SHOWN",
    "Surroundings",
    "args_fingerprint",
    "call_fingerprint",
    "contract_hash",
    "outcome_fingerprint",
    "paths_to_resolve",
    "situation",
]
SHOWN = 16
"""Digits of a fingerprint that people and models see."""
_ENDED = (Status.OK, Status.NO_RESULT, Status.ERROR)


def paths_to_resolve(tool: ServedTool, values: dict[str, Any], around: Surroundings) -> dict[str, str]:
    """The texts among these arguments whose real paths `Surroundings` is to have (role ``realpath``; usually none),
    each with the absolute path to resolve."""
    return tool.form.paths_to_resolve(values, around)


def args_fingerprint(tool: ServedTool, values: dict[str, Any], around: Surroundings) -> str:
    """64 digits; ``values`` are arguments that fit the tool."""
    return tool.form.fingerprint(values, around)


def call_fingerprint(tool: str, args_fp: str) -> str:
    """64 digits."""
    return hashlib.sha256(f"deadlined.call.v1\0{tool}\0{args_fp}".encode()).hexdigest()


def situation(call_fp: str, state_version: int) -> str:
    """This call, in this state of what it works on."""
    return f"{call_fp}.{state_version}"


def outcome_fingerprint(result: CallResult, contract: Contract) -> str:
    """64 digits of what came of a call (rules 3 to 5)."""
    error, exit_, content, items = result.error, result.exit, result.content, result.items
    scrubber = Scrubber(scrub_of(contract.scrub)) if contract.scrub else None
    if scrubber is not None:
        content, items = scrubber.content(content), scrubber.content(items)
    parts: list[Any] = [
        result.status,
        error.code if error else None,
        [exit_.code, exit_.signal] if exit_ else None,
        content,
        items,
    ]
    if result.status in _ENDED:
        parts.append(_message(error, scrubber) if error else None)
        parts.append(_written(result.output, scrubber) if result.output.bytes else None)
    return hashlib.sha256(b"deadlined.outcome.v1\0" + canonical(parts)).hexdigest()


def _message(error: ErrorInfo, scrubber: Scrubber | None) -> str:
    return error.message if scrubber is None else scrubber.text(error.message)


def _written(output: OutputInfo, scrubber: Scrubber | None) -> Any:
    if scrubber is not None and scrubber.has_patterns:
        return scrubber.text(without_marker(output.view))
    sizes = {name: stream.bytes for name, stream in output.streams.items() if stream.bytes}
    if output.sha256 is not None and len(sizes) == 1:
        return [sizes, output.sha256]
    return [sizes, without_place(output.view)]
