"""The one gateway with a connection: sends what a dialect makes and hands its events on. Owns what becomes of errors of
the connection, and that the key is in no message. No policy: it makes one attempt, for as long as its caller waits.

* A deadline is the caller's cancel scope. What is cancelled closes its connection at once.
* Errors are told apart by their types and by the system's numbers below them, never by their text.
* The library is loaded, and certificates are read, in a thread at the first use: half a second of a daemon's loop.
"""

from __future__ import annotations

import errno
import functools
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import msgspec
import trio

from supervisor.clock import now_ns, wall_ms
from supervisor.core.model_events import ModelError, ModelEvent, Request, Stop
from supervisor.core.provider_failures import FailureKind, ProviderFailure
from supervisor.core.redaction import Redaction
from supervisor.environment import MODEL_KEY
from supervisor.models import failures, well_formed
from supervisor.models.server_sent import EventSizeError, EventStream
from supervisor.models.speech import Dialect

if TYPE_CHECKING:
    import httpcore2
    import httpx2

MOST_ANSWER_BYTES = 64 << 20
_MOST_ERROR_BYTES = 64 << 10
_ERROR_BODY_S = 2
"""The status is known already: its words are not worth more."""
_CONNECT_S = 10
_LAST_WORDS_S = 0.1
_IDLE_S = 30
"""How long a connection waits for the next turn: tools work in between. Servers wait for a minute and longer."""
_OK = 200
_STREAM_OF_EVENTS = "text/event-stream"
_BY_NUMBER = {errno.ECONNRESET: FailureKind.RESET, errno.EPIPE: FailureKind.BROKEN_PIPE}


class HttpGateway:
    """A model behind an address. ``base``: without a slash at the end. ``silence_ms``: how long it may say nothing;
    None: as long as the caller waits."""

    def __init__(
        self, model: str, dialect: Dialect, base: str, key: str | None = None, silence_ms: int | None = None
    ) -> None:
        self.model = model
        self._dialect, self._url, self._key, self._silence_ms = dialect, base + dialect.path, key, silence_ms
        self._redaction = Redaction({MODEL_KEY: key} if key else {})
        self._client: httpx2.AsyncClient | None = None
        self._opening = trio.Lock()

    async def stream(self, request: Request) -> AsyncGenerator[ModelEvent, None]:
        """As `Gateway.stream`."""
        client = await self._opened()
        request = well_formed.sendable(request)
        body = well_formed.body(self._dialect.body(request, self.model))
        with self._told_as_failures(FailureKind.RESET):
            steps = {"trace": _Opening().hear}
            asked = client.build_request("POST", self._url, content=body, headers=self._headers(), extensions=steps)
            response = await client.send(asked, stream=True)
        async with aclosing(response):
            with self._told_as_failures(FailureKind.CUT_STREAM):
                await self._refuse_other_than_events(response)
                async with aclosing(self._events(request, response)) as events:
                    async for event in events:
                        yield event

    async def aclose(self) -> None:
        """As `Gateway.aclose`."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _opened(self) -> httpx2.AsyncClient:
        async with self._opening:
            if self._client is None:
                self._client = await trio.to_thread.run_sync(self._open, abandon_on_cancel=True)
            return self._client

    def _open(self) -> httpx2.AsyncClient:
        import httpx2

        silence_s = None if self._silence_ms is None else self._silence_ms / 1000
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=_IDLE_S)
        timeout = httpx2.Timeout(silence_s, connect=_CONNECT_S)
        try:
            return httpx2.AsyncClient(verify=_certificates(), timeout=timeout, limits=limits)
        except (ImportError, OSError, ValueError, httpx2.InvalidURL) as error:
            text = f"the certificates or the proxy of the environment cannot be used: {_said(error)}"
            raise self._without_key(ProviderFailure(FailureKind.OTHER, None, text)) from error

    def _headers(self) -> dict[str, str]:
        kinds = {"content-type": "application/json", "accept": _STREAM_OF_EVENTS, "user-agent": "deadlined"}
        return kinds | self._dialect.headers(self._key)

    async def _events(self, request: Request, response: httpx2.Response) -> AsyncGenerator[ModelEvent, None]:
        stream, reading, size = EventStream(), self._dialect.read(request), 0
        async with aclosing(response.aiter_bytes()) as pieces:
            async for piece in pieces:
                size += len(piece)
                if size > MOST_ANSWER_BYTES:
                    raise failures.broken(FailureKind.OTHER, f"the answer is larger than {MOST_ANSWER_BYTES} bytes")
                for said in stream.feed(piece):
                    for event in reading.take(said):
                        if isinstance(event, Stop):
                            await _read_to_end(pieces)
                            yield event
                            return
                        yield event
        for event in reading.close():
            yield event

    async def _refuse_other_than_events(self, response: httpx2.Response) -> None:
        """Raises ModelError for whatever is no stream of events."""
        kind = response.headers.get("content-type", "")
        if response.status_code == _OK and kind.partition(";")[0].strip().lower() == _STREAM_OF_EVENTS:
            return
        if response.status_code == _OK:
            raise failures.broken(FailureKind.OTHER, f"the answer is {kind or 'of no kind'}, not a stream of events")
        not_before_ns = failures.retry_after_ns(response.headers.get("retry-after"), now_ns(), wall_ms())
        raise ModelError(failures.of_answer(response.status_code, await _words_of(response), not_before_ns))

    @contextmanager
    def _told_as_failures(self, lost: FailureKind) -> Iterator[None]:
        """Every exception that can be foreseen as ModelError, without the key. ``lost``: what it is when the other side
        goes away: nothing was said before the answer began, and only a part after that."""
        import httpx2

        try:
            yield
        except ModelError as error:
            raise self._without_key(error.failure) from error.__cause__
        except EventSizeError as error:
            raise self._without_key(ProviderFailure(FailureKind.OTHER, None, str(error))) from error
        except (httpx2.HTTPError, httpx2.InvalidURL, ssl.SSLError, OSError) as error:
            raise self._without_key(ProviderFailure(kind_of(error, lost), None, _said(error))) from error

    def _without_key(self, failure: ProviderFailure) -> ModelError:
        """Taken out before the text is cut: a part of the key would not be found."""
        message = self._redaction.text(failure.message)[: failures.MOST_MESSAGE]
        return ModelError(msgspec.structs.replace(failure, message=message))


class _Opening:
    """Hears how a connection is opened, and closes one whose handshake is cancelled: the library forgets it then, and
    its socket would stay open until garbage is collected."""

    def __init__(self) -> None:
        self._connected: httpcore2.AsyncNetworkStream | None = None

    async def hear(self, step: str, said: Mapping[str, Any]) -> None:
        """A step of the library's, as its ``trace`` extension tells it."""
        if step.endswith(".connect_tcp.complete"):
            self._connected = said["return_value"]
        elif step.endswith(".start_tls.failed") and self._connected is not None:
            await self._connected.aclose()


@functools.cache
def _certificates() -> ssl.SSLContext:
    """Those that the system trusts, read once: it costs a third of a second."""
    import httpx2

    return httpx2.create_ssl_context()


async def _read_to_end(pieces: AsyncIterator[bytes]) -> None:
    """What comes behind the stop of a turn means nothing, but a connection that was read to its end is used again."""
    import httpx2

    with trio.move_on_after(_LAST_WORDS_S), suppress(httpx2.HTTPError):
        async for _ in pieces:
            pass


async def _words_of(response: httpx2.Response) -> str:
    """The beginning of an error's body; what of it came in time."""
    import httpx2

    words = b""
    with trio.move_on_after(_ERROR_BODY_S):
        try:
            async with aclosing(response.aiter_bytes()) as pieces:
                async for piece in pieces:
                    words += piece[: _MOST_ERROR_BYTES - len(words)]
                    if len(words) >= _MOST_ERROR_BYTES:
                        break
        except httpx2.HTTPError:
            pass  # the status is what counts
    return words.decode("utf-8", "replace")


def kind_of(error: BaseException, lost: FailureKind) -> FailureKind:
    """What broke, by the types of an exception and of those below it; ``lost``: the other side went away."""
    import httpx2

    below = list(_causes(error))
    if any(isinstance(one, ssl.SSLCertVerificationError) for one in below):
        return FailureKind.OTHER
    numbers = (_BY_NUMBER.get(one.errno or 0) for one in below if isinstance(one, OSError))
    if (found := next((kind for kind in numbers if kind is not None), None)) is not None:
        return found
    match error:
        case httpx2.PoolTimeout():
            return FailureKind.POOL_EXHAUSTED
        case httpx2.ConnectTimeout():
            return FailureKind.NETWORK  # never reached: it costs nothing
        case httpx2.TimeoutException():
            return FailureKind.TIMEOUT
        case httpx2.RemoteProtocolError() | httpx2.DecodingError():
            return lost
        case httpx2.NetworkError() | httpx2.ProxyError() | OSError():
            return FailureKind.NETWORK
        case _:
            return FailureKind.OTHER


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")
