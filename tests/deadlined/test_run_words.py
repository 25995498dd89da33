import pytest

from deadlined import RunStopped
from deadlined._conversation import Exchange
from deadlined._run_words import ModelUsage, finished, going_on, has_ended, must_cancel, open_message
from protocol import _client_messages as cm
from protocol._runs import RunReason, RunStatus
from tests.deadlined.conftest import run_view, stop_record

RESERVED = cm.ModelReserved(1, "r_1", 7, 60_000)


def _answered(answer):
    exchange = Exchange(cm.StepRun(id=1, run="r_1"))
    exchange.end(answer)
    return exchange


def test_what_is_not_asked_for_is_the_profiles():
    assert open_message({}, "cancel") == cm.OpenRun(id=0)


def test_a_workspace_is_told_as_an_absolute_path_and_options_as_they_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = {"goal": "g", "profile": "edit", "deadline_ms": 5, "limits": {"steps": 3, "retries": None}}
    more = {"checks": ["true"], "session": "s", "parent": "r_0", "workspace": ".", "on_disconnect": "cancel"}
    assert open_message({**asked, **more}, "keep") == cm.OpenRun(id=0, **asked, **{**more, "workspace": str(tmp_path)})


def test_an_option_of_a_run_that_there_is_not_is_refused_and_not_passed_over():
    with pytest.raises(TypeError, match="no option 'limit'; there are checks"):
        open_message({"limit": {"steps": 3}}, "cancel")


def test_one_check_is_no_list_of_its_letters():
    with pytest.raises(TypeError, match=r"checks=\['pytest -q'\]"):
        open_message({"checks": "pytest -q"}, "cancel")


def test_a_run_that_goes_on_answers_and_one_that_does_not_raises_its_record():
    state = cm.RunState(1, run_view())
    assert going_on(_answered(state), cm.RunState) is state
    with pytest.raises(RunStopped, match=r"budget_exhausted \(step_budget\): no step is left") as caught:
        going_on(_answered(cm.RunSettled(1, stop_record())), cm.RunState)
    assert caught.value.stop == stop_record()


def test_a_request_to_finish_is_answered_by_a_value_either_way():
    refused = cm.FinishRefused(1, "r_1", 1, "pytest: 1 failed")
    assert finished(_answered(refused)) is refused
    assert finished(_answered(cm.RunSettled(1, stop_record()))) == stop_record()


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("failed", [False, True])
def test_only_a_run_that_still_runs_is_cancelled_when_its_block_is_left(keep, failed):
    assert must_cancel(run_view(), keep, failed) is (failed or not keep)
    for status in set(RunStatus) - {RunStatus.RUNNING}:
        assert not must_cancel(run_view(stop_record(status)), keep, failed)


def test_a_suspended_run_has_not_ended():
    assert not has_ended(None)
    assert not has_ended(stop_record(RunStatus.WAITING_FOR_APPROVAL, RunReason.APPROVAL_REQUIRED))
    assert has_ended(stop_record())


def test_a_count_that_was_never_reported_is_absent_and_the_last_report_of_each_counts():
    usage = ModelUsage()
    assert usage.settle_message(RESERVED) == cm.SettleModel(id=0, run="r_1", reservation=7)
    usage.report(700, 1, None)
    usage.report(None, 90, 300)
    usage.report(None, None, None)
    assert usage.settle_message(RESERVED) == cm.SettleModel(0, "r_1", 7, tokens_in=700, tokens_out=90, cached_in=300)
    zero = ModelUsage()
    zero.report(0, 0, 0)
    assert zero.settle_message(RESERVED) == cm.SettleModel(0, "r_1", 7, tokens_in=0, tokens_out=0)
