"""The typed errors of the wire. The type says whose fault it is; the message says what is allowed.

``LocalProtocolError``: this side tried to say something that is not its turn: a bug of ours, never sent.
``RemoteProtocolError``: the peer said it: that peer's connection ends, nobody else's.
"""

from __future__ import annotations


class ProtocolError(Exception):
    """Something on a link was not what the link allows."""


class LocalProtocolError(ProtocolError):
    """Our side broke the rules of a link."""


class RemoteProtocolError(ProtocolError):
    """The other side broke the rules of a link, or sent bytes that mean nothing."""


class InvalidArguments(ValueError):  # noqa: N818  # named after the wire word `invalid_arguments` that it becomes
    """A caller's arguments cannot be accepted; the text says what is wrong and what is allowed."""


class QuantityError(ValueError):
    """A duration or a size as typed by a person cannot be read; the text says what is allowed."""
