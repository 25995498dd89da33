"""One connection over a blocking socket, shared by any number of threads.

Owns the socket and who reads it: of the threads that wait, one reads and hears for all (the others sleep on a
condition), so a client needs no thread of its own. What is said and heard is ``_conversation``'s.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable

from deadlined._conversation import Conversation, Exchange
from deadlined._errors import ConnectionLost, DaemonNotRunning, DaemonSilent
from protocol._client_messages import Request

READ_SIZE = 1 << 16
AGAIN_S = 0.02
"""Between two tries to be let in."""


def connect(path: str, timeout_s: float) -> socket.socket:
    """A connected socket. Raises DaemonNotRunning when nobody accepts at ``path``, DaemonSilent when somebody listens
    there and lets nobody in for so long: as many wait already as may (connect(2), EAGAIN)."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            return _connected(path)
        except BlockingIOError as error:
            if time.monotonic() >= until:
                raise DaemonSilent("connection", timeout_s) from error
        except OSError as error:
            raise DaemonNotRunning(path, error) from error
        time.sleep(AGAIN_S)


def _connected(path: str) -> socket.socket:
    """Without waiting: a connection of the unix domain is there at once or not at all."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        connection.connect(path)
    except BaseException:
        connection.close()
        raise
    connection.setblocking(True)
    return connection


class BlockingLine:
    """A greeted connection to the daemon. Closing it ends every call that was submitted on it and not detached."""

    def __init__(self, connection: socket.socket, client: str, answer_timeout_s: float) -> None:
        self._socket = connection
        self._answer_timeout_s = answer_timeout_s
        self._conversation = Conversation(client)
        self._sending = threading.Lock()
        self._heard = threading.Condition()
        self._reading = False
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)
        try:
            self._greet()
        except BaseException:
            self.close()
            raise

    def ask(self, request: Request) -> Exchange:
        """Send ``request``. Raises ValueError for one that cannot be said, ConnectionLost when the line is dead."""
        with self._sending:
            with self._heard:
                exchange, data = self._conversation.ask(request)
            self._write(data)
        return exchange

    def answered(self, request: Request) -> Exchange:
        """Send a request that the daemon answers at once, and wait for it (bounded)."""
        exchange = self.ask(request)
        if not self.wait_until(lambda: exchange.over, self._answer_timeout_s):
            raise DaemonSilent("answer", self._answer_timeout_s)
        return exchange

    def wait_until(self, so: Callable[[], bool], timeout_s: float | None) -> bool:
        """Hear the daemon until ``so()``, which is judged after each message; False: the time was over first.

        An exception from outside (Ctrl-C) leaves the line usable unless it struck between a read and its reading.
        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        with self._heard:
            while not so():
                if self._conversation.error is not None:
                    raise self._conversation.error
                left_s = None if until is None else until - time.monotonic()
                if left_s is not None and left_s <= 0:
                    return False
                if self._reading:
                    self._heard.wait(left_s)
                else:
                    self._hear_for_all(left_s)
        return True

    def close(self) -> None:
        """Close the socket. Threads that wait get ConnectionLost."""
        with self._heard:
            self._conversation.close(ConnectionLost("this client was closed"))
            with contextlib.suppress(OSError):  # the daemon was faster
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes a thread that polls; close alone would not
            if not self._reading:
                self._socket.close()
            self._heard.notify_all()

    def _greet(self) -> None:
        talk = self._conversation
        self._write(talk.hello())
        if not self.wait_until(lambda: talk.ready, self._answer_timeout_s):
            raise DaemonSilent("greeting", self._answer_timeout_s)

    def _write(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            self._hear_last_words()
            raise self._broken(f"the connection to the daemon broke: {error.strerror or error}") from error
        except BaseException:
            self._broken("interrupted inside a message")
            raise

    def _hear_last_words(self) -> None:
        """A daemon that closes says why first; a writer who meets the closed socket should tell that reason."""
        with self._heard:
            if not self._reading and self._conversation.error is None:
                self._hear_for_all(0.0)

    def _hear_for_all(self, timeout_s: float | None) -> None:
        """Read once, as the one reader. The caller holds the condition; it is let go while there is nothing to read."""
        self._reading = True
        self._heard.release()
        data: bytes | None = None
        taking = False
        try:
            if self._poll.poll(None if timeout_s is None else timeout_s * 1000):
                taking = True
                data = self._read()
                taking = False
        finally:
            self._heard.acquire()
            self._reading = False
            if taking:
                self._conversation.close(ConnectionLost("interrupted while an answer was read"))
            if data is not None:
                self._conversation.receive(data)
            if self._conversation.error is not None:
                self._socket.close()
            self._heard.notify_all()

    def _read(self) -> bytes:
        try:
            return self._socket.recv(READ_SIZE)
        except OSError:
            return b""

    def _broken(self, why: str) -> Exception:
        """End the line for a reason of ours; the reason that came first is the one to raise."""
        with self._heard:
            self._conversation.close(ConnectionLost(why))
        self.close()
        error = self._conversation.error
        assert error is not None
        return error
