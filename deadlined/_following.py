"""Reading a call's raw output to its end, without I/O: what to ask next, and what an answer means."""

from __future__ import annotations

from protocol._client_messages import OutputChunk, ReadOutput

POLL_S = 0.1
"""How long to rest when a running call has nothing new."""


class OutputCursor:
    """A place in one stream of one call's raw output."""

    __slots__ = ("_call", "_stream", "ended", "offset")

    def __init__(self, call: str, stream: str = "both", offset: int = 0) -> None:
        self._call, self._stream, self.offset = call, stream, offset
        self.ended = False

    def next_request(self) -> ReadOutput:
        """Ask for what follows the place reached."""
        return ReadOutput(id=0, call=self._call, offset=self.offset, stream=self._stream)

    def take(self, chunk: OutputChunk) -> bytes:
        """The new bytes; none and not ``ended``: the call runs and is silent, ask again after POLL_S."""
        self.offset = chunk.offset + len(chunk.data)
        self.ended = chunk.settled and not chunk.data
        return chunk.data
