"""Where a run stands, told to its model each round in a message of the host's own making.

Owns the record and its words. Every fact in it is the host's; a step's title is the planner's, in one line. The same
record gives the same text, and however long a run is its text is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from supervisor.core.plan import PlanMachine, State, condition

_EVIDENCE, _DONE, _GOAL, _LINE = 20, 12, 2_000, 300


class Progress(msgspec.Struct, frozen=True):
    """``completed``: what is done, a line each, with what has proven it. ``remaining``: what is to be done, the first
    of it now. ``evidence``: names that may be given as evidence, the latest last. ``last_action``: how the last call
    ended, as a sentence of the host's."""

    goal: str
    completed: tuple[str, ...] = ()
    remaining: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    last_action: str = ""


def progress_of(
    goal: str, plan: PlanMachine | None = None, evidence: Sequence[str] = (), last_action: str = ""
) -> Progress:
    """The record of a run; one without a plan has its goal alone to do. ``evidence`` counts where there is no plan."""
    if plan is None:
        return Progress(goal, (), ("reach the goal, then finish",), tuple(evidence), last_action)
    completed = tuple(f"{step.title} (shown by {', '.join(step.evidence) or 'nothing'})" for step in plan.done)
    remaining = tuple(f"{step.title} ({condition(step.done_when)})" for step in plan.remaining)
    return Progress(plan.goal, completed, remaining or (_NEXT[plan.state],), plan.known_evidence(), last_action)


def progress_text(progress: Progress) -> str:
    """The message. No line of it can pass for another, whatever is in the values."""
    return "\n".join(_lines(progress))


def _lines(progress: Progress) -> Iterator[str]:
    yield "Progress, kept by the host:"
    yield f"goal: {_one_line(progress.goal, _GOAL)}"
    yield from _listed("completed", progress.completed, "latest")
    yield from _listed("remaining", progress.remaining, "first")
    evidence = [_one_line(name, 80) for name in progress.evidence[-_EVIDENCE:]]
    earlier = len(progress.evidence) - len(evidence)
    yield f"evidence: {', '.join(evidence) or 'none'}" + (f" and {earlier} earlier" if earlier else "")
    yield f"last action: {_one_line(progress.last_action, _LINE) or 'none'}"


def _listed(name: str, lines: Sequence[str], kept: str) -> Iterator[str]:
    shown = lines[-_DONE:] if kept == "latest" else lines[:_DONE]
    left_out = len(lines) - len(shown)
    yield f"{name}:" + (f" (the {kept} {_DONE} of {len(lines)})" if left_out else "" if lines else " nothing")
    yield from (f"- {_one_line(line, _LINE)}" for line in shown)


def _one_line(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


_NEXT = {
    State.PLANNING: "make a plan",
    State.EXECUTING: "work on the plan",
    State.ASKING: "wait for a person's answer",
    State.DONE: "finish",
}
