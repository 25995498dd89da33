"""What a model is told before anything else."""

from __future__ import annotations

import pytest

from protocol._checks import FieldsCheck, FileCheck
from supervisor.core.briefing import briefing, done_when


@pytest.mark.behaviour("M136")
def test_a_model_is_told_when_to_stop() -> None:
    said = " ".join(briefing().split())
    assert "As soon as you know enough, call `finish`" in said
    assert "Do not make a call again that has failed or found nothing, in the same or in other words" in said
    assert "When you cannot do it, finish and say so" in said


def test_what_whoever_set_the_agent_up_says_comes_behind_the_hosts_words() -> None:
    assert briefing("Speak French.").startswith(briefing())
    assert briefing("Speak French.").endswith("\nSpeak French.\n")
    assert briefing(" \n") == briefing()


def test_what_will_be_checked_is_said_before_anybody_is_refused_for_it() -> None:
    said = done_when(["make test", FileCheck("README.md", exists=True), FieldsCheck(("total",))])
    assert said[0] == "the task is finished when this command exits 0: make test"
    assert "README.md" in said[1]
    assert "total" in said[2]
