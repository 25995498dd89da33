"""What becomes of a submit before anything runs."""

from __future__ import annotations

import pytest

from protocol import Contract, Limits, Reason, ToolDescription
from protocol._client_messages import Submit
from protocol._deadlines import CEILING_MS
from supervisor.core.intake import Host, Refusal, judge
from supervisor.core.levels import Ground
from supervisor.core.tools import Tools

NOW = 5_000_000_000
HOST = Host("pidns", "contain", Limits(output_bytes=1_000))
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "additionalProperties": False}


def tools(**contract: object) -> Tools:
    found = Tools()
    found.serve([ToolDescription("t", "", Contract(**contract), SCHEMA)], "bare")  # type: ignore[arg-type]  # test data
    return found


def refusal(submit: Submit, served: Tools | None = None) -> Refusal:
    with pytest.raises(Refusal) as caught:
        judge(submit, served or tools(), HOST, NOW)
    return caught.value


def test_a_call_without_a_deadline_gets_its_contracts():
    judged = judge(Submit(1, "t"), tools(timeout_ms=2_000), HOST, NOW)
    assert (judged.deadline_ms, judged.deadline_ns) == (2_000, NOW + 2_000_000_000)


def test_a_deadline_below_the_ceiling_is_taken_as_asked():
    assert judge(Submit(1, "t", deadline_ms=77), tools(), HOST, NOW).deadline_ms == 77


@pytest.mark.parametrize("deadline", [0, -1, 1.5, float("nan"), float("inf"), "5s", True, 1e300])
def test_a_deadline_that_is_none_is_refused(deadline):
    found = refusal(Submit(1, "t", deadline_ms=deadline))
    assert found.reason is Reason.INVALID_ARGUMENTS
    assert "at least 1" in str(found)


@pytest.mark.parametrize(("deadline", "ceiling"), [(1_001, 1_000), (CEILING_MS + 1, CEILING_MS), (2**64, CEILING_MS)])
def test_a_deadline_over_the_ceiling_is_refused_and_the_ceiling_named(deadline, ceiling):
    served = tools(timeout_ms=500, max_timeout_ms=ceiling)
    found = refusal(Submit(1, "t", deadline_ms=deadline), served)
    assert found.reason is Reason.INVALID_ARGUMENTS
    assert str(ceiling) in str(found)


def test_an_unknown_tool_is_told_what_there_is():
    found = refusal(Submit(1, "nope"))
    assert found.reason is Reason.UNKNOWN_TOOL
    assert "serves t" in str(found)


def test_the_tool_is_judged_before_the_deadline_and_the_deadline_before_the_arguments():
    assert refusal(Submit(1, "nope", "{", deadline_ms=0)).reason is Reason.UNKNOWN_TOOL
    assert "deadline_ms" in str(refusal(Submit(1, "t", "{", deadline_ms=0)))


def test_arguments_that_do_not_fit_are_refused():
    assert "city" in str(refusal(Submit(1, "t", '{"city": 3}')))


def test_arguments_are_forwarded_as_they_came():
    text = '{ "city" : "K\u00f6ln" }'
    assert judge(Submit(1, "t", text), tools(), HOST, NOW).arguments == text


@pytest.mark.parametrize("cwd", ["relative", "", "/a\0b"])
def test_a_cwd_must_be_absolute(cwd):
    assert refusal(Submit(1, "t", cwd=cwd)).reason is Reason.INVALID_ARGUMENTS


def test_demands_fail_closed():
    assert refusal(Submit(1, "t", min_containment="pidns+cgroup")).reason is Reason.CONTAINMENT
    assert refusal(Submit(1, "t"), tools(min_containment="pidns+cgroup")).reason is Reason.CONTAINMENT
    assert refusal(Submit(1, "t", min_isolation="guard")).reason is Reason.CONTAINMENT
    judge(Submit(1, "t", min_containment="subreaper", min_isolation="limits"), tools(), HOST, NOW)


def test_demands_are_judged_by_what_the_tools_own_workers_stand_on():
    host = Host("pidns", "contain", Limits(), {"bare": Ground("subreaper", "limits")})
    for demand in ({"min_containment": "pidns"}, {"min_isolation": "contain"}):
        with pytest.raises(Refusal) as refused:
            judge(Submit(1, "t", **demand), tools(), host, NOW)
        assert refused.value.reason is Reason.CONTAINMENT
    assert judge(Submit(1, "t", min_containment="subreaper", min_isolation="limits"), tools(), host, NOW)


def test_the_output_limit_only_narrows():
    assert judge(Submit(1, "t", max_output_bytes=10), tools(), HOST, NOW).output_limit == 10
    assert judge(Submit(1, "t", max_output_bytes=5_000), tools(), HOST, NOW).output_limit == 1_000
    own = tools(limits=Limits(output_bytes=9_000))
    assert judge(Submit(1, "t"), own, HOST, NOW).output_limit == 9_000


def test_a_resource_is_named_by_the_arguments():
    judged = judge(Submit(1, "t", '{"city": "Bonn"}'), tools(resource="map-{city}"), HOST, NOW)
    assert judged.resource == "map-Bonn"
