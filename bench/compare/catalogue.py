"""Which peers there are, how each is bounded, and which kinds of payment it can run at all."""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass

KINDS = {
    "awaiting": "a coroutine that awaits",
    "thread": "a plain function that sleeps",
    "child": "a program that the tool waits for",
    "deaf": "swallows cancellation",
    "locked": "one C call that holds the interpreter's lock",
}
_NO_COROUTINES = {"awaiting": "its tools are plain functions: see `thread`"}
_DEAF_IS_THREAD = {"deaf": "nothing tries to cancel its tools: as `thread`"}


@dataclass(frozen=True, slots=True)
class Setup:
    """One way to bound the payment on one peer."""

    peer: str
    """Its module in `peers`."""
    name: str
    """Tells setups of one peer apart."""
    package: str
    bound: str
    """The documented option, as a user writes it."""
    missing: tuple[tuple[str, str], ...] = ()
    """Kinds that it cannot run, and why."""

    def why_not(self, kind: str) -> str | None:
        """Why there is no such cell; None: there is one."""
        return dict(self.missing).get(kind)

    def version(self) -> str | None:
        """As it is installed; None: it is not."""
        try:
            return importlib.metadata.version(self.package)
        except importlib.metadata.PackageNotFoundError:
            return None


SETUPS = (
    Setup("deadlined", "run", "deadlined", "@tool(timeout_ms=…), in a run", tuple(_NO_COROUTINES.items())),
    Setup("pydantic_ai", "tool", "pydantic-ai-slim", "Tool(timeout=…)"),
    Setup("langgraph", "node", "langgraph", "add_node(ToolNode, timeout=…)"),
    Setup("langgraph", "retried", "langgraph", "… retry_policy=RetryPolicy(max_attempts=2)"),
    Setup("openai_agents", "tool", "openai-agents", "function_tool(timeout=…)"),
    Setup(
        "smolagents",
        "code",
        "smolagents",
        'CodeAgent(executor_kwargs={"timeout_seconds": …})',
        tuple({**_NO_COROUTINES, **_DEAF_IS_THREAD}.items()),
    ),
    Setup(
        "smolagents",
        "tools",
        "smolagents",
        "ToolCallingAgent (no such option)",
        tuple({**_NO_COROUTINES, **_DEAF_IS_THREAD}.items()),
    ),
)
PEERS = tuple(dict.fromkeys(setup.peer for setup in SETUPS))
