"""What a client may say of a run, and how much of it: texts are kept, told and listed for as long as the run is, and a
whole run, or its whole stop, is one answer, which has to fit into a frame whatever the client has written.

Pure. Owns the bounds; what the budgets allow is `profiles`' and `budget`'s.
"""

from __future__ import annotations

import re
import shlex
import warnings
from collections.abc import Mapping

from protocol._budgets import Dimension, LimitError, read_limits
from protocol._checks import Check, FieldsCheck, FieldValue, FileCheck, PersonCheck
from protocol._client_messages import OpenRun
from protocol._deadlines import valid_budget_ms
from protocol._runs import AgentOptions

MOST_TEXT = 4_000
"""Characters of a goal, of a check, of an answer to a run that needs input, of a piece of evidence."""
MOST_ANSWER = 64_000
MOST_NOTES = 4_000_000
"""What whoever steers a run keeps to go on with it: a conversation."""
MOST_CHECKS = 32
MOST_FIELDS = 64
"""Fields of an answer, and of one of its checks."""
MOST_NAME = 200
"""Of a session, a model or a field."""
MOST_PATH = 4_096
MOST_AMOUNT = 1_000_000_000_000
"""Tokens of one model call: no model takes so many, and sums of them stay numbers that every reader can hold."""
ALL_CHECKS = 16_000


def limits_of(ask: OpenRun) -> dict[str, int | None]:
    """The limits that a run asks for, its deadline among them. Raises LimitError."""
    limits = read_limits(ask.limits)
    if ask.deadline_ms is None:
        return limits
    if not valid_budget_ms(ask.deadline_ms):
        text = f"deadline_ms {str(ask.deadline_ms)[:40]!r} is not allowed: a whole number of milliseconds, at least 1"
        raise LimitError(text)
    given, wall = int(ask.deadline_ms), limits.get(Dimension.WALL_MS)
    limits[Dimension.WALL_MS] = given if wall is None else min(given, wall)
    return limits


def refuse_opening(ask: OpenRun, parent_session: str | None, is_part: bool) -> str | None:
    """Why a run cannot be opened so; None: it can, as far as the texts go. ``is_part``: of a run of that session, whose
    it is then too."""
    return (
        too_long("goal", ask.goal, MOST_TEXT)
        or _refuse_session(ask.session)
        or (_refuse_other_session(ask.session, parent_session) if is_part else None)
        or _refuse_workspace(ask.workspace)
        or _refuse_checks(ask.checks, ask.workspace)
        or too_long("profile", ask.profile or "", MOST_NAME)
        or (None if ask.agent is None else _refuse_task(ask.goal) or _refuse_agent(ask.agent))
    )


def too_long(what: str, text: str, most: int) -> str | None:
    """Why a text cannot be taken; None: it can."""
    return None if len(text) <= most else f"{what} has {len(text)} characters; allowed: at most {most}"


def too_many(**amounts: int | None) -> str | None:
    """Why an amount of tokens cannot be meant; None: it can."""
    for name, amount in amounts.items():
        if amount is not None and amount > MOST_AMOUNT:
            return f"{name} = {amount} is not allowed; allowed: at most {MOST_AMOUNT}"
    return None


def refuse_fields(fields: Mapping[str, FieldValue]) -> str | None:
    """Why an answer cannot have such fields; None: it can."""
    if len(fields) > MOST_FIELDS:
        return f"{len(fields)} fields; allowed: at most {MOST_FIELDS}"
    together = sum(len(name) + len(one.value) + sum(map(len, one.evidence)) for name, one in fields.items())
    if together > MOST_ANSWER:
        return f"the fields have {together} characters together; allowed: at most {MOST_ANSWER}"
    return next((text for name in fields if (text := too_long("a field's name", name, MOST_NAME))), None)


def refuse_check(check: Check) -> str | None:
    """Why something cannot be one of a run's checks; None: it can."""
    match check:
        case FileCheck():
            return _refuse_file(check)
        case FieldsCheck():
            return _refuse_wanted(check)
        case PersonCheck():
            return too_long("a check's question", check.question, MOST_TEXT)
        case _:
            return too_long("a check", check, MOST_TEXT) or _refuse_command(check)


def _refuse_file(check: FileCheck) -> str | None:
    shown = f"the check of file {check.path[:MOST_NAME]!r}"
    if not check.path or "\0" in check.path:
        return f"{shown} has no path; allowed: text without NUL"
    said = (check.matches, check.equals, check.exists)
    if sum(one is not None for one in said) > 1:
        return f"{shown} wants more than one thing; allowed: one of matches, equals, exists"
    if check.matches is not None and (fault := _refuse_pattern(check.matches)) is not None:
        return f"{shown}: {fault}"
    texts = (check.matches or "", check.equals or "")
    return too_long(shown, max(texts, key=len), MOST_TEXT) or too_long("its path", check.path, MOST_PATH)


def _refuse_pattern(pattern: str) -> str | None:
    """As the tool that searches would; here it is heard of in time."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            re.compile(pattern[: MOST_TEXT + 1])
    except (re.error, Warning, RecursionError, OverflowError) as error:
        return f"{pattern[:MOST_NAME]!r} is no regular expression: {error}"
    return None


def _refuse_wanted(check: FieldsCheck) -> str | None:
    if not 1 <= len(check.fields) <= MOST_FIELDS:
        return f"a check of {len(check.fields)} fields; allowed: 1 to {MOST_FIELDS}"
    if not all(name.strip() for name in check.fields):
        return "a check of a field without a name; allowed: names"
    return next((text for name in check.fields if (text := too_long("a field's name", name, MOST_NAME))), None)


def _refuse_command(command: str) -> str | None:
    try:
        words = shlex.split(command)
    except ValueError as error:
        return f"check {command[:200]!r} is not a command line: {error}"
    if "\0" in command:
        return f"check {command[:200]!r} has a NUL character; allowed: a command line"
    return None if words else "a check is empty; allowed: a command line"


def _refuse_session(session: str | None) -> str | None:
    if session is None:
        return None
    if not session or not session.isprintable():
        return f"session {session[:MOST_NAME]!r} is not allowed; allowed: a name in printable characters"
    return too_long("session", session, MOST_NAME)


def _refuse_other_session(session: str | None, parents: str | None) -> str | None:
    if session in (None, parents):
        return None
    return f"session {session!r} is not that of the run it is to be part of; allowed: the same, or none"


def _refuse_workspace(workspace: str | None) -> str | None:
    if workspace is None:
        return None
    if not workspace.startswith("/") or "\0" in workspace:
        return f"workspace {workspace[:200]!r} is not an absolute path"
    return too_long("workspace", workspace, MOST_PATH)


def _refuse_task(goal: str) -> str | None:
    return None if goal.strip() else "goal is empty; of an agent it says in words what is to be done"


def _refuse_agent(agent: AgentOptions) -> str | None:
    if len(agent.constraints) > MOST_CHECKS:
        return f"{len(agent.constraints)} constraints; allowed: at most {MOST_CHECKS}"
    refused = (too_long("a constraint", line, MOST_TEXT) for line in agent.constraints)
    return too_long("model", agent.model or "", MOST_PATH) or next((text for text in refused if text), None)


def _refuse_checks(checks: list[Check], workspace: str | None) -> str | None:
    if len(checks) > MOST_CHECKS:
        return f"{len(checks)} checks; allowed: at most {MOST_CHECKS}"
    together = sum(_length(check) for check in checks)
    if together > ALL_CHECKS:
        return f"checks have {together} characters together; allowed: at most {ALL_CHECKS}"
    refused = (refuse_check(check) or _refuse_homeless(check, workspace) for check in checks)
    return next((text for text in refused if text is not None), None)


def _refuse_homeless(check: Check, workspace: str | None) -> str | None:
    if workspace is None and isinstance(check, FileCheck) and not check.path.startswith("/"):
        return f"file {check.path[:MOST_NAME]!r} is beneath the workspace, and the run has none"
    return None


def _length(check: Check) -> int:
    match check:
        case FileCheck():
            return len(check.path) + len(check.matches or "") + len(check.equals or "")
        case FieldsCheck():
            return sum(map(len, check.fields))
        case PersonCheck():
            return len(check.question)
        case _:
            return len(check)
