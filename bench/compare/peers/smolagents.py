"""smolagents: a CodeAgent's ``executor_kwargs={"timeout_seconds": …}``, and a ToolCallingAgent, which has none.

Its tools are plain functions. The remote executors (Docker and others) are not run here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, ClassVar

from smolagents import CodeAgent, LogLevel, MultiStepAgent, Tool, ToolCallingAgent
from smolagents.models import (
    ChatMessage,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    MessageRole,
    Model,
)

from bench.compare import payment
from bench.compare.peers import _lingering
from bench.compare.script import GOAL, TOOL, Script

_FUNCTIONS = {"thread": payment.thread, "child": payment.child, "locked": payment.locked}


class _Payment(Tool):  # type: ignore[misc]  # the peer has no types
    name, description = TOOL, "Pays the invoice."
    inputs: ClassVar[dict[str, Any]] = {}
    output_type = "string"

    def __init__(self, function: Callable[[], str]) -> None:
        super().__init__()
        self._function = function

    def forward(self) -> str:
        return self._function()


class _Model(Model):  # type: ignore[misc]  # the peer has no types
    def __init__(self, script: Script, turn: Callable[[str | None], ChatMessage]) -> None:
        super().__init__(model_id="scripted")
        self._script, self._turn = script, turn

    def generate(self, messages: list[ChatMessage], *_ignored: Any, **_options: Any) -> ChatMessage:
        return self._turn(self._script.decide(_heard(messages)))


def run(setup: str, kind: str, script: Script, over: Callable[[str], None]) -> None:
    """See the package."""
    agent = _agent(setup, _Payment(_FUNCTIONS[kind]), script)
    try:
        said = str(agent.run(GOAL))
    except Exception as error:  # noqa: BLE001  # every way to tell a caller counts
        said = _lingering.described(error)
    over(said)
    sys.stdin.read()


def _agent(setup: str, tool: Tool, script: Script) -> MultiStepAgent:
    if setup == "code":
        bound = {"timeout_seconds": payment.TIMEOUT_S}
        return CodeAgent([tool], _Model(script, _as_code), executor_kwargs=bound, verbosity_level=LogLevel.OFF)
    return ToolCallingAgent([tool], _Model(script, _as_call), verbosity_level=LogLevel.OFF)


def _as_code(said: str | None) -> ChatMessage:
    code = f"print({TOOL}())" if said is None else f"final_answer({said!r})"
    return ChatMessage(role=MessageRole.ASSISTANT, content=f"Thought: next.\n<code>\n{code}\n</code>")


def _as_call(said: str | None) -> ChatMessage:
    name, arguments = (TOOL, {}) if said is None else ("final_answer", {"answer": said})
    call = ChatMessageToolCall(ChatMessageToolCallFunction(arguments, name), "call", "function")
    return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=[call])


def _heard(messages: list[ChatMessage]) -> str:
    content = messages[-1].content
    return str(content if isinstance(content, str) else " ".join(part.get("text", "") for part in content or []))
