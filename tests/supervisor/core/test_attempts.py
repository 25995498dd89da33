from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.attempts import MOST_TALLIES, Attempt, Tallies, Window
from supervisor.core.detector_sets import MOST_WINDOW


def attempt(number: int, call: str = "a", generation: int = 0, **more) -> Attempt:
    return Attempt(number, "t", call, f"c_{number}", 0, generation, 0, **more)


def ended(tallies: Tallies, call: str, situation: str, outcome: str | None, failures: int = 0, **more) -> None:
    generation = tallies.begin(call, situation, 0)
    changed = more.pop("changed", False)
    tallies.end(attempt(1, call, generation, outcome=outcome, **more), failures, changed=changed)


def test_a_tally_is_of_one_call_in_one_situation():
    tallies = Tallies()
    ended(tallies, "a", "a@0", "x")
    ended(tallies, "a", "a@0", "x")
    tally = tallies.find("a", "a@0")
    assert tally is not None
    assert (tally.prior, tally.failed, tally.call_id) == (2, 0, "c_1")
    assert tallies.find("a", "a@1") is None
    assert tallies.find("b", "b@0") is None


def test_what_others_change_is_a_new_situation_and_what_it_changes_itself_is_none():
    tallies = Tallies()
    ended(tallies, "a", "a@0", "x", changed=True)
    assert tallies.find("a", "a@1") is not None
    ended(tallies, "a", "a@1", "x", changed=True)
    ended(tallies, "b", "b@2", "x", changed=True)
    assert tallies.find("a", "a@3") is None


def test_of_every_attempt_in_the_longest_window_something_is_remembered():
    tallies = Tallies()
    for number in range(2 * MOST_TALLIES):
        tallies.begin(f"call {number}", "@0", 0)
    assert MOST_WINDOW <= MOST_TALLIES == len(tallies)
    assert all(f"call {2 * MOST_TALLIES - 1 - ago}" in tallies for ago in range(MOST_WINDOW))
    assert "call 0" not in tallies


def test_an_attempt_has_the_words_of_its_arguments_in_place_of_their_text_once_they_are_asked_for():
    one = attempt(1, text='{"query": "trio cancel scope"}')
    assert (one.words, one.text != "") == (frozenset(), True)
    assert one.take_words() == {"query", "trio", "cancel", "scope"}
    assert (one.take_words(), one.text) == ({"query", "trio", "cancel", "scope"}, "")


def test_an_attempt_of_a_situation_that_is_gone_counts_nowhere():
    tallies = Tallies()
    old = tallies.begin("a", "a@0", 0)
    new = tallies.begin("a", "a@1", 0)
    tallies.end(attempt(1, "a", old, outcome="x"), 1, changed=False)
    tally = tallies.find("a", "a@1")
    assert tally is not None
    assert (tally.in_flight, tally.same, tally.failures, old != new) == (1, 0, 0, True)


def test_the_start_of_the_last_poll_outlives_a_new_situation():
    tallies = Tallies()
    tallies.begin("a", "a@0", 7)
    tallies.blocked("a", "a@1")
    assert tallies.started_ns("a") == 7
    assert tallies.started_ns("b") is None


def test_the_calls_attempted_last_are_remembered():
    tallies = Tallies()
    for n in range(MOST_TALLIES):
        ended(tallies, f"a{n}", "s", "x")
    ended(tallies, "a0", "s", "x")
    ended(tallies, "one more", "s", "x")
    assert len(tallies) == MOST_TALLIES
    assert tallies.find("a1", "s") is None
    tally = tallies.find("a0", "s")
    assert tally is not None
    assert tally.prior == 2


@given(st.lists(st.tuples(st.booleans(), st.sampled_from("abc"), st.sampled_from(["x", "y", None])), max_size=60))
def test_what_a_window_counts_is_what_is_in_it(pushed):
    window, late = Window(6), []
    for number, (counted, call, outcome) in enumerate(pushed):
        window.push(attempt(number, call, counted=counted))
        late.append((number, outcome))
        if number % 3 == 0:  # outcomes come late, some when the attempt has left
            for known, what in late:
                for one in window.attempts:
                    if one.number == known and one.outcome is None:
                        window.learn(one, what)
            late.clear()
    held = list(window.attempts)
    outcomes = [one.outcome for one in held if one.outcome is not None]
    assert len(held) == min(6, len(pushed))
    assert window.counted == sum(one.counted for one in held)
    assert window.alike("t") == len(outcomes) - len(set(outcomes))
    assert window.alike("another") == 0


def test_an_outcome_that_comes_when_its_attempt_has_left_the_window_is_counted_nowhere():
    window = Window(30)
    gone = attempt(0)
    window.push(gone)
    for number in range(1, 31):
        window.push(attempt(number))
    window.learn(gone, "x")
    window.learn(window.attempts[-1], "x")
    assert window.alike("t") == 0
