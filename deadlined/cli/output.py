"""``deadlined output``: the raw bytes that a call wrote."""

from __future__ import annotations

import base64
import codecs
import sys
from collections.abc import Callable

import click

from deadlined.cli._options import client_options
from deadlined.cli._report import print_json
from deadlined.cli._screen import ScreenText
from deadlined.cli._session import complete_calls, open_client
from protocol._client_messages import Pending
from protocol._outcomes import CallResult


@click.command("output")
@click.argument("call", shell_complete=complete_calls)
@click.option("--follow", is_flag=True, help="Go on until the call has settled.")
@click.option("--raw", is_flag=True, help="Every byte as it was written, even to a terminal.")
@click.option("--stream", type=click.Choice(["stdout", "stderr"]), help="One of two streams that were kept apart.")
@client_options
def output_command(
    call: str, follow: bool, raw: bool, stream: str | None, socket_path: str | None, as_json: bool
) -> None:
    """Print what CALL has written. A terminal gets it without control characters unless ``--raw``.

    With ``--follow`` it looks ten times a second; Ctrl-C ends the looking, not the call.
    With ``--json``, one object a line: {"call", "offset", "data" in base64}.

    \b
    Example:
      deadlined output c_1a2b3c --follow
    """
    with open_client(socket_path) as client:
        put = _json_writer(call) if as_json else _raw_writer() if raw or not sys.stdout.isatty() else _text_writer()
        handle, empty = client.handle(call), True
        for data in handle.output(stream=stream or "both", follow=follow):
            put(data)
            empty = False
        put(b"")
        if empty and stream is None and _split(handle.peek()):
            raise click.UsageError("this call kept its streams apart; add --stream stdout or --stream stderr")


def _split(state: CallResult | Pending) -> bool:
    return isinstance(state, CallResult) and bool(state.output.streams) and "both" not in state.output.streams


def _json_writer(call: str) -> Callable[[bytes], None]:
    offset = 0

    def put(data: bytes) -> None:
        nonlocal offset
        if data:
            print_json({"call": call, "offset": offset, "data": base64.b64encode(data).decode()})
            offset += len(data)

    return put


def _raw_writer() -> Callable[[bytes], None]:
    def put(data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    return put


def _text_writer() -> Callable[[bytes], None]:
    """A character, or an escape sequence, may be cut in two by the end of a chunk; an empty chunk ends the text."""
    decoder, shown = codecs.getincrementaldecoder("utf-8")("replace"), ScreenText()

    def put(data: bytes) -> None:
        sys.stdout.write(shown(decoder.decode(data, final=not data), last=not data))
        sys.stdout.flush()

    return put
