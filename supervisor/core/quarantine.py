"""Which calls and tools are kept from workers for a while, because of what their calls have done to workers. Every
transition is in this file; who is told of it, and how a key is made, is `trouble`'s.

Rules
1. A *key* is a tool with its arguments. A *loss* is the death of a worker in a call that nobody had decided: it
   crashed, or broke its link. A *hang* is a call that a limit had to end: its deadline, its own silence, its memory. A
   *leak* is a kill that the kernel has not confirmed.
2. So many losses of one key within the window (``poison_losses``) poison it: it is refused for ``poison_ms``. A hang
   poisons nothing: a test that timed out may be run again.
3. The different keys of a tool that were lost or hung within the window are its trouble. From ``warn_keys`` on its
   results carry a notice, from ``serial_keys`` on its calls run one at a time, and the loss or hang that reaches
   ``breaker_keys``, and every later one, has it refused for ``breaker_ms``.
4. What a tool of rule 3 cannot help does not count: where the arguments are the program (``open_ended``), eight calls
   that hang are eight programs and say nothing about the tool. Rule 2 holds for it all the same.
5. A call that ended by itself clears its key: no loss is remembered and it is no trouble any more. A breaker that is
   open stays open for its time.
6. A tool with ``leaks`` unconfirmed kills is refused until one of them is confirmed, so that they cannot pile up.
7. None of this feeds the restart intensity of workers (`respawn`), and nothing of that ends here.
8. The machine is total: a key or a tool that is not known means nothing, and at most ``MOST_KEYS`` keys are remembered,
   those that did something last.

A limit of None is never reached.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from itertools import pairwise
from typing import TypeAlias

import msgspec

from protocol._deadlines import NS_PER_MS

MOST_KEYS = 4_096


class Measure(StrEnum):
    """What is done to a key or a tool. All but WARN are a quarantine."""

    WARN = "warn"
    SERIAL = "serial"
    POISON = "poison"
    BREAKER = "breaker"
    LEAKS = "leaks"


class QuarantineSettings(msgspec.Struct, frozen=True):
    """Times in ms, the others numbers that are reached; None: never."""

    window_ms: int = 600_000
    poison_losses: int | None = 2
    poison_ms: int = 600_000
    warn_keys: int | None = 3
    serial_keys: int | None = 5
    breaker_keys: int | None = 8
    breaker_ms: int = 60_000
    leaks: int | None = 3


# ---------------------------------------------------------------- inputs


class Lost(msgspec.Struct):
    """A worker died in this call. ``open_ended``: rule 4."""

    tool: str
    key: str
    now_ns: int
    open_ended: bool = False


class Hung(msgspec.Struct):
    """A limit ended this call."""

    tool: str
    key: str
    now_ns: int
    open_ended: bool = False


class Finished(msgspec.Struct):
    """This call ended by itself."""

    tool: str
    key: str
    now_ns: int


class Leaked(msgspec.Struct):
    """A worker of this tool was killed and is not dead."""

    tool: str
    now_ns: int


class Confirmed(msgspec.Struct):
    """One that had leaked is dead now."""

    tool: str
    now_ns: int


Input: TypeAlias = Lost | Hung | Finished | Leaked | Confirmed

# ---------------------------------------------------------------- effects, and what is in force


class Ward(msgspec.Struct, frozen=True):
    """One measure in force. ``key`` None: the whole tool. ``until_ns`` None: until a leak is confirmed.
    ``count``: losses of the key, different keys of the tool, or its leaks."""

    measure: Measure
    tool: str
    key: str | None
    count: int
    until_ns: int | None


class Entered(msgspec.Struct, frozen=True):
    """A quarantine begins, or begins anew with a later end."""

    ward: Ward


class Left(msgspec.Struct, frozen=True):
    """It is over."""

    ward: Ward


Effects: TypeAlias = tuple[Entered | Left, ...]


class _Key(msgspec.Struct):
    losses: list[int] = []
    counted_ns: int | None = None
    """When it was trouble last, None for what rule 4 excuses."""
    until_ns: int = 0


class _Tool(msgspec.Struct):
    keys: dict[str, _Key] = {}
    leaks: int = 0
    until_ns: int = 0


class Quarantine:
    """The machine. `on` takes what happened; `wards` and `refusal` say what holds at an instant."""

    def __init__(self, settings: QuarantineSettings | None = None) -> None:
        """Raises ValueError as `refuse_disorder`."""
        self.settings = settings or QuarantineSettings()
        refuse_disorder(self.settings)
        self._window_ns = self.settings.window_ms * NS_PER_MS
        self._tools: dict[str, _Tool] = {}
        self._in_force: dict[tuple[Measure, str, str | None], Ward] = {}

    def on(self, given: Input) -> Effects:
        """Take one input; what has begun and what is over since the last one."""
        match given:
            case Lost():
                self._lost(given)
            case Hung():
                if not given.open_ended:
                    self._troubled(given)
            case Finished():
                if not self._finished(given):  # of nearly all calls: no reason to look at every key
                    return ()
            case Leaked():
                self._tool(given.tool).leaks += 1
            case Confirmed():
                known = self._tools.get(given.tool)
                if known is not None:
                    known.leaks = max(0, known.leaks - 1)
        return self.on_time(given.now_ns)

    def on_time(self, now_ns: int) -> Effects:
        """It is ``now_ns``: forget what is too old; what has begun and what is over."""
        self._forget(now_ns)
        now = {(ward.measure, ward.tool, ward.key): ward for ward in self.wards(now_ns) if _is_quarantine(ward)}
        before, self._in_force = self._in_force, now
        over = [Left(ward) for place, ward in before.items() if place not in now]
        begun = [
            Entered(ward)
            for place, ward in now.items()
            if place not in before or (ward.measure is Measure.BREAKER and ward.until_ns != before[place].until_ns)
        ]
        return (*over, *begun)

    def next_timer_ns(self) -> int | None:
        """When something in force ends by itself."""
        return min((ward.until_ns for ward in self._in_force.values() if ward.until_ns is not None), default=None)

    # ------------------------------------------------------------ questions

    def knows(self, tool: str) -> bool:
        """Whether anything is remembered of a tool; of most there is nothing, and no key need be made."""
        return tool in self._tools

    def refusal(self, tool: str, key: str, now_ns: int) -> Ward | None:
        """What keeps this call from running, if anything does."""
        known = self._tools.get(tool)
        if known is None:
            return None
        poisoned = known.keys.get(key)
        if poisoned is not None and poisoned.until_ns > now_ns:
            return Ward(Measure.POISON, tool, key, len(poisoned.losses), poisoned.until_ns)
        of_tool = self._tool_ward(tool, known, now_ns)
        return of_tool if of_tool and of_tool.measure in (Measure.BREAKER, Measure.LEAKS) else None

    def level(self, tool: str, now_ns: int) -> Ward | None:
        """The tool's own level below a refusal: WARN or SERIAL, or None."""
        known = self._tools.get(tool)
        ward = None if known is None else self._tool_ward(tool, known, now_ns)
        return ward if ward and ward.measure in (Measure.WARN, Measure.SERIAL) else None

    def wards(self, now_ns: int) -> list[Ward]:
        """Everything in force, by tool."""
        return [
            ward
            for name, tool in sorted(self._tools.items(), key=lambda item: item[0])
            for ward in self._wards_of(name, tool, now_ns)
        ]

    # ------------------------------------------------------------ transitions

    def _lost(self, given: Lost) -> None:
        key = self._troubled(given)
        key.losses.append(given.now_ns)
        key.losses = [lost_ns for lost_ns in key.losses if lost_ns > given.now_ns - self._window_ns]
        most = self.settings.poison_losses
        if most is not None and len(key.losses) >= most:
            key.until_ns = given.now_ns + self.settings.poison_ms * NS_PER_MS

    def _troubled(self, given: Lost | Hung) -> _Key:
        tool = self._tool(given.tool)
        key = tool.keys.pop(given.key, None) or _Key()
        tool.keys[given.key] = key  # at the end: the dictionary is in the order of what happened last
        if given.open_ended:
            return key
        key.counted_ns = given.now_ns
        most = self.settings.breaker_keys
        if most is not None and len(self._counted(tool, given.now_ns)) >= most:
            tool.until_ns = given.now_ns + self.settings.breaker_ms * NS_PER_MS
        return key

    def _finished(self, given: Finished) -> bool:
        tool = self._tools.get(given.tool)
        return tool is not None and tool.keys.pop(given.key, None) is not None

    def _tool(self, name: str) -> _Tool:
        return self._tools.setdefault(name, _Tool())

    def _forget(self, now_ns: int) -> None:
        for name, tool in list(self._tools.items()):
            for key, known in list(tool.keys.items()):
                last_ns = max(known.counted_ns or 0, *known.losses, 0)
                if last_ns <= now_ns - self._window_ns and known.until_ns <= now_ns:
                    del tool.keys[key]
            if not tool.keys and not tool.leaks and tool.until_ns <= now_ns:
                del self._tools[name]
        self._hold_to_the_most()

    def _hold_to_the_most(self) -> None:
        over = sum(len(tool.keys) for tool in self._tools.values()) - MOST_KEYS
        if over > 0:
            most = max(self._tools.values(), key=lambda tool: len(tool.keys))
            for key in list(most.keys)[:over]:
                del most.keys[key]

    # ------------------------------------------------------------ what holds

    def _wards_of(self, name: str, tool: _Tool, now_ns: int) -> Iterator[Ward]:
        for key, known in tool.keys.items():
            if known.until_ns > now_ns:
                yield Ward(Measure.POISON, name, key, len(known.losses), known.until_ns)
        of_tool = self._tool_ward(name, tool, now_ns)
        if of_tool is not None:
            yield of_tool

    def _tool_ward(self, name: str, tool: _Tool, now_ns: int) -> Ward | None:
        """The strongest measure against the whole tool."""
        if self.settings.leaks is not None and tool.leaks >= self.settings.leaks:
            return Ward(Measure.LEAKS, name, None, tool.leaks, None)
        counted = self._counted(tool, now_ns)
        if tool.until_ns > now_ns:
            return Ward(Measure.BREAKER, name, None, len(counted), tool.until_ns)
        for measure, least in ((Measure.SERIAL, self.settings.serial_keys), (Measure.WARN, self.settings.warn_keys)):
            if least is not None and len(counted) >= least:
                falls_ns = counted[len(counted) - least] + self._window_ns
                return Ward(measure, name, None, len(counted), falls_ns)
        return None

    def _counted(self, tool: _Tool, now_ns: int) -> list[int]:
        """When each key that is trouble at ``now_ns`` was so last, the oldest first."""
        since_ns = now_ns - self._window_ns
        return sorted(k.counted_ns for k in tool.keys.values() if k.counted_ns is not None and k.counted_ns > since_ns)


def _is_quarantine(ward: Ward) -> bool:
    return ward.measure is not Measure.WARN


def refuse_disorder(settings: QuarantineSettings) -> None:
    """Raises ValueError for a number that is none, and for levels that would not come one after the other."""
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} = {value} is not allowed; allowed: at least 1")
    names = [name for name in ("warn_keys", "serial_keys", "breaker_keys") if getattr(settings, name) is not None]
    for lower, higher in pairwise(names):
        if getattr(settings, lower) > getattr(settings, higher):
            raise ValueError(
                f"{lower} = {getattr(settings, lower)} is above {higher} = {getattr(settings, higher)};"
                " allowed: warn_keys, serial_keys, breaker_keys in rising order"
            )
