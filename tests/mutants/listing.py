"""The weakened builds: which file, which text, what stands in its place, which suite must turn red.

A mutant takes away one thing that the product promises. Its old text occurs exactly once in its file, so that a change
of the code that moves it is noticed. Suites are machine tests: they need no processes, and import what they test from
the copy.
"""

from __future__ import annotations

from tests.mutants import of_models
from tests.mutants.mutant import Mutant

_RUN = "supervisor/core/run.py"
_RUN_SUITE = "tests/supervisor/core/test_run.py"
_PLAN, _PLAN_SUITE = "supervisor/core/plan.py", "tests/supervisor/core/test_plan.py"
_COMPLETION, _COMPLETION_SUITE = "supervisor/core/completion.py", "tests/supervisor/core/test_completion.py"
_RETRY, _RETRY_SUITE = "supervisor/core/retry.py", "tests/supervisor/core/test_retry.py"
_CALL, _CALL_SUITE = "supervisor/core/call.py", "tests/supervisor/core/test_call.py"
_CONTEXT, _CONTEXT_SUITE = "supervisor/core/context.py", "tests/supervisor/core/test_context.py"

_LEDGER = "supervisor/core/budget.py"
_LEDGER_SUITE = "tests/supervisor/core/test_budget.py tests/supervisor/core/test_budget_model.py"
_PROFILES = "supervisor/core/profiles.py"
_PROFILES_SUITE = "tests/supervisor/core/test_profiles.py"
_PRICES = "supervisor/core/prices.py"
_PRICES_SUITE = "tests/supervisor/core/test_prices.py"
_ACCOUNTS = "supervisor/accounts.py"
_ACCOUNTS_SUITE = "tests/supervisor/test_accounts.py"
_KEYS, _KEYS_SUITE = "supervisor/core/idempotency.py", "tests/supervisor/core/test_idempotency.py"
_EFFECTS, _EFFECTS_SUITE = "supervisor/effects.py", "tests/supervisor/test_effects.py"
_CALL_ROWS, _CALL_ROWS_SUITE = "supervisor/journal/rows.py", "tests/supervisor/journal/test_effect_rows.py"
_ASKED, _ASKED_SUITE = "supervisor/core/approvals.py", "tests/supervisor/core/test_approvals.py"
_FROZEN, _FROZEN_SUITE = "supervisor/core/checkpoints.py", "tests/supervisor/core/test_checkpoints.py"
_POLICY, _POLICY_SUITE = "supervisor/core/policy.py", "tests/supervisor/core/test_policy.py"
_APPROVALS, _APPROVALS_SUITE = "supervisor/approvals.py", "tests/supervisor/test_approvals.py"
_APPROVAL_ROWS = "supervisor/journal/approval_rows.py"
_APPROVAL_ROWS_SUITE = "tests/supervisor/journal/test_approval_rows.py"
_RUN_APPROVALS, _RUN_APPROVALS_SUITE = "supervisor/run_approvals.py", "tests/supervisor/test_run_approvals.py"
_DETECTORS = "supervisor/core/detectors.py"
_DETECTORS_SUITE = "tests/supervisor/core/test_detectors.py tests/supervisor/core/test_detectors_of_runs.py"
_JOURNAL = "supervisor/journal/journal.py"
_LIVES_SUITE = "tests/supervisor/core/test_stateful.py"

_TURN = "supervisor/core/turn.py"
_TURN_SUITE = " ".join(f"tests/supervisor/core/test_turn{part}.py" for part in ("", "_models", "_whole"))
_SAID, _SAID_SUITE = "supervisor/core/conversation.py", "tests/supervisor/core/test_conversation.py"
_AGENT, _AGENT_SUITE = "supervisor/agent.py", "tests/supervisor/test_agent.py"
_HOSTING, _HOSTING_SUITE = "supervisor/hosting.py", "tests/supervisor/test_hosting.py"
_ROUNDS, _RUN_DESK_SUITE = "supervisor/rounds.py", "tests/supervisor/test_run_desk.py"

MUTANTS = (
    *of_models.MUTANTS,
    Mutant(
        "what is to be written together is written one by one",
        _JOURNAL,
        "        self._joining = entries\n",
        "",
        f"tests/supervisor/journal/test_journal.py {_LIVES_SUITE}",
    ),
    Mutant(
        "a question is told before its run waits on the disk",
        _APPROVALS,
        "        if approval.checkpoint.run is not None:\n            self.runs.asked(approval)\n",
        "",
        _LIVES_SUITE,
    ),
    Mutant(
        "a stop that is not on the disk does not say so",
        "supervisor/runs.py",
        "    return stop if durable else msgspec.structs.replace(stop, durable=False)",
        "    return stop",
        "tests/supervisor/test_runs.py",
    ),
    Mutant(
        "checks that could not be run are held against a run",
        _RUN,
        "        self.refusals += given.ran",
        "        self.refusals += 1",
        _RUN_SUITE,
    ),
    Mutant(
        "a check behind a person's is left out",
        _RUN,
        "            return (Check(self._passed),) if self._passed < self.checks else self._complete(given.now_ns)\n",
        "            return self._complete(given.now_ns)\n",
        _RUN_SUITE,
    ),
    Mutant(
        "a question about the end that is lost passes for a yes",
        _RUN_APPROVALS,
        "            if run.machine.confirming is None or _is_confirmed(asked, waited_for):\n",
        "            if True:\n",
        _RUN_APPROVALS_SUITE,
    ),
    Mutant(
        "a field needs no evidence",
        _COMPLETION,
        "        elif len(known) < check.evidence:\n",
        "        elif False:\n",
        _COMPLETION_SUITE,
    ),
    Mutant(
        "evidence that nobody has counts",
        _COMPLETION,
        "        known = {one for one in field.evidence if one in evidence}\n",
        "        known = set(field.evidence)\n",
        _COMPLETION_SUITE,
    ),
    Mutant(
        "a planner may write",
        _PLAN,
        'if role == "executor" or tool.contract.read_only]',
        "if True]",
        _PLAN_SUITE,
    ),
    Mutant(
        "an executor lays down another plan",
        _PLAN,
        "    (State.EXECUTING, Planned): _M._planned_already,\n",
        "    (State.EXECUTING, Planned): _M._plan,\n",
        _PLAN_SUITE,
    ),
    Mutant(
        "an approval is good for more than one call",
        _ASKED,
        "    (State.CONSUMED, Approve): _M._answer,\n",
        "    (State.CONSUMED, Approve): _M._approve,\n",
        _ASKED_SUITE,
    ),
    Mutant(
        "a person may say yes when the time is over",
        _ASKED,
        "    def _approve(self, given: Approve) -> Effects:\n        if given.now_ms >= self.expires_at_ms:\n",
        "    def _approve(self, given: Approve) -> Effects:\n        if False:\n",
        _ASKED_SUITE,
    ),
    Mutant(
        "what was cancelled while it was written begins all the same",
        _ASKED,
        "        self._cancelled = True\n",
        "        self._cancelled = False\n",
        _ASKED_SUITE,
    ),
    Mutant(
        "an approval carries over to another contract of the tool",
        _FROZEN,
        "    if present.contract != checkpoint.contract:\n",
        "    if False:\n",
        _FROZEN_SUITE,
    ),
    Mutant(
        "a rule that has come to deny is not heard",
        _FROZEN,
        "        if ruling.action is Action.DENY:\n",
        "        if False:\n",
        _FROZEN_SUITE,
    ),
    Mutant(
        "what is not declared asks nobody",
        _FROZEN,
        "contract.approval or Approval(undeclared)",
        "contract.approval or Approval.NEVER",
        _FROZEN_SUITE,
    ),
    Mutant(
        "the mildest rule holds",
        _POLICY,
        "rule = max(matching,",
        "rule = min(matching,",
        _POLICY_SUITE,
    ),
    Mutant(
        "the rules are asked again behind a person's back",
        "supervisor/questions.py",
        "        changed = not edited and frozen.policy_version != version\n",
        "        changed = True\n",
        _APPROVALS_SUITE,
    ),
    Mutant(
        "an approved call begins before the disk has it",
        _APPROVALS,
        "        self._journal.append(changes, then, keep=False)\n",
        "        self._journal.append(changes)\n        then(True)\n",
        _APPROVALS_SUITE,
    ),
    Mutant(
        "a run that ends leaves its questions to be approved",
        _APPROVALS,
        "        for approval in list(self.book.of_run(uid, run)):\n",
        "        for approval in []:\n",
        _APPROVALS_SUITE,
    ),
    Mutant(
        "a yes given under other rules still holds for later calls",
        "supervisor/approval_book.py",
        "_covers(one, subject) and one.checkpoint.policy_version == policy_version",
        "_covers(one, subject)",
        _APPROVALS_SUITE,
    ),
    Mutant(
        "a checkpoint that was changed on the disk is taken for whole",
        _APPROVAL_ROWS,
        'return bool(told["checkpoint_sha256"] == digest(packed))',
        "return True",
        _APPROVAL_ROWS_SUITE,
    ),
    Mutant(
        "a run does not wait again for what else it asked",
        _RUN_APPROVALS,
        "        if run.approvals:\n            self._wait(",
        "        if False:\n            self._wait(",
        _RUN_APPROVALS_SUITE,
    ),
    Mutant(
        "a question that expires lets its run go on",
        _RUN_APPROVALS,
        "        return RunReason.APPROVAL_EXPIRED\n",
        "        return None\n",
        _RUN_APPROVALS_SUITE,
    ),
    Mutant(
        "a stop does not wait for the calls in flight",
        _RUN,
        "        if not self.in_flight:\n            return self._conclude(given.now_ns)\n        checking",
        "        if True:\n            return self._conclude(given.now_ns)\n        checking",
        _RUN_SUITE,
    ),
    Mutant(
        "a later stop takes the place of the first",
        _RUN,
        "    def _stop_twice(self, given: StopAsked) -> Effects:\n",
        "    def _stop_twice(self, given: StopAsked) -> Effects:\n        self._stop = given\n",
        _RUN_SUITE,
    ),
    Mutant(
        "a run is suspended beside its calls",
        _RUN,
        "return _STAY if self.in_flight else self._suspend(given.now_ns)",
        "return self._suspend(given.now_ns)",
        _RUN_SUITE,
    ),
    Mutant(
        "a resumed run gets its whole time again",
        _RUN,
        "self.deadline_ns = now_ns + self._remaining_ns",
        "self.deadline_ns = now_ns + self.deadline_ns",
        _RUN_SUITE,
    ),
    Mutant(
        "a finish is done without its checks",
        _RUN,
        "        if self.checks:\n",
        "        if False:\n",
        _RUN_SUITE,
    ),
    Mutant(
        "a finish may be refused for ever",
        _RUN,
        "if self.refusals <= self.most_refusals:",
        "if True:",
        _RUN_SUITE,
    ),
    Mutant(
        "a wrap-up outlives the deadline",
        _RUN,
        "self._until_ns = min(now_ns + (self.wrap_up_ns or self.deadline_ns), self.deadline_ns)",
        "self._until_ns = now_ns + (self.wrap_up_ns or self.deadline_ns)",
        _RUN_SUITE,
    ),
    Mutant(
        "a wait is begun that ends at the deadline",
        _RETRY,
        "GiveUp(Why.NO_TIME_LEFT) if until_ns > latest_ns else",
        "GiveUp(Why.NO_TIME_LEFT) if until_ns > deadline_ns else",
        _RETRY_SUITE,
    ),
    Mutant(
        "a write that may have happened is tried again",
        _RETRY,
        "return contract.read_only or contract.idempotent or delivery is Delivery.NOT_DELIVERED",
        "return True",
        _RETRY_SUITE,
    ),
    Mutant(
        "whatever a tool raises is tried again",
        _RETRY,
        "if status is Status.ERROR and error_class == ErrorClass.TRANSIENT_TOOL:",
        "if status is Status.ERROR:",
        _RETRY_SUITE,
    ),
    Mutant(
        "a call that needs too much memory is tried as often as any",
        _RETRY,
        'if cause == "memory_limit" and before',
        "if False and before",
        _RETRY_SUITE,
    ),
    Mutant(
        "a cancel is lost while a call dies of something else",
        _CALL,
        "if cause is None or alive or self._final:",
        "if cause is None or alive:",
        _CALL_SUITE,
    ),
    Mutant(
        "what an earlier attempt may have done is forgotten",
        _CALL,
        "settle.delivery = max(self._before.delivery, settle.delivery, key=_WORST.index)",
        "pass",
        _CALL_SUITE,
    ),
    Mutant(
        "a call that waits for its next attempt cannot be cancelled",
        _CALL,
        "(State.BACKOFF, EndAsked): _M._withdraw",
        "(State.BACKOFF, EndAsked): _M._stay",
        _CALL_SUITE,
    ),
    Mutant(
        "a provider's words decide whether it is asked again",
        "supervisor/core/provider_failures.py",
        "    if class_of(failure) is not ErrorClass.TRANSIENT_PROVIDER:",
        '    if "429" not in failure.message and class_of(failure) is not ErrorClass.TRANSIENT_PROVIDER:',
        "tests/supervisor/core/test_provider_failures.py",
    ),
    Mutant(
        "an old pin stays beside the new ones",
        _CONTEXT,
        'if message.role == "system" and not message.pinned]',
        'if message.role == "system"]',
        _CONTEXT_SUITE,
    ),
    Mutant(
        "a trim parts a call from its result",
        _CONTEXT,
        "            if message.answers in home:\n",
        "            if message.answers in home and len(home) % 2:\n",
        _CONTEXT_SUITE,
    ),
    Mutant(
        "a limit of N grants one more",
        _LEDGER,
        "if used + reserved + held + asked > limit:",
        "if used + reserved + held + asked > limit + 1:",
        _LEDGER_SUITE,
    ),
    Mutant(
        "what is reserved counts towards no limit",
        _LEDGER,
        "if used + reserved + held + asked > limit:",
        "if used + held + asked > limit:",
        _LEDGER_SUITE,
    ),
    Mutant(
        "only the node that is asked grants",
        _LEDGER,
        "    for account in path:\n        refused = account.refusal(amounts)",
        "    for account in path[:1]:\n        refused = account.refusal(amounts)",
        _LEDGER_SUITE,
    ),
    Mutant(
        "a reservation is settled as often as one likes",
        _LEDGER,
        "        if not reservation._open:\n            return None\n",
        "",
        _LEDGER_SUITE,
    ),
    Mutant(
        "a reservation is released after it was settled",
        _LEDGER,
        "        if not reservation.open:\n            return False\n",
        "",
        _LEDGER_SUITE,
    ),
    Mutant(
        "what a model does not report costs nothing",
        _LEDGER,
        "used = reservation.amounts.copy()",
        "used = {}",
        _LEDGER_SUITE,
    ),
    Mutant(
        "an overshoot is forgotten",
        _LEDGER,
        "            _replace(used, actual)",
        "            _replace(used, {k: min(n, actual.get(k, n)) for k, n in used.items()})",
        _LEDGER_SUITE,
    ),
    Mutant(
        "what is held back can be used by anybody",
        _LEDGER,
        "held = self.held.get(dimension, 0) if asked else 0",
        "held = 0",
        _LEDGER_SUITE,
    ),
    Mutant(
        "a clock that steps back gives a budget again",
        _LEDGER,
        "if number > account.number:",
        "if number != account.number:",
        _LEDGER_SUITE,
    ),
    Mutant(
        "a suspended run forgets what it had reserved",
        _LEDGER,
        "for name, n in announced.items() if n and name not in _NEVER_SAID",
        "for name, n in announced.items() if False",
        _LEDGER_SUITE,
    ),
    Mutant(
        "a tenant's limit is told as the run's own",
        _LEDGER,
        "if refused.node.level in (Level.TENANT, Level.USER):",
        "if False:",
        _LEDGER_SUITE,
    ),
    Mutant(
        "a run may ask for more than its profile has",
        _PROFILES,
        "        if looser(limit, limits.get(name)):\n",
        "        if False:\n",
        _PROFILES_SUITE,
    ),
    Mutant(
        "a tenant may loosen a profile",
        _PROFILES,
        '        if looser(limits.get(name), limit):\n            limits[name], sources[name] = limit, f"tenant',
        '        if limit is not None:\n            limits[name], sources[name] = limit, f"tenant',
        _PROFILES_SUITE,
    ),
    Mutant(
        "a model without a price is free under a limit of costs",
        _PRICES,
        "if price is None and ledger.limited(node, Dimension.COST_MICROS):",
        "if False:",
        _PRICES_SUITE,
    ),
    Mutant(
        "costs are rounded down",
        _PRICES,
        "return -(-parts // PER_TOKENS)",
        "return parts // PER_TOKENS",
        _PRICES_SUITE,
    ),
    Mutant(
        "a lost run is charged again for what was told already",
        _ACCOUNTS,
        "more = run_rows.total(charges, seq)",
        "more = run_rows.total(charges)",
        _ACCOUNTS_SUITE,
    ),
    Mutant(
        "a second delivery runs again",
        _KEYS,
        "(Earlier.TOLD, Said.SAME): Verdict.REPLAY",
        "(Earlier.TOLD, Said.SAME): Verdict.RUN",
        _KEYS_SUITE,
    ),
    Mutant(
        "something else under a known key runs",
        _KEYS,
        "(Earlier.TOLD, Said.OTHER): Verdict.CONFLICT",
        "(Earlier.TOLD, Said.OTHER): Verdict.RUN",
        _KEYS_SUITE,
    ),
    Mutant(
        "what may have been done is sent again",
        _KEYS,
        "return asked or result.delivery is Delivery.NOT_DELIVERED",
        "return asked or result.delivery is not Delivery.SUCCEEDED",
        _KEYS_SUITE,
    ),
    Mutant(
        "runs share their clients' keys",
        _KEYS,
        '_joined(str(uid), run or "", key)',
        '_joined(str(uid), "", key)',
        _KEYS_SUITE,
    ),
    Mutant(
        "two decisions have one key downstream",
        _KEYS,
        "_joined(tenant, run, str(step), str(index), tool)",
        "_joined(tenant, run, tool)",
        _KEYS_SUITE,
    ),
    Mutant(
        "an open effect goes when it is old",
        _CALL_ROWS,
        "AND NOT {STILL_OPEN} AND NOT {OPEN_EFFECT}",
        "AND NOT {STILL_OPEN}",
        _CALL_ROWS_SUITE,
    ),
    Mutant(
        "an open effect goes with its result",
        _CALL_ROWS,
        "AND place IS NULL AND NOT {OPEN_EFFECT}",
        "AND place IS NULL",
        _CALL_ROWS_SUITE,
    ),
    Mutant(
        "anybody closes anybody's effect",
        _EFFECTS,
        "if effect is None or not _may_see(asker, effect) or",
        "if effect is None or",
        _EFFECTS_SUITE,
    ),
    Mutant(
        "an effect is closed before the disk has it",
        _EFFECTS,
        "        self._closing.add(ask.call)\n",
        "        then(True)\n        self._closing.add(ask.call)\n",
        _EFFECTS_SUITE,
    ),
    Mutant(
        "a run does again what it may have done",
        "supervisor/doubts.py",
        "        raise Refusal(Reason.RECONCILE_REQUIRED, _NOT_AGAIN.format(effect.call), Status.WAITING_FOR_APPROVAL)",
        "        return []",
        "tests/supervisor/test_doubts.py",
    ),
    Mutant(
        "a tool that fails to answer says that it was not done",
        "supervisor/core/reconcile.py",
        'return Finding("unknown", f"{tool} was asked and gave no answer',
        'return Finding("not_done", f"{tool} was asked and gave no answer',
        "tests/supervisor/core/test_reconcile.py",
    ),
    Mutant(
        "a secret that JSON escapes stays in events",
        "supervisor/core/redaction.py",
        "for value, name in self._plain for form in _forms(value)]",
        "for value, name in self._plain for form in (value,)]",
        "tests/supervisor/core/test_redaction.py",
    ),
    Mutant(
        "a result is told before the disk has it",
        "supervisor/settlement.py",
        "kept, functools.partial(self._tell, call, result, kept), charge)\n",
        "kept, None, charge)\n            self._tell(call, result, kept, True)\n",
        _LIVES_SUITE,
    ),
    Mutant(
        "a frame leaves before its claim is on the disk",
        "supervisor/calls.py",
        "self._intents.claim(call, self._placement.grant)",
        "self._placement.grant(call)",
        _LIVES_SUITE,
    ),
    Mutant(
        "a claim counts as nothing after a crash",
        "supervisor/journal/recovery.py",
        "delivered = state != rows.PLANNED",
        "delivered = state not in (rows.PLANNED, rows.CLAIMED)",
        _LIVES_SUITE,
    ),
    Mutant(
        "a new life does not know the delivery keys of the last",
        "supervisor/submissions.py",
        "            self.keys.recall(key.place, key.said, key.call)\n",
        "            pass\n",
        _LIVES_SUITE,
    ),
    Mutant(
        "what a lost run has used is forgotten",
        "supervisor/run_recovery.py",
        "    spent = runs.accounts.spent_by_lost_run(spec.uid, spec.session, charges)\n",
        "    spent = ()\n",
        _LIVES_SUITE,
    ),
    Mutant(
        "a suspended run comes back with its whole budget",
        "supervisor/run_recovery.py",
        'above.node, kept["ledger"]',
        'above.node, {**kept["ledger"], "used": {}}',
        _LIVES_SUITE,
    ),
    Mutant(
        "an approved call begins before that is written",
        _APPROVALS,
        "        self._journal.append(changes, then, keep=False)\n",
        "        self._journal.append(changes)\n        then(True)\n",
        _LIVES_SUITE,
    ),
    Mutant(
        "an account has what is set aside for an approval before the log has it",
        _LEDGER,
        "n - account.aside.get(name, 0) for name, n",
        "n for name, n",
        _LEDGER_SUITE,
    ),
    Mutant(
        "an approved call takes nothing of its run's budget",
        "supervisor/judgement.py",
        "        stake = self._bound(run, _ask(run, call.judged, call.call_fp)",
        "        self._ledger.release(reserved)\n        stake = self._bound(run, _ask(run, call.judged, call.call_fp)",
        _LIVES_SUITE,
    ),
    Mutant(
        "a run ends before the call is told that ended it",
        "supervisor/submissions.py",
        "            call = self._answered(wish)\n",
        "            self._judgement.comes_to_nothing(run)\n"
        "            call = self._answered(wish)\n"
        "            self._judgement.begins(run)\n",
        _RUN_DESK_SUITE,
    ),
    Mutant(
        "what a call of a run may change is claimed before the run's log has the call",
        "supervisor/calls.py",
        "        if call.stake is not None and (detached or not call.judged.contract.read_only):",
        "        if call.stake is not None and detached and call.judged.contract.read_only:",
        _RUN_DESK_SUITE,
    ),
    Mutant(
        "what follows a failure counts as news",
        _DETECTORS,
        "if outcome.ok and attempt.outcome is not None:",
        "if attempt.outcome is not None:",
        _DETECTORS_SUITE,
    ),
    Mutant(
        "a set that observes acts",
        _DETECTORS,
        "        if self.settings.observe:\n",
        "        if False:\n",
        _DETECTORS_SUITE,
    ),
    Mutant(
        "the words of every failure are news",
        _DETECTORS,
        "if outcome.feedback and not outcome.ok and outcome",
        "if not outcome.ok and outcome",
        _DETECTORS_SUITE,
    ),
    Mutant(
        "a tool that judges itself is not believed",
        _DETECTORS,
        "    if attempt.self_judged:\n        return f",
        "    if False:\n        return f",
        _DETECTORS_SUITE,
    ),
    Mutant(
        "a block never ends a run",
        _DETECTORS,
        'or (level == "block" and self.settings.block_settles)',
        "or False",
        "tests/supervisor/core/test_detector_sets.py",
    ),
    Mutant(
        "refused calls count for nothing",
        _DETECTORS,
        'self._refused["unknown_tool"] = self._refused["inv',
        '_ = self._refused["inv',
        _DETECTORS_SUITE,
    ),
    Mutant(
        "wordings of writing tools are compared",
        _DETECTORS,
        "if ask.text and ask.read_only and ask.refresh is",
        "if ask.text and ask.refresh is",
        _DETECTORS_SUITE,
    ),
    Mutant(
        "a turn that was cut for its length is done",
        _TURN,
        'if given.stop == "length":',
        'if given.stop == "never":',
        _TURN_SUITE,
    ),
    Mutant(
        "calls whose arguments are cut are made",
        _TURN,
        "if is_cut(call.arguments)), None)",
        "if False), None)",
        _TURN_SUITE,
    ),
    Mutant(
        "a failure that passes is tried again for ever",
        _TURN,
        "        self._retries += 1\n",
        "",
        _TURN_SUITE,
    ),
    Mutant(
        "another attempt is a round of its own",
        _TURN,
        "self.terms.max_out, self._retries == 0)",
        "self.terms.max_out, True)",
        _TURN_SUITE,
    ),
    Mutant(
        "a turn that failed is spent though it never began",
        _TURN,
        "given.usage or (Usage(0, 0) if costs_nothing(given.failure) else None)",
        "given.usage",
        _TURN_SUITE,
    ),
    Mutant(
        "a last word may have tools",
        _TURN,
        '[*messages, Message("user", WRAP_UP)], ()',
        '[*messages, Message("user", WRAP_UP)], tools',
        _TURN_SUITE,
    ),
    Mutant(
        "calls of a last word are made",
        _TURN,
        (
            "            self.conversation.decided(text, (), self.round)\n"
            "            self.state = State.CHECKING\n"
            "            return (settle, words.AskFinish(_last_word(text, given.calls), plain=True))\n"
        ),
        "            pass\n",
        _TURN_SUITE,
    ),
    Mutant(
        "all calls of a turn have one key",
        _TURN,
        'f"{self.decision}.{number}"',
        'f"{self.decision}"',
        _TURN_SUITE,
    ),
    Mutant(
        "finish beside other calls is one of the daemon's",
        _TURN,
        "return _NOT_ALONE.format(call.name) if self.own.is_own(call) else self.own.barred(call)",
        "return self.own.barred(call)",
        _TURN_SUITE,
    ),
    Mutant(
        "nothing is kept before a call",
        _TURN,
        "return (self._keep(), words.Act(tuple(declined), self._proposed))",
        "return (words.Act(tuple(declined), self._proposed),)",
        _TURN_SUITE,
    ),
    Mutant(
        "a call that waited is forgotten when the run goes on",
        _TURN,
        "        self._proposed = tuple(waiting)\n        if waiting:",
        "        self._proposed = ()\n        if waiting:",
        _TURN_SUITE,
    ),
    Mutant(
        "a person's answer is lost",
        _TURN,
        'said = f"[a person answers] {given.answer}\\n{more}".rstrip()',
        'said = f"[a person answers]\\n{more}".rstrip()',
        _TURN_SUITE,
    ),
    Mutant(
        "a machine that has settled goes on",
        _TURN,
        "        if self.state is State.SETTLED:\n            return _STAY\n",
        "",
        _TURN_SUITE,
    ),
    Mutant(
        "a refused finish goes unsaid",
        _TURN,
        "            self._texts[call.id] = text\n",
        '            self._texts[call.id] = ""\n',
        _TURN_SUITE,
    ),
    Mutant(
        "what a model is told is without its number",
        _TURN,
        'self._texts[proposed.call.id] = f"{line}\\n{observation(result)}{beside}"',
        "self._texts[proposed.call.id] = observation(result)",
        _TURN_SUITE,
    ),
    Mutant(
        "half a character goes on as it came",
        _SAID,
        'return text if text.isascii() else text.encode("utf-8", "replace").decode()',
        "return text",
        _SAID_SUITE,
    ),
    Mutant(
        "a request may be without a result",
        _SAID,
        "if call.id not in answered:",
        "if False:",
        _SAID_SUITE,
    ),
    Mutant(
        "two calls of a conversation may have one id",
        _SAID,
        "while not unique or unique in self._ids:",
        "while not unique:",
        _SAID_SUITE,
    ),
    Mutant(
        "no step is ever folded",
        _SAID,
        "if len(self._lines) <= FOLD_AFTER:",
        "if True:",
        _SAID_SUITE,
    ),
    Mutant(
        "steps of an earlier run are steps of this one",
        _SAID,
        "msgspec.structs.replace(_sayable(message), step=None)",
        "_sayable(message)",
        _SAID_SUITE,
    ),
    Mutant(
        "a model may think for ever",
        _AGENT,
        "nursery.cancel_scope.deadline = loop_time(effect.until_ns + _LATER_NS)",
        "nursery.cancel_scope.deadline = loop_time(effect.until_ns + 10**15)",
        _AGENT_SUITE,
    ),
    Mutant(
        "a model that is asked outlives its run",
        _AGENT,
        "            nursery.start_soon(self._cut_when_stopped, nursery.cancel_scope)\n",
        "",
        _AGENT_SUITE,
    ),
    Mutant(
        "a stream without its stop counts",
        _AGENT,
        "        kind = FailureKind.EMPTY_STREAM if draft.empty else FailureKind.CUT_STREAM\n",
        (
            '        return words.Decided("".join(draft.text), tuple(draft.calls), "end", None, now_ns())\n'
            "        kind = FailureKind.EMPTY_STREAM if draft.empty else FailureKind.CUT_STREAM\n"
        ),
        _AGENT_SUITE,
    ),
    Mutant(
        "calls of a turn are made one after the other",
        _AGENT,
        (
            "        sent = [self._line.send(self._submit(proposed)) for proposed in effect.proposed]\n"
            "        answers = [await self._line.answer(asked) for asked in sent]\n"
        ),
        "        answers = [await self._ask(self._submit(proposed)) for proposed in effect.proposed]\n",
        _AGENT_SUITE,
    ),
    Mutant(
        "a call does not say under which key it is made",
        _AGENT,
        "key=proposed.key, decision",
        "decision",
        _AGENT_SUITE,
    ),
    Mutant(
        "a model may give its budget back",
        _AGENT,
        "max(0, min(amount, MOST_AMOUNT)) for",
        "min(amount, MOST_AMOUNT) for",
        _AGENT_SUITE,
    ),
    Mutant(
        "an agent that breaks leaves its run to itself",
        _HOSTING,
        "            self._runs.stop(run, RunStatus.INTERNAL_ERROR, RunReason.SUPERVISOR_BUG, text, ends_calls=True)\n",
        "",
        _HOSTING_SUITE,
    ),
    Mutant(
        "what was kept in an earlier life is not looked at",
        _HOSTING,
        "        if notes:\n",
        "        if False:\n",
        _HOSTING_SUITE,
    ),
    Mutant(
        "a model is not given back",
        _HOSTING,
        "                await gateway.aclose()\n",
        "                pass\n",
        _HOSTING_SUITE,
    ),
    Mutant(
        "retries of models cost nothing",
        _ROUNDS,
        "self._ledger.charge(run.node, _RETRY)",
        "self._ledger.charge(run.node, {})",
        _RUN_DESK_SUITE,
    ),
    Mutant(
        "decisions of two lives have one name",
        "supervisor/run_recovery.py",
        'kept.get("reservations", 0)',
        "0",
        _RUN_DESK_SUITE,
    ),
    Mutant(
        "a last word may ask a person",
        _ROUNDS,
        '        _refuse(too_long("the question", question, MOST_TEXT))\n        self._refuse_wrapping(run)\n',
        '        _refuse(too_long("the question", question, MOST_TEXT))\n',
        _RUN_DESK_SUITE,
    ),
)
