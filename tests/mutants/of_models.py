"""Weakened builds of the gateways to models."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_HERE, _SUITES = "supervisor/models", "tests/supervisor/models"

MUTANTS = (
    Mutant(
        "the finish reason is believed",
        f"{_HERE}/speech.py",
        '        reason = "tools" if draft.has_calls else "end"\n',
        "",
        f"{_SUITES}/test_speech.py",
    ),
    Mutant(
        "a stream that is done without a reason is a turn",
        f"{_HERE}/chat_completions.py",
        "        if self._word is None:\n            raise cut(self._anything)\n",
        '        self._word = self._word or "stop"\n',
        f"{_SUITES}/test_speech.py",
    ),
    Mutant(
        "a block that never ended is a call",
        f"{_HERE}/anthropic_messages.py",
        "if self._blocks or not self._word:",
        "if not self._word:",
        f"{_SUITES}/test_dialects.py",
    ),
    Mutant(
        "two calls may have one id",
        f"{_HERE}/draft.py",
        "while not given or given in taken:",
        "while not given:",
        f"{_SUITES}/test_draft.py",
    ),
    Mutant(
        "half a pair in arguments is mended",
        f"{_HERE}/well_formed.py",
        '    return _HALF.sub(lambda half: f"\\\\u{ord(half[0]):04x}", paired)',
        "    return text(paired)",
        f"{_SUITES}/test_well_formed.py",
    ),
    Mutant(
        "broken arguments spoil the history",
        f"{_HERE}/well_formed.py",
        '        return json.dumps({"malformed": text(said)}, ensure_ascii=False)\n',
        "        return said\n",
        f"{_SUITES}/test_well_formed.py",
    ),
    Mutant(
        "a spent quota is a short throttle",
        f"{_HERE}/failures.py",
        "    if words & _QUOTA:\n        return FailureKind.QUOTA_SPENT\n",
        "",
        f"{_SUITES}/test_failures.py",
    ),
    Mutant(
        "an answer that failed while it was said costs nothing",
        "supervisor/core/provider_failures.py",
        " and not failure.begun",
        "",
        f"{_SUITES}/test_failures.py",
    ),
    Mutant(
        "a part of the key is left where a message is cut",
        f"{_HERE}/http.py",
        "self._redaction.text(failure.message)[: failures.MOST_MESSAGE]",
        "self._redaction.text(failure.message[: failures.MOST_MESSAGE])",
        f"{_SUITES}/test_http.py",
    ),
    Mutant(
        "nobody is waited for",
        f"{_HERE}/failures.py",
        "        return now_ns + round(min(float(said), _MOST_S) * _NS_PER_S)",
        "        return now_ns",
        f"{_SUITES}/test_failures.py",
    ),
    Mutant(
        "lines end where people's would",
        f"{_HERE}/server_sent.py",
        "first, *others = _LINE_END.split(piece)",
        'first, *others = re.split(rb"\\r\\n|\\n|\\r|\\xe2\\x80\\xa8", piece)',
        f"{_SUITES}/test_server_sent.py",
    ),
    Mutant(
        "the way to the models is lent",
        "supervisor/environment.py",
        "    return not name.startswith(_FOR_MODELS)",
        "    return True",
        "tests/supervisor/test_environment.py",
    ),
)
