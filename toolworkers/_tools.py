"""From a function's signature to a tool: its contract, its arguments' schema, a strict decoder, and the call itself.

Runs nothing on its own and registers nothing: a decorator leaves the function as it was and hangs a `Tool` on it, so
importing a module of tools has no effect until a registry asks for it.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable
from typing import Any, Literal, TypeVar, overload

import msgspec

from protocol._contract_fields import declared_contract
from protocol._contracts import Contract, ToolDescription
from protocol._errors import InvalidArguments
from protocol._outcomes import ErrorClass
from toolworkers._context import Context

Function = TypeVar("Function", bound=Callable[..., Any])
MARK = "__deadlined_tool__"
"""The attribute of a decorated function that holds its `Tool`."""
NAME_FORM = "1 to 64 letters, digits, '_' or '-'"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PLAIN_KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_UNREADABLE = (msgspec.MsgspecError, RecursionError, OverflowError, UnicodeError)


class ToolError(Exception):
    """A failure a tool wants told as it is: a sentence for the model, a stable ``code``, and whose turn it is.

    ``class_``: a word of ``protocol.ErrorClass``; ``argument`` when other arguments would work, ``policy`` when it is
    not allowed, ``transient_tool`` when the same call may work later, else ``tool``.
    """

    def __init__(self, message: str, code: str = "raised", class_: str = "tool") -> None:
        super().__init__(message)
        self.message, self.code, self.class_ = message, code, ErrorClass(class_)


class Tool(msgspec.Struct, frozen=True):
    """One tool: how it is called, what it promises, and the function behind it."""

    name: str
    description: str
    contract: Contract
    schema: dict[str, Any]
    arguments: type[msgspec.Struct]
    function: Callable[..., Any]
    context_parameter: str | None = None
    origin: str = ""

    def decode(self, text: str | bytes) -> dict[str, Any]:
        """Arguments out of the text of one JSON object, strictly. Raises InvalidArguments."""
        try:
            decoded = msgspec.json.decode(text, type=self.arguments)
        except _UNREADABLE as error:
            raise InvalidArguments(f"{self.name}: {error}") from error
        return {name: getattr(decoded, name) for name in self.arguments.__struct_fields__}

    def call(self, arguments: dict[str, Any], context: Context) -> Any:
        """Run the function in this process: the value of a Python tool, the CommandPlan of a command."""
        if self.context_parameter is None:
            return self.function(**arguments)
        return self.function(**arguments, **{self.context_parameter: context})

    def describe(self) -> ToolDescription:
        """What a worker's Hello says of this tool."""
        return ToolDescription(self.name, self.description, self.contract, self.schema)


@overload
def tool(function: Function, /) -> Function: ...
@overload
def tool(
    *, name: str | None = None, description: str | None = None, **contract: Any
) -> Callable[[Function], Function]: ...
def tool(function: Any = None, /, *, name: str | None = None, description: str | None = None, **contract: Any) -> Any:
    """Declare a Python tool, run by a worker's interpreter: ``@tool`` or ``@tool(read_only=True, timeout_ms=5_000)``.

    The schema comes from the signature; a parameter annotated ``Context`` is injected and no argument. ``contract``:
    the fields of ``protocol.Contract``. The function itself stays as it is. Raises TypeError (a field or parameter that
    cannot be) or ValueError (a value that is not allowed) at once.
    """
    return _decorated("python", function, name, description, contract)


@overload
def command(function: Function, /) -> Function: ...
@overload
def command(
    *, name: str | None = None, description: str | None = None, **contract: Any
) -> Callable[[Function], Function]: ...
def command(
    function: Any = None, /, *, name: str | None = None, description: str | None = None, **contract: Any
) -> Any:
    """Declare a command tool: as `tool`, but the function returns a `CommandPlan` and a child of the worker runs it."""
    return _decorated("command", function, name, description, contract)


def _decorated(
    kind: Literal["python", "command"], function: Any, name: str | None, description: str | None, fields: dict[str, Any]
) -> Any:
    contract = declared_contract(fields, Contract(kind=kind))

    def decorate(function: Function) -> Function:
        setattr(function, MARK, tool_from_function(function, contract, name, description))
        return function

    return decorate if function is None else decorate(function)


def tool_from_function(
    function: Callable[..., Any], contract: Contract, name: str | None = None, description: str | None = None
) -> Tool:
    """The tool a function makes. Raises TypeError for a signature that JSON arguments cannot fill."""
    name = function.__name__ if name is None else name
    refuse_bad_name(name)
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise TypeError(
            f"tool {name!r} is a coroutine or generator; allowed: a plain function (it has a process of its own)"
        )
    fields, context_parameter = _read_signature(name, function)
    arguments = arguments_struct(name, fields)
    return Tool(
        name=name,
        description=_first_paragraph(function) if description is None else description,
        contract=contract,
        schema=arguments_schema(name, arguments),
        arguments=arguments,
        function=function,
        context_parameter=context_parameter,
        origin=function.__module__,
    )


def refuse_bad_name(name: str) -> None:
    """Raise ValueError for a name that no model interface would take."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name!r} is no name for a tool; allowed: {NAME_FORM}")


def arguments_struct(name: str, fields: list[tuple[Any, ...]]) -> type[msgspec.Struct]:
    """A struct type of ``(name, type)`` and ``(name, type, default)`` that takes its own fields and no others."""
    try:
        return msgspec.defstruct(name, fields, forbid_unknown_fields=True, kw_only=True)
    except (TypeError, ValueError) as error:
        raise TypeError(f"tool {name!r}: its parameters cannot be arguments: {error}") from error


def _read_signature(name: str, function: Callable[..., Any]) -> tuple[list[tuple[Any, ...]], str | None]:
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise TypeError(f"tool {name!r}: an annotation cannot be resolved: {error}") from error
    fields: list[tuple[Any, ...]] = []
    context_parameter = None
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in _PLAIN_KINDS or parameter.name not in hints:
            raise TypeError(
                f"tool {name!r}: parameter {parameter} cannot be an argument; allowed: name: type [= default]"
            )
        if hints[parameter.name] is Context:
            context_parameter = parameter.name
        else:
            default = () if parameter.default is parameter.empty else (parameter.default,)
            fields.append((parameter.name, hints[parameter.name], *default))
    return fields, context_parameter


def arguments_schema(name: str, arguments: type[msgspec.Struct]) -> dict[str, Any]:
    """JSON schema of one object, types it refers to under ``$defs``."""
    try:
        _, definitions = msgspec.json.schema_components((arguments,), ref_template="#/$defs/{name}")
    except TypeError as error:
        raise TypeError(f"tool {name!r}: a parameter has no JSON form: {error}") from error
    schema = definitions.pop(arguments.__name__)
    return {**schema, "$defs": definitions} if definitions else schema


def _first_paragraph(function: Callable[..., Any]) -> str:
    return " ".join((inspect.getdoc(function) or "").partition("\n\n")[0].split())
