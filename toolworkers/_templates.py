"""Command templates of the configuration: an argv of literals and typed ``{placeholders}``, never a shell line.

A value can fill an element, never choose one: the program is literal, an option's name is literal, and a value that
would begin an element with ``-`` is refused unless the template has said ``--`` before it (trust.md, command tools).

* ``{x}``        the value, as (part of) one element: ``--opt={x}`` stays one element
* ``{x...}``     alone in its element: the values of a list, one element each
* ``{{ }}``      literal braces
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import msgspec

from protocol._contract_fields import declared_contract
from protocol._contracts import Contract
from protocol._errors import InvalidArguments
from toolworkers._plans import CommandPlan, refuse_unpassable
from toolworkers._tools import Tool, arguments_schema, arguments_struct, refuse_bad_name

_TYPES: dict[str, Any] = {"str": str, "int": int, "float": float, "bool": bool, "[str]": list[str], "[int]": list[int]}
_NUMBERS = ("int", "float")
_TABLE_FIELDS = ("kind", "argv", "arguments", "description")
_PIECE = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)(\.\.\.)?\}|[{}]|[^{}]+")


class Slot(NamedTuple):
    """A placeholder: which argument, and whether its list becomes one element a value."""

    name: str
    spread: bool


class Argument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One declared argument, short (``dir = "str"``) or as a table. Without a default it is required."""

    type: Literal["str", "int", "float", "bool", "[str]", "[int]"]
    default: Any = msgspec.UNSET
    description: str | None = None
    choices: list[str | int] | None = None
    minimum: int | float | None = None
    maximum: int | float | None = None


Element: TypeAlias = tuple[str | Slot, ...]
"""One element of a template's argv: literal text and slots, in order."""
_ANY_PATHS = Argument(type="[str]", default=[])
"""What an undeclared ``{x...}`` is."""


def template_tool(name: str, table: Mapping[str, Any], search_path: str | None = None) -> Tool:
    """The command tool of a configuration table; its program is pinned to what ``search_path`` (a PATH) finds now.

    Raises TypeError or ValueError that say what is allowed.
    """
    refuse_bad_name(name)
    if table.get("kind", "command") != "command":
        raise ValueError(f"kind = {table['kind']!r} has no argv template; allowed: 'command'")
    template = [parse_element(text) for text in _argv_texts(table)]
    declared = _declared_arguments(table, template)
    _refuse_unsafe(template, declared)
    fields = {field: value for field, value in table.items() if field not in _TABLE_FIELDS}
    arguments = arguments_struct(name, [_field(argument, known) for argument, known in declared.items()])
    return Tool(
        name=name,
        description=str(table.get("description", f"Runs {' '.join(_argv_texts(table))}")),
        contract=declared_contract(fields, Contract(kind="command")),
        schema=arguments_schema(name, arguments),
        arguments=arguments,
        function=_planner(_pinned(template, search_path)),
        origin="the configuration",
    )


def parse_element(text: str) -> Element:
    """Literals and slots of one element. Raises ValueError for a brace that opens or closes nothing."""
    pieces: list[str | Slot] = []
    for match in _PIECE.finditer(text):
        if match[1]:
            pieces.append(Slot(match[1], bool(match[2])))
            continue
        literal = {"{{": "{", "}}": "}"}.get(match[0], match[0])
        if match[0] in ("{", "}"):
            raise ValueError(f"{text!r} has a brace that is no placeholder; allowed: {{name}}, {{name...}}, {{{{, }}}}")
        if pieces and isinstance(pieces[-1], str):
            pieces[-1] += literal
        else:
            pieces.append(literal)
    return tuple(pieces)


def render(template: list[Element], arguments: Mapping[str, Any]) -> list[str]:
    """argv for these arguments. Raises InvalidArguments for a value that would become an option."""
    argv: list[str] = []
    for element, behind_separator in _placed(template):
        for text in _texts(element, arguments):
            if _starts_with_value(element) and text.startswith("-") and not behind_separator:
                raise InvalidArguments(
                    f"{text[:80]!r} would be read as an option of {template[0][0]};"
                    " allowed: a value that does not begin with '-'"
                )
            argv.append(text)
    return argv


def _planner(template: list[Element]) -> Callable[..., CommandPlan]:
    def plan(**arguments: Any) -> CommandPlan:
        return CommandPlan(render(template, arguments))

    return plan


def _argv_texts(table: Mapping[str, Any]) -> list[str]:
    argv = table.get("argv")
    if not isinstance(argv, (list, tuple)) or not argv or not all(isinstance(text, str) for text in argv):
        raise ValueError(f"argv = {argv!r} is not allowed; allowed: a list of texts, the program first")
    for position, text in enumerate(argv):
        refuse_unpassable(f"argv[{position}]", text)
    return list(argv)


def _declared_arguments(table: Mapping[str, Any], template: list[Element]) -> dict[str, Argument]:
    """Every argument of the template, in the order of the table, then undeclared spreads. Each is declared and used."""
    listed = table.get("arguments", {})
    if not isinstance(listed, Mapping):
        raise TypeError(f"arguments = {listed!r} is not allowed; allowed: a table of name = type")
    declared = {name: _argument(name, said) for name, said in listed.items()}
    slots = [piece for element in template for piece in element if isinstance(piece, Slot)]
    for slot in slots:
        if slot.name not in declared and not slot.spread:
            raise ValueError(
                f"argv uses {{{slot.name}}}, which arguments does not declare: {slot.name} = {'|'.join(_TYPES)}"
            )
        declared.setdefault(slot.name, _ANY_PATHS)
        if slot.spread != declared[slot.name].type.startswith("["):
            raise ValueError(
                f"argv: a list stands as {{{slot.name}...}} alone in its element, anything else as {{{slot.name}}}"
            )
    unused = sorted(declared.keys() - {slot.name for slot in slots})
    if unused:
        raise ValueError(f"arguments declares {', '.join(unused)}, which argv does not use")
    return declared


def _argument(name: str, said: Any) -> Argument:
    try:
        argument = msgspec.convert({"type": said} if isinstance(said, str) else said, Argument)
        _refuse_odd_settings(name, argument)
        for choice in argument.choices or ():
            msgspec.convert(choice, _TYPES[argument.type])
        if argument.default is not msgspec.UNSET:
            msgspec.convert(argument.default, _json_type(argument))
    except msgspec.ValidationError as error:
        raise ValueError(
            f"arguments.{name} = {said!r} is not allowed ({error});"
            f" allowed: {' | '.join(_TYPES)}, or a table of {', '.join(Argument.__struct_fields__)}"
        ) from error
    return argument


def _refuse_odd_settings(name: str, argument: Argument) -> None:
    bounded = argument.minimum is not None or argument.maximum is not None
    if bounded and (argument.type not in _NUMBERS or argument.choices):
        raise ValueError(f"arguments.{name}: minimum and maximum are for int and float without choices")
    if argument.choices is not None and (argument.type not in ("str", "int") or not argument.choices):
        raise ValueError(f"arguments.{name}: choices are for str and int, at least one")


def _json_type(argument: Argument) -> Any:
    """The argument's type for msgspec, with its bounds and its line for people."""
    kind: Any = Literal[tuple(argument.choices)] if argument.choices else _TYPES[argument.type]
    bounds: dict[str, Any] = {"ge": argument.minimum, "le": argument.maximum, "description": argument.description}
    return Annotated[kind, msgspec.Meta(**{key: value for key, value in bounds.items() if value is not None})]


def _field(name: str, argument: Argument) -> tuple[Any, ...]:
    if argument.default is msgspec.UNSET:
        return (name, _json_type(argument))
    if isinstance(argument.default, list):
        return (name, _json_type(argument), msgspec.field(default_factory=argument.default.copy))
    return (name, _json_type(argument), argument.default)


def _refuse_unsafe(template: list[Element], declared: Mapping[str, Argument]) -> None:
    program = template[0]
    if len(program) != 1 or not isinstance(program[0], str) or program[0].startswith("-"):
        raise ValueError("argv[0] must be the literal name of a program: no value ever chooses what is run")
    if "/" in program[0] and not os.path.isabs(program[0]):
        raise ValueError(
            f"argv[0] = {program[0]!r} would depend on the directory; allowed: a name on PATH or an absolute path"
        )
    for element, behind_separator in _placed(template):
        if any(isinstance(piece, Slot) and piece.spread for piece in element) and len(element) > 1:
            raise ValueError("argv: {name...} must stand alone in its element")
        if not behind_separator and _value_names_option(element, declared):
            raise ValueError(
                f"argv: a value would choose an option in {_say(element)!r}; allowed: --option={{value}},"
                " -o{number}, or option and value as two elements"
            )


def _value_names_option(element: Element, declared: Mapping[str, Argument]) -> bool:
    """Whether a slot stands where an option's name is still being spelled: ``-{x}``, ``--a{x}``, ``-v{text}``."""
    if len(element) < 2 or not isinstance(element[0], str) or not element[0].startswith("-") or "=" in element[0]:
        return False
    glued_number = element[0][:2] != "--" and len(element[0]) > 1
    return not (
        glued_number and all(declared[piece.name].type in _NUMBERS for piece in element if isinstance(piece, Slot))
    )


def _placed(template: list[Element]) -> Iterator[tuple[Element, bool]]:
    """Each element with whether a literal ``--`` stands before it."""
    behind_separator = False
    for element in template:
        yield element, behind_separator
        behind_separator = behind_separator or element == ("--",)


def _starts_with_value(element: Element) -> bool:
    return bool(element) and isinstance(element[0], Slot)


def _texts(element: Element, arguments: Mapping[str, Any]) -> list[str]:
    if element and isinstance(element[0], Slot) and element[0].spread:
        return [_text(value) for value in arguments[element[0].name]]
    return ["".join(piece if isinstance(piece, str) else _text(arguments[piece.name]) for piece in element)]


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _say(element: Element) -> str:
    return "".join(piece if isinstance(piece, str) else f"{{{piece.name}}}" for piece in element)


def _pinned(template: list[Element], search_path: str | None) -> list[Element]:
    """The template with its program's absolute path, so that a later PATH cannot swap it; a name not found stays."""
    name = str(template[0][0])
    for directory in (search_path or "").split(os.pathsep):
        candidate = os.path.join(directory, name)
        if os.path.isabs(directory) and os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return [(candidate,), *template[1:]]
    return template
