"""What is said of a run: the record of its stop, and the sentence in it for people. Pure; facts come in.

The words are `protocol/_runs.py`'s. Advice by status is the table of outcomes: what would help whoever steers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from protocol._budgets import DimensionView, code_of
from protocol._deadlines import NS_PER_MS
from protocol._outcomes import WENT_WELL, CallResult, Delivery, Status
from protocol._quantities import say_duration
from protocol._runs import SUSPENDED, Artefact, LastAction, Outcome, RunReason, RunStatus

ADVICE = {
    RunStatus.COMPLETED: "none",
    RunStatus.BUDGET_EXHAUSTED: "larger_budget",
    RunStatus.STUCK: "other_strategy",
    RunStatus.WAITING_FOR_APPROVAL: "after_a_human",
    RunStatus.NEEDS_INPUT: "after_a_human",
    RunStatus.BLOCKED: "never",
    RunStatus.TOOL_FAILED: "other_strategy",
    RunStatus.PROVIDER_FAILED: "same",
    RunStatus.CANCELLED: "none",
    RunStatus.INTERNAL_ERROR: "same",
}
_NO_MORE = frozenset((RunReason.AUTH, RunReason.CONTENT_POLICY, RunReason.PERMANENT))
"""What a provider has said no to for good."""
_HINTS = {
    "larger_budget": "narrow the task, or open a run with a larger budget",
    "other_strategy": "repeating it will not help: change the approach or the question",
    "after_a_human": "it goes on when a person has answered (deadlined approvals)",
    "never": "the same must not be tried again automatically",
    "same": "the same may be tried again",
}
_ANSWER = "it goes on when a person has answered (deadlined run resume, or resume_run)"
_CLOSE = "it goes on when somebody has said what became of the earlier call (deadlined effects close)"
_LINE = 160
Beginning: TypeAlias = tuple[str, Status, str]
"""Of what a call has said: its tool, how it ended, the text."""


def outcome_of(status: RunStatus) -> Outcome:
    """In one of three words."""
    if status is RunStatus.COMPLETED:
        return "done"
    return "suspended" if status in SUSPENDED else "stopped"


def advice_of(status: RunStatus, reason: RunReason) -> str:
    """What would help, in a word."""
    return "none" if status is RunStatus.PROVIDER_FAILED and reason in _NO_MORE else ADVICE[status]


def code_for(reason: RunReason) -> str | None:
    """The older name of a reason, where it has one."""
    return code_of(str(reason))


def sentence(
    status: RunStatus,
    reason: RunReason,
    phase: str | None,
    step: int,
    detail: str,
    elapsed_ns: int,
    budgets: dict[str, DimensionView],
    open_effects: int,
) -> str:
    """What a person reads first: what happened, when, why, what is still open, what to do."""
    when = f"after {_count(step, 'step')} and {say_duration(elapsed_ns // NS_PER_MS)}"
    if status is RunStatus.COMPLETED:
        text = f"Completed {when}."
    else:
        where = f" in phase {phase}" if phase and reason is RunReason.TIME_BUDGET else ""
        text = f"{_title(status)} ({reason}){where} {when}" + (f": {_sentence(detail)}" if detail else ".")
    spent = _spent(reason, budgets)
    effects = f" {_count(open_effects, 'effect')} of unknown outcome: see deadlined effects." if open_effects else ""
    hint = hint_of(status, reason)
    return text + spent + effects + (f" Next: {hint}." if hint else "")


def hint_of(status: RunStatus, reason: RunReason) -> str:
    """What to do next, in words; empty: nothing. Of a suspended run: the command that ends its wait."""
    if status is RunStatus.NEEDS_INPUT:
        return _ANSWER
    return _CLOSE if reason is RunReason.RECONCILE_REQUIRED else _HINTS.get(advice_of(status, reason), "")


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."


def _spent(reason: RunReason, budgets: dict[str, DimensionView]) -> str:
    dimension = str(reason).removesuffix("_budget") + "s"
    view = budgets.get({"tokens": "tokens_total", "costs": "cost_micros"}.get(dimension, dimension))
    if view is None or view.limit is None or reason not in _BUDGETS:
        return ""
    return f" {view.used} of {view.limit} used ({view.percent or 0} %)."


_BUDGETS = frozenset(reason for reason in RunReason if reason.value.endswith("_budget"))


def beginning(result: CallResult) -> Beginning:
    """What a line on a call can be made of later, by `line_of`: most runs never say it. No more than a little of what
    the result holds stays with it."""
    content = result.content
    said = result.output.view or (content if isinstance(content, str) else "" if content is None else str(content))
    if result.error is not None:
        said = result.error.message
    return result.tool, result.status, said if len(said) <= _LINE else _words_of(said)


def line_of(said: Beginning | str) -> str:
    """The line; one that is made already (in an earlier life of the run) stays as it is."""
    if isinstance(said, str):
        return said
    tool, status, text = said
    first = _words_of(text)
    return f"{tool}: {status}" + (f": {first}" if first else "")


def _words_of(text: str) -> str:
    return " ".join(text.split())[:_LINE]


def last_action(result: CallResult) -> LastAction:
    """The call that ended last."""
    return LastAction(result.call, result.tool, str(result.status), result.summary)


def artefacts(result: CallResult) -> Iterable[Artefact]:
    """The files that a call left."""
    output = result.output
    for name, stream in output.streams.items():
        if stream.path:
            yield Artefact(result.call, stream.path, stream.bytes, output.sha256 if name == "both" else None)
    if result.workdir:
        yield Artefact(result.call, result.workdir)


def changed_state(result: CallResult, read_only: bool) -> bool:
    """Whether the world may be another one after a call: it succeeded, and is not read-only; or nobody knows."""
    if read_only:
        return False
    return result.status in WENT_WELL or result.delivery is Delivery.SUCCEEDED


def _title(status: RunStatus) -> str:
    words = str(status).replace("_", " ")
    return words[0].upper() + words[1:]


def _count(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")
