"""Whoever steers runs, and a person who is asked, while a daemon dies: what they do, and their own books of it.

What they have *sent* and what is *firm* are the bounds within which a life after it may say what was used. A round or a
model's usage is firm when something later was told that is on the disk: the log has both, in order. A question's name
is in its arguments; doing what it asks for writes a line with that name to one file.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from deadlined._errors import ConnectionLost, RequestRefused, RunStopped
from deadlined.client import CallHandle, Client
from deadlined.runs import Run
from protocol import _client_messages as cm
from protocol._outcomes import CallResult, Delivery, Status
from protocol._runs import ApprovalView, StopRecord
from tests.trust.ledger import Ledger, lines_of, until_it_is_gone

SESSION_RUNS = 6
SESSION_CALLS = 9
"""So many tool calls may the runs of a session make: the last ones of it meet that."""
MOST_IN, MOST_OUT = 20, 10
LOOK_S = 0.01
ANSWERS = (("approve", 0.5), ("twice", 0.2), ("reject", 0.15), ("stop", 0.15))


@dataclass
class Question:
    """Something a person is asked about. ``answer``: what that person will say; ``later``: nothing in this life.

    ``waits``: it was told, as on the disk, that it waits; ``said``: the answer is on its way, and then ``decided``, or
    ``refused`` with a code. ``result``: of the call that came of it, as it was told."""

    name: str
    answer: str
    waits: CallResult | None = None
    said: bool = False
    decided: cm.Decided | None = None
    refused: str = ""
    result: CallResult | None = None
    heard: threading.Event = field(default_factory=threading.Event)


@dataclass
class Steered:
    """One run. ``sent``, ``firm``: by dimension, the most and the least that it has used. ``stop``: that it is over, as
    it was told; ``waits``: that it waits, where nobody will answer before the daemon dies."""

    name: str
    session: str
    id: str | None = None
    sent: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    spare: Counter[str] = field(default_factory=Counter)
    firm: Counter[str] = field(default_factory=Counter)
    questions: list[Question] = field(default_factory=list)
    finishing: bool = False
    stop: StopRecord | None = None
    waits: StopRecord | None = None

    @property
    def must_wait(self) -> bool:
        """Whether all that it can still do is to wait for a person, and nobody has begun to answer."""
        standing = [one for one in self.questions if one.result is None]
        ends = any(one.said and one.answer == "stop" for one in self.questions)
        return bool(standing) and not ends and all(one.waits and not one.said for one in standing)

    def confirm(self) -> None:
        """Something was told that is on the disk, and with it all before it."""
        self.firm = self.told.copy()
        self.sent.subtract(self.spare)
        self.spare.clear()

    def hear(self, stop: StopRecord) -> None:
        """It does not run any more."""
        if stop.durable:
            self.confirm()
        if stop.resumable:
            self.waits = stop if self.must_wait else None
        else:
            self.stop = stop


class Books:
    """Of one place, through all lives of its daemons. ``going``: the runs whose end has not been seen."""

    def __init__(self, directory: Path) -> None:
        self.effects = directory / "answered"
        self.going: list[Steered] = []
        self.sent: Counter[str] = Counter()
        """Tool calls that were asked for, by session."""
        self.wrong: list[str] = []
        self.over = threading.Event()
        self._of_name: dict[str, Question] = {}
        self._numbers = 0

    def open(self) -> Steered:
        """A new run."""
        run = Steered(f"r{self._numbers}", f"s{self._numbers // SESSION_RUNS}")
        self._numbers += 1
        self.going.append(run)
        return run

    def ask(self, run: Steered, number: int, answer: str) -> Question:
        """A new question, written down before it is asked."""
        question = Question(f"{run.name}q{number}", answer)
        self._of_name[question.name] = question
        run.questions.append(question)
        self.call(run)
        return question

    def call(self, run: Steered, by: int = 1) -> None:
        """A tool is about to be called; or (-1) it is told that it was not."""
        run.sent["tool_calls"] += by
        self.sent[run.session] += by

    def question(self, view: ApprovalView) -> Question | None:
        """Which one it is."""
        return self._of_name.get(msgspec.json.decode(view.arguments)["name"])

    def done(self) -> Counter[str]:
        """How often each thing was done."""
        return lines_of(self.effects)

    def submit(self, client: Client, run: Steered, question: Question) -> CallHandle:
        """Ask for it, for the first time or again: the same tool, the same arguments, the same key."""
        arguments = {"file": str(self.effects), "name": question.name}
        return client.submit("trust_ask", arguments, run=run.id, key=question.name, deadline_ms=20_000)


def steer_until_it_dies(socket: str, books: Books, ledger: Ledger, most: int, rng: random.Random) -> None:
    """One run after the other, beside a person who answers, until the daemon is gone."""
    books.over.clear()
    with ThreadPoolExecutor(1) as pool:
        person = pool.submit(_answer_until_it_dies, socket, books)
        with until_it_is_gone(), Client(socket) as client:
            for _ in range(most):
                _Steerer(client, books, ledger, rng, books.open()).go()
        person.result()


class _Steerer:
    """From the opening of one run to where it does not run any more."""

    def __init__(self, client: Client, books: Books, ledger: Ledger, rng: random.Random, run: Steered) -> None:
        self._client, self._books, self._ledger, self._rng, self._run = client, books, ledger, rng, run

    def go(self) -> None:
        run, rng = self._run, self._rng
        self._handle = self._client.open_run(goal=run.name, session=run.session)
        run.id = self._handle.id
        try:
            for number in range(rng.randrange(1, 4)):
                if not self._round(number):
                    run.hear(self._handle.wait())
                    return
            run.finishing = True
            end = self._handle.finish("done")
            assert isinstance(end, StopRecord)
            run.hear(end)
        except RunStopped as stopped:
            run.hear(stopped.stop)

    def _round(self, number: int) -> bool:
        """Whether the run goes on."""
        run, rng = self._run, self._rng
        run.sent["steps"] += 1
        self._handle.step()
        run.told["steps"] += 1
        if rng.random() < 0.6:
            self._think()
        if rng.random() < 0.6 and not self._act(f"{self._ledger.prefix}{run.name}e{number}"):
            return False
        return rng.random() < 0.3 or self._ask(number)

    def _think(self) -> None:
        run, used = self._run, (self._rng.randrange(1, MOST_IN), self._rng.randrange(1, MOST_OUT))
        run.sent.update(model_calls=1, tokens_in=MOST_IN, tokens_out=MOST_OUT)
        with self._handle.model("m", max_in=MOST_IN, max_out=MOST_OUT) as model:
            run.told["model_calls"] += 1
            model.usage(tokens_in=used[0], tokens_out=used[1])
        run.told.update(tokens_in=used[0], tokens_out=used[1])
        run.spare.update(tokens_in=MOST_IN - used[0], tokens_out=MOST_OUT - used[1])

    def _act(self, name: str) -> bool:
        assert self._run.id is not None
        asked = self._ledger.write_of_run(name, self._run.id, self._rng)
        self._books.call(self._run)
        handle = asked.submit(self._client)
        asked.call = handle.call
        result = handle.wait()
        asked.told = msgspec.msgpack.encode(result)
        return self._paid(result)

    def _paid(self, result: CallResult) -> bool:
        """What is told of a call is on the disk, with what it has cost."""
        if result.delivery is Delivery.NOT_DELIVERED:
            self._books.call(self._run, -1)
        else:
            self._run.told["tool_calls"] += 1
        if result.durable:
            self._run.confirm()
        return result.status is Status.OK

    # -------------------------------------------------------- asking a person

    def _ask(self, number: int) -> bool:
        rng, names = self._rng, [answer for answer, _ in ANSWERS]
        count, later = 1 + (rng.random() < 0.3), rng.random() < 0.25
        answers = rng.choices(names, [share for _, share in ANSWERS], k=count)
        asked = [
            self._books.ask(self._run, 2 * number + at, "later" if later else one) for at, one in enumerate(answers)
        ]
        handles = [self._books.submit(self._client, self._run, question) for question in asked]
        waiting = [one for one, handle in zip(asked, handles, strict=True) if self._waits(one, handle.wait())]
        if later or not waiting:
            return False
        goes_on = [self._answered(one) for one in waiting]  # each of them, whatever came of the first
        return all(goes_on)

    def _waits(self, question: Question, result: CallResult) -> bool:
        if result.status is not Status.WAITING_FOR_APPROVAL:  # refused: nothing was asked
            self._run.questions.remove(question)
            self._books.call(self._run, -1)
            return False
        if result.durable:
            question.waits = result
            self._run.confirm()
        return True

    def _answered(self, question: Question) -> bool:
        """What came of it, as far as it is told; whether the run goes on."""
        while not question.heard.wait(0.05):
            if self._books.over.is_set():
                raise ConnectionLost
        if question.decided is None or question.decided.call is None:
            return False
        question.result = self._client.handle(question.decided.call).wait()
        return self._paid(question.result) or question.answer == "reject"


def _answer_until_it_dies(socket: str, books: Books) -> None:
    try:
        with until_it_is_gone(), Client(socket) as client:
            while True:
                for view in client.approvals():
                    question = books.question(view)
                    if question is not None and question.answer != "later" and not question.said:
                        _answer(client, view, question, books)
                time.sleep(LOOK_S)
    finally:
        books.over.set()


def _answer(client: Client, view: ApprovalView, question: Question, books: Books) -> None:
    question.said = True
    try:
        for decided in _said(client, view, question.answer):
            if question.decided is not None and decided.call != question.decided.call:
                books.wrong.append(f"{question.name}: approved again, and another call: {decided.call}")
            question.decided = decided
    except RequestRefused as refused:
        question.refused = refused.error.code
    question.heard.set()


def _said(client: Client, view: ApprovalView, answer: str) -> Iterator[cm.Decided]:
    match answer:
        case "reject":
            yield client.reject(view.approval, note="no")
        case "stop":
            yield client.reject(view.approval, then="stop")
        case _:
            yield client.approve(view.approval)
            if answer == "twice":
                yield client.approve(view.approval)


def attached(client: Client, run: Steered) -> Run:
    """A run that was opened."""
    assert run.id is not None
    return client.attach_run(run.id)
