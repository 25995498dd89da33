"""What the log has of a call's arguments. The rest of the judgement is shown with runs (test_runs, test_run_desk)."""

from protocol._contracts import Contract
from supervisor.core.intake import Judged
from supervisor.judgement import _shown


def judged(arguments, **roles):
    return Judged("pay", Contract(roles=roles), "builtin", arguments, 0, 1_000, 1_000)


def test_arguments_are_shown_by_how_they_begin():
    assert _shown(judged('{"to": "me"}', to="path")) == '{"to": "me"}'
    shown = _shown(judged('{"to": "' + "x" * 10_000))
    assert len(shown) == 201
    assert shown.startswith('{"to": "xxx')


def test_nothing_is_shown_of_arguments_with_a_secret_among_them():
    assert _shown(judged('{"to": "me", "pin": "1234"}', pin="secret")) is None
