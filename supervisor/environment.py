"""The daemon's own environment, as far as tools have to do with it: which secrets of their contracts are there, what
goes with a call, and what nobody may read in a record. What a tool sees beside its secrets is the worker side's rule;
the names of that come with the worker's Hello.

What begins with ``LLM_`` is the daemon's own way to its models: no worker gets it, whatever its tool declares, and the
key among it is in no record.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from protocol._contracts import Contract, ToolDescription
from supervisor.core.redaction import Redaction

MODEL_KEY = "LLM_API_KEY"
_FOR_MODELS = "LLM_"
_NOTHING: dict[str, str] = {}


def may_be_lent(name: str) -> bool:
    """Whether a variable of the daemon's may reach a worker at all."""
    return not name.startswith(_FOR_MODELS)


class Environment:
    """``variables``: those of the daemon. ``redaction``: knows the key of the models, and the secrets of all tools that
    were looked at."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._names = tuple(variables)
        self._variables = {name: value for name, value in variables.items() if may_be_lent(name)}
        self.redaction = Redaction({name: value for name, value in variables.items() if name == MODEL_KEY})

    def look_at(self, contract: Contract) -> tuple[str, ...]:
        """The secrets of a tool that are not there; those that are will be read in no record."""
        self.redaction.learn(self.secrets_of(contract))
        return tuple(name for name in contract.secrets if name not in self._variables)

    def secrets_of(self, contract: Contract) -> dict[str, str]:
        """What goes with a call of a tool."""
        if not contract.secrets:
            return _NOTHING
        return {name: self._variables[name] for name in contract.secrets if name in self._variables}

    def shown(self, tool: ToolDescription) -> ToolDescription:
        """A tool, with the names of what its calls do not get, and of what they should get and nobody has."""
        kept_back = (name for name in self._names if name not in tool.environment and name.isprintable())
        named = (name for name in (*tool.contract.env, *tool.contract.secrets) if not name.startswith("@"))
        unset = {name for name in named if name not in self._variables}
        return msgspec.structs.replace(tool, kept_back=sorted(kept_back), unset=sorted(unset))
