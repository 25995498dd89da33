"""What a command tool hands to the runner instead of running anything itself: an argv list and its surroundings.

No shell is ever involved. What the kernel could not take anyway (NUL, an element over 128 KiB) is refused here, where
the refusal can still name it, and not at execve.
"""

from __future__ import annotations

import os

import msgspec

from protocol._errors import InvalidArguments

ELEMENT_LIMIT = 128 << 10
"""MAX_ARG_STRLEN of the kernel (execve(2)): bytes of one element of argv or the environment, its NUL included."""


class CommandPlan(msgspec.Struct, frozen=True):
    """A command to run: program and arguments, directory, extra environment, text for stdin.

    ``cwd`` None: where the call runs; a relative one starts there, ``~`` is the command's HOME. ``stdin`` None:
    /dev/null. ``temporary``: files the command reads and the runner unlinks when it has ended. Raises InvalidArguments
    for what execve(2) cannot take.
    """

    argv: list[str]
    cwd: str | None = None
    env: dict[str, str] = {}
    stdin: str | bytes | None = None
    temporary: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0]:
            raise InvalidArguments("argv is empty; allowed: a program and its arguments")
        for position, element in enumerate(self.argv):
            refuse_unpassable(f"argv[{position}]", element)
        for name, value in self.env.items():
            if not name or "=" in name:
                raise InvalidArguments(f"env has a variable named {name!r}; allowed: a name without '='")
            refuse_unpassable(f"env.{name}", f"{name}={value}")
        if self.cwd is not None:
            refuse_unpassable("cwd", self.cwd)


def refuse_unpassable(what: str, text: str) -> None:
    """Raise InvalidArguments for text that cannot be a C string of at most 128 KiB in UTF-8."""
    if not isinstance(text, str):
        raise InvalidArguments(f"{what} is {type(text).__name__}; allowed: text")
    if "\0" in text:
        raise InvalidArguments(f"{what} contains a NUL character; allowed: text without it")
    try:
        size = len(os.fsencode(text))
    except UnicodeEncodeError as error:
        raise InvalidArguments(f"{what} contains a lone surrogate; allowed: text that UTF-8 can express") from error
    if size >= ELEMENT_LIMIT:
        raise InvalidArguments(f"{what} has {size} bytes; allowed: at most {ELEMENT_LIMIT - 1}")
