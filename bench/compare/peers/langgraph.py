"""LangGraph: ``add_node(ToolNode, timeout=…)``, with and without a ``RetryPolicy``. A timeout ends the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.graph import MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import RetryPolicy

from bench.compare import payment
from bench.compare.peers import _lingering
from bench.compare.script import GOAL, TOOL, Script

_COROUTINES = {"awaiting": payment.awaiting, "child": payment.awaiting_child, "deaf": payment.awaiting_deaf}
_FUNCTIONS = {"thread": payment.thread, "locked": payment.locked}


def run(setup: str, kind: str, script: Script, over: Callable[[str], None]) -> None:
    """See the package."""

    def model(state: MessagesState) -> dict[str, Any]:
        last = state["messages"][-1]
        said = script.decide(str(last.content) if isinstance(last, ToolMessage) else "")
        calls = [{"name": TOOL, "args": {}, "id": f"call_{script.asks}"}] if said is None else []
        return {"messages": [AIMessage(said or "", tool_calls=calls)]}

    tool = StructuredTool.from_function(
        _FUNCTIONS.get(kind), name=TOOL, description="Pays the invoice.", coroutine=_COROUTINES.get(kind)
    )
    graph = StateGraph(MessagesState).add_node("model", model)
    graph.add_node("tools", ToolNode([tool]), timeout=payment.TIMEOUT_S, retry_policy=_retries(setup))
    graph.set_entry_point("model").add_conditional_edges("model", tools_condition).add_edge("tools", "model")
    compiled = graph.compile()

    async def work() -> str:
        return str((await compiled.ainvoke({"messages": [("user", GOAL)]}))["messages"][-1].content)

    _lingering.run(work, over)


def _retries(setup: str) -> RetryPolicy | None:
    return RetryPolicy(max_attempts=2) if setup == "retried" else None
