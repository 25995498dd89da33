"""OpenAI Agents SDK: ``function_tool(timeout=…)``, for coroutines only; a plain function goes through
``asyncio.to_thread``, as there is no other way to give it a timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from agents import Agent, Runner, function_tool, set_tracing_disabled
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call

from bench.compare import payment
from bench.compare.peers import _lingering
from bench.compare.script import GOAL, MOST_TURNS, TOOL, Script

_COROUTINES = {"awaiting": payment.awaiting, "child": payment.awaiting_child, "deaf": payment.awaiting_deaf}
_FUNCTIONS = {"thread": payment.thread, "locked": payment.locked}


def run(_setup: str, kind: str, script: Script, over: Callable[[str], None]) -> None:
    """See the package."""
    set_tracing_disabled(True)

    def model(call: ModelCall) -> ModelStep:
        said = script.decide(_heard(call.input))
        turn = function_call(TOOL, "{}", call_id=f"call_{script.asks}") if said is None else assistant_message(said)
        return ModelStep(output=[turn])

    function = _COROUTINES.get(kind) or _in_thread(_FUNCTIONS[kind])
    tool = function_tool(function, name_override=TOOL, timeout=payment.TIMEOUT_S)
    agent = Agent("payer", model=ScriptedModel([ModelStep.respond(model)] * MOST_TURNS), tools=[tool])

    async def work() -> str:
        return str((await Runner.run(agent, GOAL)).final_output)

    _lingering.run(work, over)


def _in_thread(function: Callable[[], str]) -> Callable[[], Awaitable[str]]:
    async def pay() -> str:
        """Pays the invoice."""
        return await asyncio.to_thread(function)

    return pay


def _heard(items: Any) -> str:
    outputs = [
        item["output"] for item in items if isinstance(item, dict) and item.get("type") == "function_call_output"
    ]
    return str(outputs[-1]) if outputs else ""
