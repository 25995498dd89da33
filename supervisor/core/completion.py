"""Whether a run is done, as far as that is judged from what is known: what a file's check asks of a tool and makes of
its answer, and whether the fields of an answer are there and rest on something. Pure.

Rules
1. A file is looked at by a call of a tool, in a worker, under the run's deadline: no pattern and no file can hold the
   daemon up.
2. A field is there when it has a value that is more than white space. Evidence counts once however often it is named,
   and only when the run has it.
3. What is said of a failed check is for a model: what is missing, what was named in vain, what could be named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from protocol._checks import FieldsCheck, FieldValue, FileCheck, PersonCheck, say_check
from protocol._outcomes import CallResult, Status
from supervisor.core.evidence import Evidence

_SHOWN, _FAULTS = 20, 8
_ABSENT = ("not_found", "not_a_directory")
_THERE = ("not_text", "is_a_directory", "not_a_file")
CONFIRM = "a person confirms the answer of the run before it is done"


class FileCall(NamedTuple):
    """The call that looks at a file."""

    tool: str
    arguments: str


def file_call(check: FileCheck) -> FileCall:
    """What to ask of which tool."""
    if check.matches is not None:
        return _call("search", pattern=check.matches, path=check.path, max=1)
    lines = 1 if check.equals is None else check.equals.count("\n") + 2
    return _call("read_file", path=check.path, max_lines=lines)


def judge_file(check: FileCheck, result: CallResult) -> str | None:
    """What is wrong with the file, by the answer; None: nothing."""
    said = _found(check, result)
    return None if said is None else f"check: {say_check(check)}: {said}"


def judge_fields(check: FieldsCheck, fields: Mapping[str, FieldValue], evidence: Evidence) -> str | None:
    """What is wrong with the fields of an answer; None: nothing."""
    faults = list(_faults(check, fields, evidence))
    if not faults:
        return None
    wanted = check.evidence or check.least_evidence
    known = f". Evidence that may be named: {_list(evidence.latest(_SHOWN))}" if wanted else ""
    return f"check: {say_check(check)}: {_some(faults)}{known}"


def to_confirm(check: PersonCheck, answer: str, fields: Mapping[str, FieldValue]) -> str:
    """What a person is shown, as the JSON text of an approval's arguments."""
    shown: dict[str, Any] = {"answer": answer}
    shown |= {"fields": fields} if fields else {}
    shown |= {"question": check.question} if check.question else {}
    return msgspec.json.encode(shown).decode()


def not_confirmed(note: str) -> str:
    """What a run hears of a person's no."""
    return "a person does not confirm the answer" + (f": {note}" if note else "")


def _call(tool: str, **arguments: Any) -> FileCall:
    return FileCall(tool, msgspec.json.encode(arguments).decode())


def _found(check: FileCheck, result: CallResult) -> str | None:
    code = "" if result.error is None else result.error.code
    if check.exists is False:
        return None if code in _ABSENT else "it is there" if _was_read(result, code) else _trouble(result)
    if check.matches is None and check.equals is None:
        return None if _was_read(result, code) else _trouble(result)
    if result.status is not Status.OK or not isinstance(result.content, dict):
        return _trouble(result)
    if check.matches is not None:
        return None if result.content.get("matches") else "no line of it does"
    return _difference(check.equals or "", result.content)


def _was_read(result: CallResult, code: str) -> bool:
    return result.status is Status.OK or code in _THERE


def _trouble(result: CallResult) -> str:
    return result.error.message if result.error is not None else result.summary or str(result.status)


def _difference(wanted: str, content: dict[str, Any]) -> str | None:
    text = content.get("text")
    if text == wanted and not content.get("truncated"):
        return None
    lines, wants = str(text).splitlines(keepends=True), wanted.splitlines(keepends=True)
    alike = next((n for n, pair in enumerate(zip(lines, wants, strict=False)) if pair[0] != pair[1]), None)
    line = min(len(lines), len(wants)) if alike is None else alike
    return f"its text is another, from line {line + 1} on"


def _faults(check: FieldsCheck, fields: Mapping[str, FieldValue], evidence: Evidence) -> Iterator[str]:
    named: set[str] = set()
    for name in check.fields:
        field = fields.get(name)
        if field is None or not field.value.strip():
            yield f"{name} is missing" if field is None else f"{name} is empty"
            continue
        known = {one for one in field.evidence if one in evidence}
        named |= known
        if unknown := [one for one in field.evidence if one not in known]:
            yield f"{name} names {_list(unknown)}, which the run does not have"
        elif len(known) < check.evidence:
            yield f"{name} names {len(known)} pieces of evidence, and {check.evidence} are needed"
    if len(named) < check.least_evidence:
        yield f"{len(named)} different pieces of evidence are named in all, and {check.least_evidence} are needed"


def _some(faults: list[str]) -> str:
    more = len(faults) - _FAULTS
    return "; ".join(faults[:_FAULTS]) + (f"; and {more} more" if more > 0 else "")


def _list(names: list[str]) -> str:
    return ", ".join(repr(name[:80]) for name in names[:_SHOWN]) or "none yet"
