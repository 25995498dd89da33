"""What a model is told before anything else: whom it works for, when it has to stop, and what the host sees to whatever
it says. The bounds themselves are the daemon's; nothing here enforces anything.
"""

from __future__ import annotations

from collections.abc import Iterable

from protocol._checks import Check, say_check

_STANDING = """\
You work on one task with the tools that you are given. A host runs them, counts everything, and ends what takes too
long.

When to stop:
- As soon as you know enough, call `finish` with the answer, alone in its turn. A tool that says ok has not finished the
  task: what you claim is checked.
- Do not make a call again that has failed or found nothing, in the same or in other words. Change the approach, or
  stop.
- What you were told by the host is so: a call that was refused, blocked or killed will not work the second time.
- When something is missing that only a person can say (a number, a date, which of two), call `ask_user`, alone in its
  turn. Do not guess it.
- When you cannot do it, finish and say so: what you know, what you tried, what is missing. That is a good answer.
"""
WRAP_UP = (
    "The budget of this task is used up and no tool runs any more. Answer now, in plain text: what is known, with what"
    " it rests on; what is not done, and why; what would be the next thing to do."
)


def briefing(extra: str = "") -> str:
    """The system's words. ``extra``: of whoever set the agent up."""
    return _STANDING + (f"\n{extra.strip()}\n" if extra.strip() else "")


def done_when(checks: Iterable[Check]) -> tuple[str, ...]:
    """What will be checked when the end is asked for, a line each: nobody has to find that out by being refused."""
    return tuple(map(_said, checks))


def _said(check: Check) -> str:
    what = f"this command exits 0: {check}" if isinstance(check, str) else say_check(check)
    return f"the task is finished when {what}"
