"""From a function to a tool."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

import msgspec
import pytest

import deadlined
import toolworkers
from protocol import Contract, InvalidArguments
from toolworkers._context import Context
from toolworkers._plans import CommandPlan
from toolworkers._tools import MARK, Tool, ToolError, command, tool


class _Spot(msgspec.Struct):
    line: int


def _tool(function: Callable[..., Any]) -> Tool:
    found: Tool = getattr(function, MARK)
    return found


@tool(read_only=True, timeout_ms=5_000)
def word_count(path: str, ctx: Context, spots: list[_Spot] | None = None, *, how: Literal["a", "b"] = "a") -> str:
    """Count the words
    of a file.

    Not a part of the description.
    """
    return f"{path} {how} {len(spots or [])} {ctx.idempotency_key}"


def test_a_decorated_function_stays_the_function_it_was() -> None:
    ctx = Context(deadline_ns=0, workdir="/w", idempotency_key="k")
    assert word_count("p", ctx, how="b") == "p b 0 k"


def test_name_description_and_contract_come_from_the_declaration() -> None:
    made = _tool(word_count)
    assert (made.name, made.description) == ("word_count", "Count the words of a file.")
    assert made.contract == Contract(kind="python", read_only=True, timeout_ms=5_000)


def test_the_schema_is_one_closed_object_without_the_context() -> None:
    schema = _tool(word_count).schema
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["path"]
    assert set(schema["properties"]) == {"path", "spots", "how"}
    assert schema["$defs"]["_Spot"]["required"] == ["line"]


def test_arguments_are_decoded_into_their_types_and_the_context_is_injected() -> None:
    made = _tool(word_count)
    arguments = made.decode('{"path": "p", "spots": [{"line": 3}]}')
    assert arguments == {"path": "p", "spots": [_Spot(3)], "how": "a"}
    assert made.call(arguments, Context(deadline_ns=0, workdir="/w", idempotency_key="k")) == "p a 1 k"


@pytest.mark.parametrize(
    "text",
    ['{"path": 1}', "{}", '{"path": "a", "x": 1}', "[]", "null", "", "{", '{"path": "a"} {}', '{"path": "\\ud800"}',
     '{"path": "a", "how": "c"}', '{"path": null}', '{"path": ' + "[" * 100_000],
)  # fmt: skip
def test_arguments_that_do_not_fit_are_invalid_and_never_another_exception(text: str) -> None:
    with pytest.raises(InvalidArguments, match="word_count"):
        _tool(word_count).decode(text)


def test_integers_are_not_taken_from_floats_booleans_or_text() -> None:
    @tool
    def take(n: int) -> int:
        return n

    for text in ('{"n": 1.0}', '{"n": true}', '{"n": "1"}', '{"n": 1e0}'):
        with pytest.raises(InvalidArguments):
            _tool(take).decode(text)


def test_a_command_is_a_tool_of_that_kind_whose_value_is_a_plan() -> None:
    @command(name="list-it", home="user")
    def list_it(where: Annotated[str, msgspec.Meta(description="a directory")]) -> CommandPlan:
        return CommandPlan(["ls", "--", where])

    made = _tool(list_it)
    assert (made.name, made.contract.kind, made.contract.home) == ("list-it", "command", "user")
    assert made.schema["properties"]["where"]["description"] == "a directory"
    assert made.call(made.decode('{"where": "x"}'), Context(deadline_ns=0, workdir="/w")).argv == ["ls", "--", "x"]


def test_a_tool_without_parameters_takes_the_empty_object_only() -> None:
    @tool
    def nothing() -> None:
        pass

    assert _tool(nothing).decode("{}") == {}
    with pytest.raises(InvalidArguments):
        _tool(nothing).decode('{"a": 1}')


def test_an_undocumented_function_has_an_empty_description() -> None:
    @tool
    def quiet() -> None:
        pass

    assert _tool(quiet).description == ""
    assert _tool(tool(description="said here")(lambda: None) if False else quiet).description == ""


def _untyped(a) -> None:  # type: ignore[no-untyped-def]  # that is the case
    pass


def _rest(*a: int) -> None:
    pass


def _rest_by_name(**a: int) -> None:
    pass


def _by_position(a: int, /) -> None:
    pass


def _unknown_type(a: Nowhere) -> None:  # type: ignore[name-defined]  # noqa: F821  # that is the case
    pass


def _no_json_form(a: Callable[[], int]) -> None:
    pass


def _full_default(a: list[int] = [1]) -> None:  # noqa: B006  # that is the case
    pass


async def _coroutine(a: int) -> None:
    pass


def _generator(a: int) -> Iterator[int]:
    yield a


@pytest.mark.parametrize(
    "function",
    [_untyped, _rest, _rest_by_name, _by_position, _unknown_type, _no_json_form, _full_default, _coroutine, _generator],
)
def test_a_signature_that_json_cannot_fill_is_refused_when_it_is_declared(function: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=f"tool '{function.__name__}'"):
        tool(function)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "é", "x" * 65, "a.b", "a\n"])
def test_a_name_no_model_interface_would_take_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no name for a tool; allowed"):
        tool(name=name)(lambda: None)


def test_an_unknown_contract_field_is_refused_before_any_function_is_seen() -> None:
    with pytest.raises(TypeError, match="timeout_ms"):
        tool(timeout=5)
    with pytest.raises(TypeError, match="kind"):
        command(kind="python")


@pytest.mark.parametrize("timeout", [0, -1, 3_600_001, float("nan"), float("inf"), "5s", True])
def test_a_timeout_that_cannot_be_one_is_refused(timeout: object) -> None:
    with pytest.raises(ValueError, match="timeout_ms"):
        tool(timeout_ms=timeout)


def test_a_tool_error_carries_message_code_and_class() -> None:
    error = ToolError("no such row", code="not_found", class_="argument")
    assert (str(error), error.message, error.code, str(error.class_)) == ("no such row",) * 2 + (
        "not_found",
        "argument",
    )
    assert (ToolError("x").code, str(ToolError("x").class_)) == ("raised", "tool")


def test_a_tool_error_of_no_known_class_is_the_tools_own_mistake() -> None:
    with pytest.raises(ValueError, match="nonsense"):
        ToolError("x", class_="nonsense")


def test_the_public_faces_give_the_same_names() -> None:
    for name in toolworkers.__all__:
        assert getattr(toolworkers, name) is getattr(deadlined, name)


def test_importing_the_decorator_loads_no_loop_and_no_command_line() -> None:
    heavy = ("trio", "anyio", "asyncio", "click", "rich", "psutil", "subprocess")
    program = f"import sys; from deadlined import tool, Context; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
