"""The six faults of an agent's loop (`faulty_scripts`), against a daemon that steers agents itself. Passes when

* no budget is passed: by what the run's record says, and by who was really asked and what was really done;
* its log has no gap, ends with its end, and adds up to what the record says;
* nothing is done more often than its model wanted it, whoever asks for it again; where nothing ends a run before its
  time, everything is done;
* its end is one of those that may come of its faults, the same for whoever asks, with a sentence;
* a person's word and whatever nobody knows the outcome of stand before its model in every turn that follows.
"""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from deadlined._errors import DeadlinedError
from deadlined.client import Client
from deadlined.runs import Run
from protocol import _client_messages as cm
from protocol._events import Event
from protocol._outcomes import Status
from protocol._runs import AgentOptions, RunReason, StopRecord
from tests.trust.daemons import PATIENT, TRUSTING, SuiteDaemon
from tests.trust.faulty_scripts import ALWAYS_SHOWN, FAULTS, TOKENS, Scenario, scenario
from tests.trust.ledger import lines_of
from tests.trust.registry import Figures, Suite

AT_ONCE = 8
PROFILE, DEADLINE_MS = "migration", 120_000
"""With steps enough for all faults together."""
SHOWN = 6
"""Messages that a model is shown: few, so that much is out of sight."""
DEBT = TOKENS["in"] + TOKENS["out"]
"""What a model reports beyond what was set aside is a debt: of one call, as the next is refused."""
MOST_STOPS = 8
FIRST_EVENTS = 40
"""Calls that begin in them are delivered again."""
BEHIND_THE_END = ("approval_decided", "call_refused")
"""What an end leads to (its questions are void), and the call that led to it."""
WHOLE = (["call_validated", "call_ended"], ["call_ended"])
"""What the log has of a call that ran, and of one that waited for a person and never did."""


def run(count: int, seed: int) -> Figures:
    """Steer ``count`` runs. What each of their models says is the seed's."""
    directory, figures = Path(tempfile.mkdtemp(prefix="dl-")), Figures()
    effects, heard = directory / "effects", directory / "heard"
    tables = {"agent": {"last": SHOWN}, "restart": PATIENT, "quarantine": TRUSTING}
    try:
        with SuiteDaemon(directory, {"spares": 4}, **tables) as daemon:
            daemon.start(f"overhears={heard}")
            whole = _Suite(daemon, directory, effects, heard, figures)
            with ThreadPoolExecutor(AT_ONCE) as pool:
                for wrong in pool.map(whole.play, [scenario(at, seed, effects) for at in range(count)]):
                    figures.tried += 1
                    if wrong:
                        figures.fail(f"{wrong} (seed {seed})")
            whole.close()
            if daemon.stop():
                figures.fail(f"the daemon ended otherwise: {daemon.words()}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return figures


class _Suite:
    """What all runs share."""

    def __init__(self, daemon: SuiteDaemon, directory: Path, effects: Path, heard: Path, figures: Figures) -> None:
        self.daemon, self.directory, self.effects, self.figures = daemon, directory, effects, figures
        self._heard, self._lock = heard, threading.Lock()

    def play(self, planned: Scenario) -> str:
        """What is wrong with one run, and which."""
        with Client(self.daemon.socket) as client:
            played = _Played(self, client, planned)
            try:
                wrong = list(played.play())
            except (DeadlinedError, TimeoutError) as error:
                wrong = [f"{type(error).__name__}: {error}"]
        more = f" (and {len(wrong) - 1} more)" if wrong[1:] else ""
        return f"{planned.name} {' '.join(planned.faults)} {planned.limits}: {wrong[0]}{more}" if wrong else ""

    def count(self, what: str, by: int = 1) -> None:
        with self._lock:
            self.figures.count(what, by)

    def heard(self, name: str) -> list[dict[str, Any]]:
        """What the model of a run was asked, in order."""
        text = self._heard.read_text() if self._heard.exists() else ""
        mine = f'"goal": "{name}"'
        return [json.loads(line) for line in text.splitlines() if mine in line]

    def close(self) -> None:
        """A suite in which nothing was ever forgotten, or delivered again, has shown nothing of it."""
        counts = self.figures.counts
        if "runs with M095" in counts and not counts.get("questions out of sight"):
            self.figures.fail("no question was ever out of sight")
        if "runs with M091" in counts and not counts.get("deliveries answered by what was done"):
            self.figures.fail("no call that was delivered again was known by its key")


class _Played:
    """One run, from its opening to what is to be said of it. ``_slow``: what was to be killed late never began, so that
    other things happen."""

    def __init__(self, suite: _Suite, client: Client, planned: Scenario) -> None:
        self._suite, self._client, self._planned = suite, client, planned
        self._said: dict[str, tuple[int, str]] = {}
        """By question: how many turns its model had had when a person answered, and what the answer was."""
        self._closed: set[str] = set()

    def play(self) -> Iterator[str]:
        planned = self._planned
        for fault in planned.faults or ("none",):
            self._suite.count(f"runs with {fault}")
        self._run = self._open()
        stop = self._steered()
        self._suite.count(f"{stop.status} {stop.reason}")
        events = list(self._run.events(follow=True))
        late = [event for event in events if event.kind == "call_ended" and event.data["tool"] == "trust_late"]
        self._slow = any(event.data["delivery"] == "not_delivered" for event in late)
        self._suite.count("machine too slow", self._slow)
        yield from self._wrong_end(stop, events)
        yield from _wrong_log(stop, events)
        yield from self._wrong_budgets(stop, events)
        yield from self._wrong_effects(stop, events)
        yield from self._wrong_words(stop)

    def _open(self) -> Run:
        planned = self._planned
        agent = AgentOptions(f"scripted:{planned.write(self._suite.directory)}", constraints=[ALWAYS_SHOWN])
        message = cm.OpenRun(
            0, planned.name, PROFILE, DEADLINE_MS, {**planned.limits}, on_disconnect="keep", agent=agent
        )
        return Run(self._client, self._client._ask(message, cm.RunOpened).run.run)

    def _steered(self) -> StopRecord:
        """Its end; a person answers on the way."""
        for _ in range(MOST_STOPS):
            stop = self._run.wait()
            if not stop.resumable:
                return stop
            self._deliver_again()
            if stop.reason is not RunReason.APPROVAL_REQUIRED:
                if not self._planned.closes:
                    return self._run.cancel()
                self._close()
            for one in self._client.approvals(run=self._run.id):
                name = json.loads(one.arguments)["name"]
                answer = self._planned.answers[name]
                if answer == "cancel":
                    return self._run.cancel()
                self._said[name] = (len(self._suite.heard(self._planned.name)), answer)
                self._client.approve(one.approval) if answer == "approve" else self._client.reject(one.approval)
        raise TimeoutError(f"it has waited {MOST_STOPS} times: {stop}")

    def _close(self) -> None:
        """A person has looked what became of it: it may be done again."""
        for effect in self._client.effects(run=self._run.id):
            self._client.close_effect(effect.call, "somebody has looked")
            self._closed.add(effect.call)

    def _deliver_again(self) -> None:
        """Every call that is known by its own key, once more: as a client would that has lost the answer."""
        for event in itertools.islice(self._run.events(), FIRST_EVENTS):
            if event.kind == "call_validated" and event.data["tool"] == "trust_effect" and event.call is not None:
                done = self._client.handle(event.call).wait(DEADLINE_MS / 1_000)
                if done.status is Status.OK and isinstance(done.content, str):
                    arguments = {"file": str(self._suite.effects), "name": done.content}
                    key = f"{event.data['decision']}.0"  # of the first call of its turn: for others it says no
                    again = self._client.call("trust_effect", arguments, run=self._run.id, key=key)
                    self._suite.count("deliveries answered by what was done", again.replayed)

    # -------------------------------------------------------- what must hold

    def _wrong_end(self, stop: StopRecord, events: list[Event]) -> Iterator[str]:
        planned, end = self._planned, (str(stop.status), str(stop.reason))
        if end not in planned.ends and not self._slow:
            yield f"it ended as {end}, which is none of {planned.ends}: {stop.text}"
        if not stop.text.strip():
            yield "its end has no sentence"
        if (again := self._run.wait()) != stop or (shown := self._run.view().stop) != stop:
            yield f"another end for another reader: {stop}, {again}, {shown}"
        last = next(event for event in reversed(events) if event.kind not in BEHIND_THE_END)
        if (last.kind, last.data.get("status"), last.data.get("reason")) != ("run_settled", *end):
            yield f"its log ends with {last.kind} {last.data}"
        if waiting := self._client.approvals(run=self._run.id):
            yield f"it has ended, and questions wait: {waiting}"

    def _wrong_budgets(self, stop: StopRecord, events: list[Event]) -> Iterator[str]:
        for name, limit in self._planned.limits.items():
            if stop.budgets[name].used > limit + (DEBT if name == "tokens_total" else 0):
                yield f"{name}: {stop.budgets[name].used} of {limit}"
        asked = len(self._suite.heard(self._planned.name))
        self._suite.count("turns", asked)
        if asked > stop.budgets["model_calls"].used:
            yield f"its model was asked {asked} times, and {stop.budgets['model_calls'].used} are counted"
        done = sum(self._done().values())
        self._suite.count("effects", done)
        if done > stop.budgets["tool_calls"].used:
            yield f"{done} things were done, and {stop.budgets['tool_calls'].used} calls are counted"
        self._suite.count("steps folded", sum(event.kind == "folded" for event in events))

    def _done(self) -> Counter[str]:
        every = lines_of(self._suite.effects)
        return Counter({name: every[name] for name in self._planned.times})

    def _wrong_effects(self, stop: StopRecord, events: list[Event]) -> Iterator[str]:
        planned, done = self._planned, self._done()
        self._deliver_again()
        if self._done() != done:
            yield f"delivered again, and done again: {done}, {self._done()}"
        for name, most in planned.times.items():
            whole = stop.status != "budget_exhausted" and not self._slow
            if done[name] > most or (done[name] < most and whole):
                yield f"{name} was done {done[name]} times, and should be {most}"
        unknown = {event.call for event in events if event.kind == "call_ended" and event.data["delivery"] == "unknown"}
        listed = {effect.call for effect in stop.unresolved_effects} | self._closed
        if listed != unknown or (len(listed) != sum(done[name] for name in planned.late) and not self._slow):
            yield f"nobody knows the outcome of {unknown}, its record has {listed}, done late were {planned.late}"

    def _wrong_words(self, stop: StopRecord) -> Iterator[str]:
        """In every turn after it."""
        planned, turns = self._planned, self._suite.heard(self._planned.name)
        if any(ALWAYS_SHOWN not in turn["pinned"] for turn in turns):
            yield "what is always to be shown was not"
        for name, (since, answer) in self._said.items():
            states = ("consumed", "approved") if answer == "approve" else ("rejected",)
            for turn in turns[since:]:
                line = next((line for line in turn["pinned"].splitlines() if f'"{name}"' in line), "")
                if not any(f": {state} " in line for state in states):
                    yield f"a person has said {answer} to {name}, and its model is not told: {turn['pinned']}"
                self._suite.count("questions out of sight", f'"{name}"' not in turn["others"])
        done = self._done()
        for name, at in planned.late.items():  # each turn of the script is played once, in order
            stands = done[name] == planned.times[name]  # else a person has closed it, and the second never came
            if stands and not self._slow and any(f'"{name}"' not in turn["pinned"] for turn in turns[at + 1 :]):
                yield f"nobody knows the outcome of {name}, and its model is not told"


def _wrong_log(stop: StopRecord, events: list[Event]) -> Iterator[str]:
    numbers = [event.data["run_seq"] for event in events]
    if numbers != list(range(1, len(events) + 1)):
        yield f"its events are numbered {numbers}"
    kinds = Counter(event.kind for event in events)
    if events[0].kind != "run_admitted" or kinds["run_settled"] != 1:
        yield f"its log has no beginning, or not one end: {kinds}"
    if kinds["decide_started"] != kinds["decide_ended"] and stop.status not in ("cancelled", "budget_exhausted"):
        yield f"a decision has no end: {kinds}"
    calls: defaultdict[str, list[str]] = defaultdict(list)
    used: Counter[str] = Counter()
    for event in events:
        used.update(event.data.get("charge") or {})
        if event.call is not None and event.kind in ("call_validated", "call_ended"):
            calls[event.call].append(event.kind)
    if odd := {call: of for call, of in calls.items() if of not in WHOLE}:
        yield f"calls that have no end, or two: {odd}"
    for name, budget in stop.budgets.items():
        if budget.used != used[name]:
            yield f"{name}: {budget.used} in its record, {used[name]} in its log"


SUITE = Suite(
    passes_when="no budget passed, no gap in a log, nothing done twice, one fitting end, a person's word in sight",
    push=50,
    long=500,
    run=run,
)
assert set(FAULTS) == {f"M09{number}" for number in range(6)}
