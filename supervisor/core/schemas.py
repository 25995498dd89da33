"""Whether arguments fit a tool. Owns the compiled schema of each tool and the words in which a misfit is told.

A schema is a worker's word and is not trusted: it fetches nothing, its patterns may not run away, and it is compiled
once. Judging costs 1 µs; telling *what* does not fit costs about 25 µs a fault, and a frame of arguments can hold half
a million. So the faults are listed for arguments of ordinary size, and for larger ones only the fields are named.
"""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs

from protocol import InvalidArguments, ToolDescription

_VALUES_EXAMINED = 1000
_FAULTS_TOLD = 5
_FAULT_CHARACTERS = 300
_NAME_CHARACTERS = 80
_BACKTRACKS = 100_000
"""About a millisecond. Only patterns with look-around or back-references backtrack at all."""

_ALTERNATIVES = (jsonschema_rs.ValidationErrorKind.AnyOf, jsonschema_rs.ValidationErrorKind.OneOfNotValid)


class SchemaError(ValueError):
    """A tool's schema cannot be compiled: the tool cannot be served. The text names the tool."""


class ArgumentSchema:
    """The compiled schema of one tool."""

    __slots__ = ("_schema", "_tool", "_validator")

    def __init__(self, tool: ToolDescription) -> None:
        """Compile. Raises SchemaError for a schema that is none, or that refers to something outside itself."""
        self._tool, self._schema = tool.name, tool.schema
        self._validator = self._compiled(tool.schema)

    def check(self, values: dict[str, Any]) -> None:
        """Raises InvalidArguments when ``values`` do not fit; its text is bounded and each fault has its path."""
        if self._validator.is_valid(values):
            return
        raise InvalidArguments(f"arguments do not fit {self._tool}: {self._faults(values)}")

    def _faults(self, values: dict[str, Any]) -> str:
        if _has_more_values_than(_VALUES_EXAMINED, values):
            return f"{self._misfits(values)} (too large for every fault to be listed)"
        faults = [_told(error) for error in self._validator.iter_errors(values)]
        more = len(faults) - _FAULTS_TOLD
        return "; ".join(faults[:_FAULTS_TOLD]) + (f"; and {more} more" if more > 0 else "")

    def _misfits(self, values: dict[str, Any]) -> str:
        """The fields that do not fit when each is looked at alone; what is missing is a fault of no field."""
        alone = self._compiled({**self._schema, "required": [], "minProperties": 0})
        names = [name[:_NAME_CHARACTERS] for name, value in values.items() if not alone.is_valid({name: value})]
        return ", ".join(names[:_FAULTS_TOLD]) or "the fields do not fit together, or one is missing"

    def _compiled(self, schema: dict[str, Any]) -> jsonschema_rs.Validator:
        patterns = jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS)
        try:
            return jsonschema_rs.validator_for(schema, pattern_options=patterns, offline=True)
        except (ValueError, TypeError) as error:
            reason = _shortened(str(error).partition("\n")[0])
            raise SchemaError(f"the schema of {self._tool} cannot be used: {reason}") from error


def _told(fault: jsonschema_rs.ValidationError) -> str:
    error = _closest(fault)
    path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path)
    words = _words(error)
    return _shortened(f"{path.lstrip('.')}: {words}" if path else words)


def _words(error: jsonschema_rs.ValidationError) -> str:
    """What is wrong, with all that is allowed: the library names two of many values, and nothing of alternatives."""
    if isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Enum):
        value = error.message.partition(" is not one of ")[0]
        return f"{value} is not one of {', '.join(json.dumps(one) for one in error.kind.options)}"
    if isinstance(error.kind, _ALTERNATIVES):
        return (
            ", or ".join(dict.fromkeys(_words(branch[0]) for branch in error.kind.context if branch)) or error.message
        )
    return error.message


def _closest(error: jsonschema_rs.ValidationError) -> jsonschema_rs.ValidationError:
    """Of alternatives that all fail, the fault of the one that went deepest, or whose type fits: for an optional field,
    the field's own."""
    while isinstance(error.kind, _ALTERNATIVES):
        firsts = [branch[0] for branch in error.kind.context if branch]
        closest = max(firsts, key=_closeness, default=error)
        if _closeness(closest) <= (len(error.instance_path), False):
            break
        error = closest
    return error


def _closeness(error: jsonschema_rs.ValidationError) -> tuple[int, bool]:
    return len(error.instance_path), not isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Type)


def _shortened(text: str) -> str:
    """Both ends of it: a message starts with the value, which may be long, and ends with what is wrong with it."""
    half = _FAULT_CHARACTERS // 2
    return text if len(text) <= _FAULT_CHARACTERS else f"{text[:half]} … {text[-half:]}"


def _has_more_values_than(limit: int, values: object) -> bool:
    """Counts without recursion and stops at the limit."""
    boxes, count = [values], 0
    while boxes and count <= limit:
        box = boxes.pop()
        if isinstance(box, (dict, list)):
            count += len(box)
            if count <= limit:
                boxes.extend(box.values() if isinstance(box, dict) else box)
    return count > limit
