"""Pydantic AI: ``Tool(function, timeout=…)``. Coroutines are cancelled; a plain function's thread is abandoned."""

from __future__ import annotations

from collections.abc import Callable

from pydantic_ai import (
    Agent,
    ModelMessage,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    Tool,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from bench.compare import payment
from bench.compare.peers import _lingering
from bench.compare.script import GOAL, TOOL, Script

_KINDS = {
    "awaiting": payment.awaiting,
    "thread": payment.thread,
    "child": payment.awaiting_child,
    "deaf": payment.awaiting_deaf,
    "locked": payment.locked,
}


def run(_setup: str, kind: str, script: Script, over: Callable[[str], None]) -> None:
    """See the package."""

    def model(messages: list[ModelMessage], _info: AgentInfo) -> ModelResponse:
        said = script.decide(_heard(messages))
        return ModelResponse(parts=[ToolCallPart(TOOL, {}) if said is None else TextPart(said)])

    agent = Agent(FunctionModel(model), tools=[Tool(_KINDS[kind], name=TOOL, timeout=payment.TIMEOUT_S)])

    async def work() -> str:
        return (await agent.run(GOAL)).output

    _lingering.run(work, over)


def _heard(messages: list[ModelMessage]) -> str:
    parts = [part for part in messages[-1].parts if isinstance(part, RetryPromptPart | ToolReturnPart)]
    return str(parts[-1].content) if parts else ""
