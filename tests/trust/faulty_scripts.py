"""Scripts of models that go wrong, out of a seed: the six faults of a loop, one by one, together, in any company; with
what may come of each.

M090  names of tools that do not exist      M093  a stream that is cut in the middle of arguments
M091  the same call in one turn, twice      M094  cancelled while a person is asked
M092  killed after its effect               M095  a person's word that is long out of sight
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

FAULTS = ("M090", "M091", "M092", "M093", "M094", "M095")
COMPLETED = ("completed", "finish_accepted")
CANCELLED = ("cancelled", "client")
ALWAYS_SHOWN = "never touch the accounts of others"
FORGET_AFTER = 9
"""Rounds behind which a step is folded, and one more."""
TOKENS = {"in": 4_500, "out": 50}
LIMITS = {
    "steps": ("step_budget", 3, 12),
    "model_calls": ("model_call_budget", 3, 12),
    "tool_calls": ("tool_call_budget", 1, 8),
    "tokens_total": ("token_budget", 12_000, 60_000),
    "retries": ("retry_budget", 0, 1),
}
Turn = dict[str, Any]


@dataclass
class Scenario:
    """One run. ``times``: how often each thing is done that its model wants, where nothing ends it before; ``answers``:
    what a person says to each question; ``late``: things whose outcome nobody knows, by the turn that wants them;
    ``closes``: a person looks what became of them, and lets them be done again; ``ends``: what may be told."""

    name: str
    faults: tuple[str, ...]
    limits: dict[str, int] = field(default_factory=dict)
    turns: list[Turn] = field(default_factory=list)
    times: Counter[str] = field(default_factory=Counter)
    answers: dict[str, str] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)
    closes: bool = False
    ends: set[tuple[str, str]] = field(default_factory=set)

    def write(self, directory: Path) -> Path:
        """Its script as a file."""
        path = directory / f"{self.name}.jsonl"
        path.write_bytes(b"\n".join(map(msgspec.json.encode, self.turns)))
        return path


def scenario(number: int, seed: int, effects: Path) -> Scenario:
    """The first six have a fault each, the seventh all of them."""
    rng = random.Random(f"{seed} {number}")
    drawn = tuple(fault for fault in FAULTS if rng.random() < 0.4)
    faults = (FAULTS[number],) if number < len(FAULTS) else FAULTS if number == len(FAULTS) else drawn
    return _Writer(Scenario(f"w{number}", faults), rng, effects).write(limited=number > len(FAULTS))


class _Writer:
    def __init__(self, made: Scenario, rng: random.Random, effects: Path) -> None:
        self._made, self._rng, self._effects = made, rng, effects

    def write(self, limited: bool) -> Scenario:
        made, rng = self._made, self._rng
        first: dict[str, Callable[[], None]] = {"M090": self._unknown, "M091": self._twice, "M093": self._cut}
        begins = [first[fault] for fault in made.faults if fault in first]
        rng.shuffle(begins)
        for fault in (self._good, *begins):
            fault()
            self._good()
        ends = self._late() if "M092" in made.faults else False
        if "M095" in made.faults and not ends:
            self._forgotten()
        if not ends:
            self._end()
        if limited and rng.random() < 0.4:
            self._limit()
        made.turns += [{"text": "that is what is known", "tokens": TOKENS}] * 2  # where there is a last word
        return made

    # -------------------------------------------------------- turns

    def _turn(self, *calls: dict[str, Any], **more: Any) -> None:
        self._made.turns.append({"calls": calls, "tokens": TOKENS, **more})

    def _name(self) -> str:
        return f"{self._made.name}t{len(self._made.turns)}"

    def _call(self, tool: str, name: str, times: int = 1) -> dict[str, Any]:
        self._made.times[name] = times
        return {"tool": tool, "arguments": {"file": str(self._effects), "name": name}}

    def _good(self) -> None:
        name, count = self._name(), self._rng.choice((1, 1, 2))
        self._turn(*(self._call("trust_effect", f"{name}{letter}") for letter in "ab"[:count]))

    # -------------------------------------------------------- faults

    def _unknown(self) -> None:
        for number in range(self._rng.randrange(1, 4)):
            self._turn({"tool": f"no_such_tool_{number}", "arguments": {"path": self._name()}})

    def _twice(self) -> None:
        call = self._call("trust_effect", self._name())
        self._turn(*[call] * self._rng.randrange(2, 4))

    def _cut(self) -> None:
        call = self._call("trust_effect", self._name())
        for _ in range(self._rng.randrange(1, 3)):
            where = self._rng.randrange(1, len(msgspec.json.encode(call["arguments"])))
            if self._rng.random() < 0.5:
                self._turn(call, cut_at=where, cut_by=self._rng.choice(("close", "reset")))
            else:
                half = msgspec.json.encode(call["arguments"]).decode()[:where]
                self._turn({**call, "arguments": half})
        self._turn(call)

    def _late(self) -> bool:
        """Whether it ends with it: the model wants the same again, and nobody knows whether it was done."""
        made, name = self._made, self._name()
        call = self._call("trust_late", name)
        made.late[name] = len(made.turns)
        self._turn(call)
        if self._rng.random() < 0.5:
            self._turn(call)
            made.closes = "M094" in made.faults or self._rng.random() < 0.5
            if not made.closes:
                made.ends.add(CANCELLED)
                return True
            made.times[name] = 2
        self._good()
        return False

    def _forgotten(self) -> None:
        name, answer = self._name(), self._rng.choice(("approve", "reject"))
        call = self._call("trust_ask", name, times=answer == "approve")
        self._made.answers[name] = answer
        self._turn(call)
        for _ in range(FORGET_AFTER + 1):
            self._good()
        if answer == "reject":  # and it wants it all the same
            self._turn(call)
            self._good()

    def _end(self) -> None:
        made = self._made
        if "M094" in made.faults:
            name = self._name()
            self._turn(self._call("trust_ask", name, times=0))
            made.answers[name] = "cancel"
            made.ends.add(CANCELLED)
        elif "M090" in made.faults and self._rng.random() < 0.3:
            count = self._rng.choice((1, 3))  # in a turn; four turns without anything new are an end too
            self._turn(*[{"tool": "no_such_tool", "arguments": {}}] * count, repeat="forever")
            made.ends.add(("stuck", "no_progress") if count == 1 else ("tool_failed", "unknown_tool"))
        elif self._rng.random() < 0.2:
            made.turns.append({"text": "that is all", "tokens": TOKENS})
            made.ends.add(("completed", "final_text"))
        else:
            self._turn({"tool": "finish", "arguments": {"answer": "done"}})
            made.ends.add(COMPLETED)

    def _limit(self) -> None:
        name = self._rng.choice(list(LIMITS))
        reason, low, high = LIMITS[name]
        self._made.limits[name] = self._rng.randint(low, high)
        self._made.ends.add(("budget_exhausted", reason))
