"""Delivery keys of clients."""

from __future__ import annotations

from protocol._client_messages import Submit
from supervisor.keys import Keys


def never(_call: str) -> bool:
    """No earlier call came to nothing."""
    return False


def test_a_second_delivery_names_the_first_call():
    keys = Keys()
    submit = Submit(1, "t", key="k")
    assert keys.claim(submit, 0, "c_1", "{}", never).earlier is None
    again = keys.claim(submit, 0, "c_2", "{}", never)
    assert (again.earlier, again.same) == ("c_1", True)


def test_the_same_key_with_other_arguments_is_another_matter():
    keys = Keys()
    keys.claim(Submit(1, "t", key="k"), 0, "c_1", "{}", never)
    assert keys.claim(Submit(1, "t", key="k"), 0, "c_2", '{"a": 1}', never).same is False
    assert keys.claim(Submit(1, "u", key="k"), 0, "c_3", "{}", never).same is False


def test_keys_of_other_users_and_runs_are_other_keys():
    keys = Keys()
    first = keys.claim(Submit(1, "t", key="k"), 0, "c_1", "{}", never)
    other_uid = keys.claim(Submit(1, "t", key="k"), 1, "c_2", "{}", never)
    other_run = keys.claim(Submit(1, "t", key="k", run="r"), 0, "c_3", "{}", never)
    assert (other_uid.earlier, other_run.earlier) == (None, None)
    assert len({first.key, other_uid.key, other_run.key}) == 3


def test_the_downstream_key_is_stable_and_short():
    key = Keys().claim(Submit(1, "t", key="k" * 500), 0, "c_1", "{}", never).key
    assert key == Keys().claim(Submit(9, "t", key="k" * 500), 0, "c_9", "{}", never).key
    assert len(key) <= 64
    assert key.isalnum()


def test_a_call_that_came_to_nothing_gives_its_key_to_the_next_delivery():
    keys, submit = Keys(), Submit(1, "t", key="k")
    keys.claim(submit, 0, "c_1", "{}", never)
    assert keys.claim(submit, 0, "c_2", "{}", lambda call: call == "c_1").earlier is None
    assert keys.claim(submit, 0, "c_3", "{}", never).earlier == "c_2"


def test_a_key_as_long_as_a_frame_is_not_kept_as_such():
    keys = Keys()
    keys.claim(Submit(1, "t", key="k" * 1_000_000, run="r" * 1_000_000), 0, "c_1", "{}", never)
    assert len(repr(vars(keys))) < 1_000
