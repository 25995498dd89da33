"""What a person is asked before a call runs: whether, what is frozen of it, and how things are when the answer comes.

Owns the look at the rules, at the tool, at the directory. `core/policy` and `core/checkpoints` say what follows from
it, `approvals` does it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable

import msgspec
import trio

from protocol._client_messages import Submit
from protocol._contracts import Approval
from protocol._outcomes import Reason
from supervisor.approval_book import ApprovalBook, Subject
from supervisor.config_policy import ApprovalSettings
from supervisor.core import checkpoints
from supervisor.core.arguments import parse
from supervisor.core.checkpoints import Asked, Checkpoint, Frame, Present
from supervisor.core.intake import Judged, Refusal
from supervisor.core.policy import Action, Policy, Ruling
from supervisor.core.tools import Tools
from supervisor.live_approval import LiveApproval
from supervisor.live_call import LiveCall

_STAT_S = 2.0
FINISH = "finish"
"""What stands for the tool where a person is to confirm that a run is done."""


class Questions:
    """One per daemon. ``wall``: milliseconds since 1970."""

    def __init__(
        self,
        boot: str,
        settings: ApprovalSettings,
        policy: Policy,
        tools: Tools,
        book: ApprovalBook,
        wall: Callable[[], int],
    ) -> None:
        self._boot, self._settings, self._policy = boot, settings, policy
        self._tools, self._book, self._wall = tools, book, wall
        self._numbers = itertools.count(1)
        self._stats = trio.CapacityLimiter(4)

    def ruling(self, judged: Judged) -> Ruling:
        """What the policy says of a call. Raises Refusal when it denies."""
        ruling = self._policy.ruling(judged.tool, lambda: judged.values)
        if ruling.action is Action.DENY:
            raise Refusal(Reason.POLICY_DENIED, ruling.reason)
        return ruling

    def question(
        self,
        submit: Submit,
        judged: Judged,
        uid: int,
        ruling: Ruling,
        args_fp: str,
        profile: Approval | None = None,
    ) -> Asked | None:
        """What to ask a person about a call that is not denied; None: nothing. ``profile``: what that of its run says.
        Raises Refusal: a person has said no to the same call of this run, or too many wait already."""
        question = checkpoints.question(judged.contract, self._settings.undeclared, ruling, profile)
        if question is None:
            return None
        if judged.run is not None and self._book.of_run(uid, judged.run):
            subject = Subject(uid, judged.run, judged.tool, self._contract_of(judged.tool) or "", args_fp)
            no = self._book.rejection(subject)
            if no is not None:
                raise Refusal(Reason.POLICY_DENIED, _said_no(no))
            if self._book.is_granted(subject, self._policy.version):
                return None
        self._book.check_room()
        return Asked(submit, question, args_fp)

    def frozen(self, call: LiveCall, frame: Frame, place_id: str) -> Checkpoint:
        """What is frozen of a call that asks."""
        judged, now = call.judged, self._wall()
        asks = call.asks
        assert asks is not None
        submit, question = asks.submit, asks.question
        asked_ms = submit.deadline_ms if isinstance(submit.deadline_ms, int) else None
        return Checkpoint(
            self._name(),
            call.id,
            call.uid,
            judged.run,
            judged.tool,
            self._contract_of(judged.tool) or "",
            judged.arguments,
            asks.args_fp,
            call.key,
            now,
            now + self._settings.expires_ms,
            question.why,
            self._policy.version,
            question.action,
            asked_ms,
            judged.cwd,
            place_id,
            call.claim,
            judged.split_streams,
            submit.max_output_bytes,
            submit.min_containment,
            submit.min_isolation,
            frame,
        )

    def confirmation(self, uid: int, run: str, arguments: str, why: str, frame: Frame) -> Checkpoint:
        """What is frozen of a run's end that a person is to confirm. Raises Refusal: too many wait already."""
        self._book.check_room()
        now = self._wall()
        return Checkpoint(
            self._name(),
            "",
            uid,
            run,
            FINISH,
            "",
            arguments,
            "",
            "",
            now,
            now + self._settings.expires_ms,
            why,
            self._policy.version,
            Action.ALLOW,
            frame=frame,
            confirms=True,
        )

    def again(self, frozen: Checkpoint) -> Checkpoint:
        """The same call, asked about under the rules of now."""
        now, ruling = self._wall(), self._ruling_of(frozen.tool, frozen.arguments)
        return msgspec.structs.replace(
            frozen,
            approval=self._name(),
            asked_at_ms=now,
            expires_at_ms=now + self._settings.expires_ms,
            reason=ruling.reason,
            policy_version=self._policy.version,
            policy_action=ruling.action,
        )

    def present(self, approval: LiveApproval, place_id: str, edited: bool) -> Present:
        """How things are now. A policy that has not changed is not asked again: the decision binds."""
        frozen, version = approval.checkpoint, self._policy.version
        if frozen.confirms:
            return Present(frozen.contract, place_id, frozen.policy_version, None, approval.intact)
        changed = not edited and frozen.policy_version != version
        return Present(
            self._contract_of(frozen.tool),
            place_id,
            version,
            self._ruling_of(frozen.tool, frozen.arguments) if changed else None,
            approval.intact,
        )

    def _name(self) -> str:
        return f"a_{self._boot}{next(self._numbers):06x}"

    def _contract_of(self, tool: str) -> str | None:
        served = self._tools.get(tool)
        return None if served is None else served.form.contract_hash

    def _ruling_of(self, tool: str, arguments: str) -> Ruling:
        return self._policy.ruling(tool, lambda: parse(arguments).values)

    async def place_id(self, path: str | None) -> str:
        """What a directory is, by the file system; empty: there is none, or it does not answer."""
        if path is None:
            return ""
        with trio.move_on_after(_STAT_S):
            return await trio.to_thread.run_sync(_identity, path, limiter=self._stats, abandon_on_cancel=True)
        return ""


def _identity(path: str) -> str:
    try:
        found = os.stat(path)
    except OSError:
        return ""
    return f"{found.st_dev}:{found.st_ino}"


def _said_no(approval: LiveApproval) -> str:
    note = approval.machine.note
    return f"a person has said no to the same call of this run ({approval.id})" + (f": {note}" if note else "")
