"""The loop's own tools for a plan: what they look like to a model, which of them it is offered when, and what their
arguments mean. What comes of a call is `plan`'s."""

from __future__ import annotations

from typing import TypeAlias

from supervisor.core.host_tools import ASK_USER, FINISH, read_as
from supervisor.core.model_events import ToolCall, ToolSpec
from supervisor.core.plan import MOST_STEPS, Claimed, PlanMachine, Planned, RevisionAsked, State

PlanCall: TypeAlias = Planned | Claimed | RevisionAsked
_DONE_WHEN = {
    "description": "how the host sees that the step is done; without it one piece of evidence must be named",
    "anyOf": [
        {
            "type": "object",
            "properties": {
                "kind": {"const": "evidence"},
                "least": {"type": "integer", "minimum": 1, "maximum": 8, "description": "pieces of evidence"},
            },
            "required": ["kind"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {
                "kind": {"const": "call"},
                "tool": {"type": "string", "description": "the tool of which a call must have succeeded"},
            },
            "required": ["kind", "tool"],
            "additionalProperties": False,
        },
    ],
}
PLAN = ToolSpec(
    "plan",
    "Lay down the steps that lead to the goal, or those in the place of the ones that are not done.",
    {
        "type": "object",
        "properties": {
            "steps": {
                "type": "array",
                "minItems": 1,
                "maxItems": MOST_STEPS,
                "items": {
                    "type": "object",
                    "properties": {
                        "title": {"type": "string", "minLength": 1, "maxLength": 200},
                        "done_when": _DONE_WHEN,
                    },
                    "required": ["title"],
                    "additionalProperties": False,
                },
            }
        },
        "required": ["steps"],
        "additionalProperties": False,
    },
)
STEP_DONE = ToolSpec(
    "step_done",
    "Say that the current step is done. The host looks whether its condition holds.",
    {
        "type": "object",
        "properties": {
            "evidence": {
                "type": "array",
                "maxItems": 64,
                "items": {"type": "string"},
                "description": "ids of calls that succeeded in this step, or names of evidence",
            }
        },
        "additionalProperties": False,
    },
)
REVISE_PLAN = ToolSpec(
    "revise_plan",
    "Hand back to planning, because the steps that are left do not lead to the goal.",
    {
        "type": "object",
        "properties": {"reason": {"type": "string", "minLength": 1, "maxLength": 2_000}},
        "required": ["reason"],
        "additionalProperties": False,
    },
)
_FORMS: dict[str, type[PlanCall]] = {PLAN.name: Planned, STEP_DONE.name: Claimed, REVISE_PLAN.name: RevisionAsked}
_OFFERED: dict[State, tuple[ToolSpec, ...]] = {
    State.PLANNING: (PLAN, ASK_USER),
    State.EXECUTING: (STEP_DONE, REVISE_PLAN, ASK_USER),
    State.ASKING: (),
    State.DONE: (FINISH, REVISE_PLAN, ASK_USER),
}


def offered_with(plan: PlanMachine) -> tuple[ToolSpec, ...]:
    """The loop's own tools that a model is offered now, in the place of those without a plan."""
    return _OFFERED[plan.state]


def is_plan_call(call: ToolCall) -> bool:
    """Whether it is about the plan."""
    return call.name in _FORMS


def read_plan_call(call: ToolCall) -> PlanCall:
    """The input for `PlanMachine.on`. Raises HostToolError."""
    return read_as(_FORMS[call.name], call)
