from __future__ import annotations

import pytest

from supervisor.core import detector_texts as texts
from supervisor.core.detector_sets import SETS
from tests.supervisor.core.looping import Run, again, failed, ok, polling, reading, worded


@pytest.mark.behaviour("M135", "M014")
def test_a_model_is_told_which_attempt_this_is_what_came_before_that_it_is_useless_and_what_to_do_instead():
    run = Run().play(again(reading("a"), failed(), 2))
    assert run.call(reading("a"), failed()).text == (
        "Attempt 3 of the same call of search: it failed each time (last: c_2), and repeating it is useless."
        " Change the arguments or the strategy, or stop and say what is in the way."
    )
    run = Run(SETS["strict"]).play(again(reading("a"), ok(), 2))
    assert run.call(reading("a"), ok()).text == (
        "Attempt 3 of the same call of search: it gave the same result each time (last: c_2), and repeating it is"
        " useless. Use that result, call something else, or finish with what you know."
    )


@pytest.mark.behaviour("M135")
def test_the_number_of_the_attempt_is_that_of_attempts_and_not_of_what_they_weigh():
    run = Run().play([(reading("a"), failed(killed_at_deadline=True))])
    verdict = run.call(reading("a"), failed())
    assert verdict.text.startswith("Attempt 2 of the same call")
    assert verdict.notices[0].attempt == 2


@pytest.mark.behaviour("M135")
def test_a_block_says_that_nothing_was_executed_and_a_stop_that_the_run_ends():
    run = Run().play(again(reading("a"), ok(), 8))
    assert run.call(reading("a")).text.endswith(" This call was not executed.")
    run.call(reading("a"))
    assert run.call(reading("a")).text.endswith(" The run ends here.")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            texts.poll("warn", "t", 11, "c_9"),
            ("Poll 11 of the same thing", "c_9", "changes nothing", "do something else"),
        ),
        (texts.too_early("t", 600, "c_9"), ("600 ms", "c_9", "do something else", "not executed")),
        (texts.cycle("warn", ["a", "b"], 2), ("last 4 calls", "(a, b)", "2 times", "useless", "another way")),
        (
            texts.same_error("warn", "t", 3, "E", "c_9"),
            ("3 calls of t", "(E)", "c_9", "will fail too", "read the error"),
        ),
        (texts.near_duplicate("t", 2, "c_9"), ("2 calls of t", "c_9", "useless", "really different")),
        (texts.breaker(10, 30), ("10 of the last 30", "one more", "The run ends here.")),
        (texts.refused("unknown_tool", 5), ("last 5 calls", "does not exist", "The run ends here.")),
        (texts.refused("invalid_arguments", 5), ("last 5 calls", "not valid", "The run ends here.")),
        (texts.no_progress(4, "stop"), ("4 steps in a row", "nothing new", "The run ends here.")),
        (texts.no_progress(2, "ask"), ("2 steps in a row", "A person is asked")),
    ],
)
def test_every_sentence_says_what_was_counted_and_what_to_do(text, said):
    for part in said:
        assert part.lower() in text.lower()


def test_texts_are_one_short_line():
    run = Run(observe=True)
    for n in range(40):
        run.call(reading("a"), failed())
        run.call(polling(), ok())
        run.call(worded(f"trio cancel scope {'!' * n}"), ok())
    fired = [
        one for ask in (reading("a"), polling(), worded("scope cancel trio")) for one in run.detectors.before(ask).fired
    ]
    assert len({one.detector for one in fired}) >= 4
    for one in fired:
        assert "\n" not in one.text
        assert len(one.text) < 400
