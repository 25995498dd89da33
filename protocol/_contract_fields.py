"""A contract out of named fields, as decorators and configuration give them: which names exist, which values may be.

Pure: fields in, a Contract out. Ranges belong to `Contract` itself; here are names, types, and fields that contradict
each other. Every refusal says what is allowed, because a person wrote the field and will
correct it.
"""

from __future__ import annotations

import enum
import re
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from protocol._contracts import ISOLATION_ORDER, Contract
from protocol._scrub import refuse_bad_scrub

_VARIABLE = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_LONGEST_HOOK_MS = 60_000


def declared_contract(fields: Mapping[str, Any], base: Contract | None = None) -> Contract:
    """``base`` (default: the careful contract) with ``fields`` in place of its own.

    Raises TypeError for a name that is no field, ValueError for a value (or a pair of values) that is not allowed.
    """
    base = base or Contract()
    read = {name: _read(name, value) for name, value in fields.items()}
    contract = msgspec.structs.replace(base, **read)
    _refuse_contradictions(contract)
    return contract


@cache
def _field_types() -> dict[str, Any]:
    return {name: kind for name, kind in typing.get_type_hints(Contract).items() if name != "kind"}


def _read(name: str, value: Any) -> Any:
    known = _field_types()
    if name not in known:
        raise TypeError(f"{name!r} is no field of a contract; allowed: {', '.join(sorted(known))}")
    if name == "reconcile" and isinstance(value, str):  # the short way of naming a tool
        value = {"tool": value}
    try:
        return msgspec.convert(value, known[name])
    except msgspec.ValidationError as error:
        raise ValueError(f"{name} = {value!r} is not allowed ({error}); allowed: {_say(known[name])}") from error


def _refuse_contradictions(contract: Contract) -> None:
    if contract.timeout_ms > contract.max_timeout_ms:
        raise ValueError(
            f"timeout_ms = {contract.timeout_ms} is over max_timeout_ms = {contract.max_timeout_ms};"
            " allowed: timeout_ms of at most max_timeout_ms"
        )
    if contract.term_grace_ms >= contract.timeout_ms:
        raise ValueError(
            f"term_grace_ms = {contract.term_grace_ms} leaves nothing of timeout_ms = {contract.timeout_ms};"
            " allowed: a term_grace_ms below timeout_ms, because SIGTERM goes out that much before the deadline"
        )
    wanted, least = contract.isolation, contract.min_isolation
    if wanted and least and ISOLATION_ORDER.index(wanted) < ISOLATION_ORDER.index(least):
        raise ValueError(
            f"isolation = {wanted!r} is below min_isolation = {least!r};"
            " allowed: an isolation that is at least what the tool demands"
        )
    _refuse_after_kill(contract)
    refuse_bad_scrub(contract.scrub)
    if contract.progress == "self" and contract.kind == "command":
        raise ValueError('progress = "self" needs a tool that gives a fingerprint; allowed: Python tools')
    _refuse_reconcile(contract)
    for name in contract.secrets:
        if not _VARIABLE.fullmatch(name):
            raise ValueError(f"secrets has {name!r}; allowed: names of variables (letters, digits, '_')")
    if contract.fresh and contract.reusable:
        raise ValueError("fresh and reusable exclude each other: a fresh tool gets a new worker for each call")


def _refuse_after_kill(contract: Contract) -> None:
    hook = contract.after_kill
    if hook is not None and not (hook.argv and hook.argv[0]):
        raise ValueError("after_kill.argv is empty; allowed: a list of texts, the program first")
    if hook is not None and hook.timeout_ms > _LONGEST_HOOK_MS:
        raise ValueError(
            f"after_kill.timeout_ms = {hook.timeout_ms} is not allowed; allowed: at most {_LONGEST_HOOK_MS}, because"
            " the result waits for it"
        )
    for pattern in contract.lock_files:
        if not pattern or "\0" in pattern:
            raise ValueError(f"lock_files has {pattern!r}; allowed: paths, which may have *, ? and [ ]")


def _refuse_reconcile(contract: Contract) -> None:
    asked = contract.reconcile
    if asked is None:
        return
    if contract.read_only:
        raise ValueError("reconcile and read_only exclude each other: what only reads leaves nothing to find out")
    if asked.timeout_ms > _LONGEST_HOOK_MS:
        raise ValueError(
            f"reconcile.timeout_ms = {asked.timeout_ms} is not allowed; allowed: at most {_LONGEST_HOOK_MS}, because"
            " the result waits for it"
        )


def _say(kind: Any) -> str:
    """A field's type in words a person can choose from."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return " | ".join(repr(value) for value in arguments)
    if origin in (types.UnionType, typing.Union):
        return " or ".join("nothing (None)" if part is type(None) else _say(part) for part in arguments)
    if origin is tuple:
        return f"a list of {_say(arguments[0])}"
    if origin is dict:
        return f"a table of name = {_say(arguments[1])}"
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return " | ".join(repr(str(member.value)) for member in kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return f"fields {', '.join(kind.__struct_fields__)}"
    return {bool: "true | false", int: "a whole number", str: "text"}.get(kind, str(kind))
