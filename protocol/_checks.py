"""What must hold before a run is done, and the fields of an answer: their forms, and one line of words for each.

Owns no judgement: ``supervisor/core`` has it. In TOML and JSON a command is text, every other check an object with its
``kind``.
"""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

Few = Annotated[int, msgspec.Meta(ge=0, le=64)]


class FileCheck(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="file", tag_field="kind"):
    """A file beneath the run's workspace: with a line that ``matches`` a regular expression (Python's), with the exact
    text of ``equals``, or simply there (``exists`` false: not there). One of the three; none: it is there."""

    path: str
    matches: str | None = None
    equals: str | None = None
    exists: bool | None = None


class FieldsCheck(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="fields", tag_field="kind"):
    """Fields that the answer has, each with a value and so many different pieces of ``evidence`` that the run has;
    ``least_evidence``: so many in all of them together."""

    fields: tuple[str, ...]
    evidence: Few = 1
    least_evidence: Few = 0


class PersonCheck(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="person", tag_field="kind"):
    """A person confirms the answer. ``question``: what they are asked; empty: whether it is done."""

    question: str = ""


Check: TypeAlias = str | FileCheck | FieldsCheck | PersonCheck
"""A text is a command that must exit 0, in the run's workspace."""


class FieldValue(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A field of an answer. ``evidence``: names of evidence that the run has, or ids of calls of it that succeeded."""

    value: str
    evidence: tuple[str, ...] = ()


def say_check(check: Check) -> str:
    """One line for people, of any length."""
    match check:
        case FileCheck():
            return f"file {check.path!r} {_say_file(check)}"
        case FieldsCheck():
            together = f", {check.least_evidence} in all" if check.least_evidence else ""
            return f"fields {', '.join(check.fields)} with evidence for each: {check.evidence}{together}"
        case PersonCheck():
            return f"a person confirms: {check.question}" if check.question else "a person confirms the answer"
        case _:
            return check


def _say_file(check: FileCheck) -> str:
    if check.matches is not None:
        return f"has a line that matches {check.matches!r}"
    if check.equals is not None:
        return f"has a certain text of {len(check.equals)} characters"
    return "is not there" if check.exists is False else "is there"
