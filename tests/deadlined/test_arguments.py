import json

import pytest

from deadlined._arguments import arguments_text, submit_message


def test_arguments_travel_as_the_json_they_are():
    assert json.loads(arguments_text({"a": [1, 2.5, "é\n", None, True, {"b": ()}]})) == {
        "a": [1, 2.5, "é\n", None, True, {"b": []}]
    }


def test_no_arguments_are_an_empty_object():
    assert arguments_text(None) == "{}"


def test_large_integers_keep_every_digit():
    assert arguments_text({"n": 2**53 + 1}) == '{"n":9007199254740993}'


def test_text_is_left_exactly_as_it_is():
    assert arguments_text('{"a" : 1, "a": 2}') == '{"a" : 1, "a": 2}'


def _circle():
    box = {}
    box["box"] = box
    return box


def _deep():
    box = []
    for _ in range(100_000):
        box = [box]
    return {"box": box}


@pytest.mark.parametrize(
    "arguments",
    [
        {"x": float("nan")},
        {"x": float("inf")},
        {"x": "\ud800"},
        {"\udfff": 1},
        {1: "x"},
        {"x": {None: 1}},
        {"x": [({True: 1},)]},
        {"x": b"bytes"},
        {"x": {1, 2}},
        {"x": object()},
        _circle(),
        _deep(),
        '{"x": "\ud800"}',
    ],
    ids=[
        "nan",
        "inf",
        "surrogate",
        "surrogate key",
        "int key",
        "None key",
        "deep bool key",
        "bytes",
        "set",
        "object",
        "circle",
        "depth",
        "surrogate in text",
    ],
)
def test_what_json_cannot_carry_is_a_value_error(arguments):
    with pytest.raises(ValueError, match="arguments"):
        arguments_text(arguments)


def test_a_relative_cwd_is_the_clients(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert submit_message("t", {}, {"cwd": "sub"}).cwd == str(tmp_path / "sub")
    assert submit_message("t", {}, {"cwd": tmp_path}).cwd == str(tmp_path)
    assert submit_message("t", {}, {}).cwd is None


def test_a_deadline_that_can_be_said_is_left_for_the_daemon_to_judge():
    for deadline in (0, -1, float("nan"), 1e300, "5"):
        assert submit_message("t", {}, {"deadline_ms": deadline}).deadline_ms is deadline


def test_an_option_that_there_is_not_is_refused_and_not_passed_over():
    with pytest.raises(TypeError, match=r"no option 'deadline'; there are cwd, deadline_ms"):
        submit_message("t", {}, {"deadline": 2_000})
