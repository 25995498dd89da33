"""What a daemon must make of the runs and the questions of the daemon before it.

* A run that was told to be over is, and the same is told of it; one that was told to wait waits; one that went on has
  ended (``recovered_after_crash``), with each of its calls that nobody knows the outcome of.
* A question that waits was asked once, is there to be answered, and then its run goes on to its end. One that was
  answered stays so: answering it again changes nothing, and its call has run at most once.
* What the log says that a run has used is between what is firm and what it has sent; what its record says, and what
  it goes on with, is the same.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator

from deadlined._errors import RequestRefused, RunStopped
from deadlined.client import Client
from protocol._outcomes import CallResult, Delivery, Status
from protocol._runs import ApprovalView, RunReason, RunStatus, RunView, StopRecord
from tests.trust.ledger import Ledger, contradiction
from tests.trust.registry import Figures
from tests.trust.steering import SESSION_CALLS, Books, Question, Steered, attached

COUNTED = ("steps", "model_calls", "tokens_in", "tokens_out", "tool_calls")
ANSWERED_NOW = 0.7
ANSWER_S = 20.0
Fail = Callable[[str], None]


class NextLife:
    """One look at all runs that were going on, and what follows."""

    def __init__(
        self, client: Client, books: Books, ledger: Ledger, figures: Figures, fail: Fail, stopped: bool
    ) -> None:
        """``stopped``: the daemon before may have had the time to end runs by itself."""
        self._client, self._books, self._figures = client, books, figures
        self._ledger, self._fail, self._stopped = ledger, fail, stopped
        self._done = books.done()

    def check(self) -> None:
        """Before anything else is asked for."""
        for wrong in self._books.wrong:
            self._fail(wrong)
        self._books.wrong.clear()
        for run in self._books.going:
            if run.id is not None:
                for wrong in self._wrong(run):
                    self._fail(f"run {run.name} ({run.id}): {wrong}")

    # -------------------------------------------------------- as it is found

    def _wrong(self, run: Steered) -> Iterator[str]:
        try:
            view = attached(self._client, run).view()
        except RequestRefused as refused:
            yield f"it was opened, and now: {refused}"
            return
        self._figures.count(f"runs {view.status if view.stop is None else view.stop.reason}")
        asked = self._client.approvals(run=run.id, all=True)
        yield from self._wrong_end(run, view)
        for question in run.questions:
            mine = [one for one in asked if self._books.question(one) is question]
            if wrong := self._wrong_question(question, mine):
                yield f"{question.name}, {question.answer}: {wrong}"
        if (standing := {one.approval for one in asked if one.state == "pending"}) != set(view.approvals):
            yield f"it waits for {view.approvals}, and there are {standing}"
        if (view.status is RunStatus.WAITING_FOR_APPROVAL) != bool(standing):
            yield f"it is {view.status}, and {len(standing)} of its questions stand"
        yield from self._wrong_use(run, view)

    def _wrong_end(self, run: Steered, view: RunView) -> Iterator[str]:
        told = run.stop or run.waits
        if told is not None:
            if told.durable and view.stop != told:
                yield f"another end than was told: {view.stop}, {told}"
        elif not self._may_be(run, view):
            yield f"it cannot be {view.status}: {run}, {view.stop}"
        if view.stop is not None and view.stop.reason is RunReason.RECOVERED_AFTER_CRASH:
            yield from self._wrong_effects(run, view.stop)

    def _may_be(self, run: Steered, view: RunView) -> bool:
        """Of one whose end nobody was told."""
        if run.must_wait:
            return view.status is RunStatus.WAITING_FOR_APPROVAL
        said = [question for question in run.questions if question.said]
        match view.status:
            case RunStatus.RUNNING:  # the answer was on the disk, and that the run goes on was not
                return bool(said)
            case RunStatus.WAITING_FOR_APPROVAL:
                return bool(run.questions)
            case RunStatus.INTERNAL_ERROR:
                return view.stop is not None and view.stop.reason is RunReason.RECOVERED_AFTER_CRASH
            case RunStatus.COMPLETED:
                return run.finishing
            case RunStatus.BUDGET_EXHAUSTED:
                return self._is_used_up(run)
            case RunStatus.BLOCKED:
                return any(question.answer == "stop" for question in said)
            case _:
                return self._stopped and view.status is RunStatus.CANCELLED

    def _wrong_effects(self, run: Steered, stop: StopRecord) -> Iterator[str]:
        """Whatever may have been done and nobody knows stands in the record, and is open."""
        listed = {effect.call for effect in stop.unresolved_effects}
        still = {effect.call for effect in self._client.effects(run=run.id)}
        calls = [one.call for one in self._ledger.asked if one.run == run.id]
        calls += [one.decided.call for one in run.questions if one.decided is not None]
        unknown = {call for call in calls if call and self._is_unknown(call)}
        if listed != still or not unknown <= listed:
            yield f"open effects: {listed} in its record, {still} are open, {unknown} are unknown"

    def _is_unknown(self, call: str) -> bool:
        found = self._result(call)
        return found is not None and found.delivery is Delivery.UNKNOWN

    def _result(self, call: str) -> CallResult | None:
        try:
            return self._client.handle(call).wait(ANSWER_S)
        except RequestRefused:
            return None

    def _is_used_up(self, run: Steered) -> bool:
        return self._books.sent[run.session] >= SESSION_CALLS

    def _wrong_question(self, question: Question, mine: list[ApprovalView]) -> str:
        done, states = self._done[question.name], {one.approval: one for one in mine}
        if question.waits is not None and question.waits.approval not in states:
            return "asked, and forgotten"
        if len(mine) > 1:
            return f"asked {len(mine)} times"
        if not mine:
            return f"done {done} times, and nobody was asked" if done else ""
        (now,) = mine
        if (decided := question.decided) is not None:
            said = decided.approval
            if (now.approval, now.state, now.executed) != (said.approval, said.state, decided.call):
                return f"it was {said.state} ({decided.call}), and is {now.state} ({now.executed})"
        elif now.state in ("consumed", "rejected") and not question.said:
            return f"nobody has answered, and it is {now.state}"
        if now.state == "consumed":
            return self._wrong_call(question, now, done)
        return f"it is {now.state}, and was done {done} times" if done else ""

    def _wrong_call(self, question: Question, now: ApprovalView, done: int) -> str:
        found = None if now.executed is None else self._result(now.executed)
        if found is None:
            return f"what came of it ({now.executed}) is not known"
        if question.result is not None and question.result.durable and found != question.result:
            return f"another result than was acknowledged: {found}"
        return contradiction(found, done)

    def _wrong_use(self, run: Steered, view: RunView) -> Iterator[str]:
        used: Counter[str] = Counter()
        for event in attached(self._client, run).events():
            used.update(event.data.get("charge") or {})
        for name in COUNTED:
            if not run.firm[name] <= used[name] <= run.sent[name]:
                yield f"{name}: {run.firm[name]} to {run.sent[name]} were asked for, the log has {used[name]}"
            if name in view.budgets and view.budgets[name].used != used[name]:
                yield f"{name}: {view.budgets[name].used} used, the log has {used[name]}"

    # -------------------------------------------------------- and how it goes on

    def go_on(self, rng: random.Random) -> None:
        """Most that wait are answered, and end; everything is asked for again."""
        books, self._books.going = self._books.going, []
        for run in books:
            if run.id is None:
                continue
            try:
                if wrong := self._wrong_way(run, rng.random() < ANSWERED_NOW):
                    self._fail(f"run {run.name} ({run.id}), gone on: {wrong}")
            except (RequestRefused, RunStopped) as error:
                self._fail(f"run {run.name} ({run.id}), gone on: {type(error).__name__}: {error}")

    def _wrong_way(self, run: Steered, answers: bool) -> str:
        asked = self._client.approvals(run=run.id, all=True)
        waits = [one for one in asked if one.state == "pending"]
        if waits and answers:
            for one in waits:
                if wrong := self._wrong_approval(run, one):
                    return wrong
        if waits and not answers:
            for question in map(self._books.question, waits):
                assert question is not None
                question.answer, question.said, question.refused = "later", False, ""
            run.waits = attached(self._client, run).wait()
            self._books.going.append(run)
        elif wrong := self._wrong_finish(run):
            return wrong
        return self._wrong_again(run, asked)

    def _wrong_approval(self, run: Steered, one: ApprovalView) -> str:
        name = self._name(one)
        try:
            decided = self._client.approve(one.approval)
        except RequestRefused as refused:
            spent = refused.error.code in ("budget_exhausted", "approval_void") and self._is_used_up(run)
            return "" if spent else f"{name} waits, and cannot be approved: {refused}"
        self._figures.count("approved in another life")
        if decided.call is None:
            return f"{name} was approved, and nothing came of it"
        result = self._client.handle(decided.call).wait(ANSWER_S)
        if result.status is not Status.OK:
            return f"{name} was approved: {result}"
        return ""

    def _name(self, one: ApprovalView) -> str:
        question = self._books.question(one)
        return one.approval if question is None else question.name

    def _wrong_finish(self, run: Steered) -> str:
        """One that goes on comes to its end."""
        handle = attached(self._client, run)
        if handle.view().stop is not None:
            return ""
        try:
            handle.step()
            end = handle.finish("done in another life")
        except RunStopped as stopped:
            end = stopped.stop
        used_up = isinstance(end, StopRecord) and end.status is RunStatus.BUDGET_EXHAUSTED and self._is_used_up(run)
        if isinstance(end, StopRecord) and (end.status is RunStatus.COMPLETED or used_up):
            return ""
        return f"it cannot be finished: {end}"

    def _wrong_again(self, run: Steered, asked: list[ApprovalView]) -> str:
        """Answer again what is answered, ask again for everything: nothing comes of it."""
        before = self._books.done()
        now = {one.approval: one for one in self._client.approvals(run=run.id, all=True)}
        for one in asked:
            if wrong := self._wrong_answer(now[one.approval]):
                return f"{self._name(one)}, answered again: {wrong}"
        results = [(one, self._books.submit(self._client, run, one).wait(ANSWER_S)) for one in run.questions]
        after = self._books.done()
        for question, result in results:
            times = after[question.name]
            if times > 1 or times != before[question.name]:
                return f"{question.name}, asked again: done {before[question.name]} times before, {times} after"
            if result.status is not Status.WAITING_FOR_APPROVAL and (wrong := contradiction(result, times)):
                return f"{question.name}, asked again: {wrong}"
        return ""

    def _wrong_answer(self, now: ApprovalView) -> str:
        if now.state == "pending":
            return ""
        try:
            decided = self._client.approve(now.approval)
        except RequestRefused as refused:
            expected = "unknown_approval" if now.state == "void" else f"approval_{now.state}"
            return "" if refused.error.code in (expected, f"approval_{now.state}") else str(refused)
        if now.state != "consumed" or decided.call != now.executed:
            return f"it was {now.state} ({now.executed}), and now {decided.call} came of it"
        return ""
