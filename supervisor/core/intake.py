"""What becomes of a submitted call before anything runs: judged fit to run, or refused with a reason. Pure.

Order of the judgement: tool → deadline → arguments (parse, then schema) → place (cwd) → demands on containment and
isolation. The first objection settles the call as not executed and not delivered; nothing has been charged or started.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from protocol._client_messages import Submit
from protocol._contracts import CONTAINMENT_ORDER, ISOLATION_ORDER, ContainmentLevel, Contract, IsolationLevel, Limits
from protocol._deadlines import CEILING_MS, instant_after, valid_budget_ms
from protocol._errors import InvalidArguments
from protocol._outcomes import Notice, Reason, Status
from protocol._quantities import say_duration
from supervisor.core.arguments import Arguments, parse
from supervisor.core.levels import Ground
from supervisor.core.tools import ServedTool, Tools

_FIELD = re.compile(r"\{(\w+)\}")
_MOST_DECISION = 200
_NAMES_SHOWN = 20
NO_CONTRACT = Contract()
"""What a call is held to whose tool is not known."""


class Judged(msgspec.Struct):
    """A call fit to run. Instants in ns, budgets in ms, sizes in bytes."""

    tool: str
    contract: Contract
    flavour: str
    arguments: str
    deadline_ns: int
    deadline_ms: int
    output_limit: int
    resource: str | None = None
    cwd: str | None = None
    run: str | None = None
    decision: str | None = None
    split_streams: bool = False
    after_kill: bool = False
    """Not the tool itself: the command that its contract wants after a kill."""
    values: dict[str, Any] = {}
    """What the arguments' text says."""
    unfenced: bool = False
    """A Markdown fence around the text was taken off."""


class Refusal(Exception):  # noqa: N818  # an outcome on its way to a result, not an error of ours
    """Why a call is not executed. ``status``: what it is then; ``notices`` go into its result; ``passes``: as it is it
    may be sent again later."""

    def __init__(
        self,
        reason: Reason,
        message: str,
        status: Status = Status.NOT_EXECUTED,
        notices: Sequence[Notice] = (),
        passes: bool = False,
    ) -> None:
        super().__init__(message)
        self.reason, self.status, self.notices, self.passes = reason, status, list(notices), passes


class Host(msgspec.Struct):
    """What this daemon can give."""

    containment: ContainmentLevel
    isolation: IsolationLevel
    limits: Limits
    grounds: dict[str, Ground] = {}
    """By flavour, where that is known: a tool may run with less than the daemon's own."""
    wanted: IsolationLevel = "contain"
    missing_secrets: dict[str, tuple[str, ...]] = {}
    """By tool: what it cannot work without, and the daemon does not have."""


def judge(submit: Submit, tools: Tools, host: Host, now_ns: int) -> Judged:
    """The judged call. Raises Refusal."""
    tool = tools.get(submit.tool)
    if tool is None:
        raise Refusal(Reason.UNKNOWN_TOOL, _unknown(submit.tool, tools))
    contract = tool.contract
    budget_ms = _budget_ms(submit, contract)
    read = _arguments(submit, tool)
    if missing := host.missing_secrets.get(submit.tool):
        raise Refusal(Reason.MISSING_SECRET, _missing(submit.tool, missing))
    if submit.cwd is not None:
        _check_cwd(submit.cwd)
    _check_decision(submit.decision)
    _check_demands(submit, contract, host.grounds.get(tool.flavour) or Ground(host.containment, host.isolation))
    return Judged(
        submit.tool,
        contract,
        tool.flavour,
        read.text,
        instant_after(now_ns, budget_ms),
        budget_ms,
        _output_limit(submit, contract, host),
        None if contract.resource is None else _resource(contract.resource, read.values),
        submit.cwd,
        submit.run,
        submit.decision,
        submit.split_streams,
        values=read.values,
        unfenced=read.fence_stripped,
    )


def _missing(tool: str, names: tuple[str, ...]) -> str:
    there = "is not set" if len(names) == 1 else "are not set"
    return f"{tool} needs {', '.join(names)}: {there} in the environment of the daemon, which has to be started with it"


def _unknown(name: str, tools: Tools) -> str:
    names = tools.names()
    shown = ", ".join(names[:_NAMES_SHOWN]) + (", …" if len(names) > _NAMES_SHOWN else "")
    return f"there is no tool {name[:80]!r}; this daemon serves {shown}"


def _budget_ms(submit: Submit, contract: Contract) -> int:
    asked: Any = submit.deadline_ms
    if asked is None:
        return min(contract.timeout_ms, contract.max_timeout_ms, CEILING_MS)
    if not valid_budget_ms(asked):
        raise Refusal(
            Reason.INVALID_ARGUMENTS,
            f"deadline_ms {str(asked)[:40]!r} is not allowed: a whole number of milliseconds from now, at least 1",
        )
    ceiling = min(contract.max_timeout_ms, CEILING_MS)
    if asked > ceiling:
        raise Refusal(
            Reason.INVALID_ARGUMENTS,
            f"deadline_ms {str(asked)[:40]} is above the ceiling of {ceiling} ({say_duration(ceiling)}) for this tool",
        )
    budget: int = asked
    return budget


def _arguments(submit: Submit, tool: ServedTool) -> Arguments:
    try:
        arguments = parse(submit.arguments)
        tool.schema.check(arguments.values)
    except InvalidArguments as error:
        raise Refusal(Reason.INVALID_ARGUMENTS, str(error)) from error
    return arguments


def _check_cwd(cwd: str) -> None:
    if not cwd.startswith("/") or "\0" in cwd:
        raise Refusal(Reason.INVALID_ARGUMENTS, f"cwd {cwd[:200]!r} is not an absolute path")


def _check_decision(decision: str | None) -> None:
    if decision is not None and len(decision) > _MOST_DECISION:
        raise Refusal(Reason.INVALID_ARGUMENTS, f"decision has {len(decision)} characters; allowed: {_MOST_DECISION}")


def _check_demands(submit: Submit, contract: Contract, ground: Ground) -> None:
    """Fail closed: what is demanded and not reached refuses the call. A submit may only tighten its contract."""
    for wanted in (contract.min_containment, submit.min_containment):
        if wanted and CONTAINMENT_ORDER.index(wanted) > _rank(CONTAINMENT_ORDER, ground.containment):
            text = f"containment {wanted} is required; this daemon reaches {ground.containment} for {submit.tool}"
            raise Refusal(Reason.CONTAINMENT, text)
    for isolation in (contract.min_isolation, submit.min_isolation):
        if isolation and ISOLATION_ORDER.index(isolation) > _rank(ISOLATION_ORDER, ground.isolation):
            text = f"isolation {isolation} is required; this daemon reaches {ground.isolation} for {submit.tool}"
            raise Refusal(Reason.CONTAINMENT, text)


def _rank(order: tuple[Any, ...], word: str) -> int:
    return order.index(word) if word in order else -1


def _output_limit(submit: Submit, contract: Contract, host: Host) -> int:
    limit = (contract.limits or host.limits).output_bytes
    if submit.max_output_bytes is None:
        return limit
    if submit.max_output_bytes < 1:
        raise Refusal(Reason.INVALID_ARGUMENTS, "max_output_bytes must be at least 1")
    return min(limit, submit.max_output_bytes)


def _resource(template: str, values: dict[str, Any]) -> str:
    """``"name-{field}"`` filled from the validated arguments."""
    return _FIELD.sub(lambda found: str(values.get(found[1], "")), template)
