"""A pooler before PostgreSQL, as PgBouncer in transaction mode: each transaction has any session.

It refuses settings of the session when somebody connects, as PgBouncer does unless it is told to ignore them.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from queue import SimpleQueue

_ENDS = (b"Q", b"S")
"""What a client sends and is answered by 'ready for query': a simple query, and a sync."""


class TransactionPooler:
    """Listens on a port of loopback, and gives transactions to the sessions of a server in turns."""

    def __init__(self, server: str, database: str, *, sessions: int = 2) -> None:
        """`server`: the unix socket."""
        self._sessions: SimpleQueue[socket.socket] = SimpleQueue()
        for _ in range(sessions):
            self._sessions.put(_session(server, database))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.clients = 0
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)
        while not self._sessions.empty():
            self._sessions.get().close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError, EOFError):
            if not _welcomed(client, self.clients):
                return
            self.clients += 1
            while (first := _message(client))[:1] != b"X":
                session = self._sessions.get()
                try:
                    _transaction(client, session, first)
                finally:
                    self._sessions.put(session)


def _welcomed(client: socket.socket, number: int) -> bool:
    """Answer a client that connects; False when it was refused."""
    while True:
        length, code = struct.unpack("!ii", _exactly(client, 8))
        words = _exactly(client, length - 8).split(b"\0")
        if code == 196608:
            break
        client.sendall(b"N")  # no encryption
    if b"options" in words[::2]:
        said = b"SFATAL\0C08P01\0Munsupported startup parameter: options\0\0"
        client.sendall(_framed(b"E", said))
        return False
    client.sendall(_framed(b"R", struct.pack("!i", 0)))
    for name, value in ((b"client_encoding", b"UTF8"), (b"server_version", b"15.0"), (b"DateStyle", b"ISO")):
        client.sendall(_framed(b"S", name + b"\0" + value + b"\0"))
    client.sendall(_framed(b"K", struct.pack("!ii", 1_000_000 + number, 0)) + _framed(b"Z", b"I"))
    return True


def _transaction(client: socket.socket, session: socket.socket, first: bytes) -> None:
    """Carry messages both ways until the session is in no transaction and owes no answer."""
    message = first
    while True:
        sent = [message]
        while message[:1] not in _ENDS:
            message = _message(client)
            sent.append(message)
        session.sendall(b"".join(sent))
        while True:
            answer = _message(session)
            client.sendall(answer)
            if answer[:1] == b"Z":
                break
        if answer[5:] == b"I":
            return
        message = _message(client)


def _session(server: str, database: str) -> socket.socket:
    found = socket.socket(socket.AF_UNIX)
    found.connect(f"{server}/.s.PGSQL.5432")
    words = b"user\0postgres\0database\0" + database.encode() + b"\0\0"
    found.sendall(struct.pack("!ii", 8 + len(words), 196608) + words)
    while _message(found)[:1] != b"Z":
        pass
    return found


def _framed(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", 4 + len(body)) + body


def _message(source: socket.socket) -> bytes:
    head = _exactly(source, 5)
    return head + _exactly(source, struct.unpack("!i", head[1:])[0] - 4)


def _exactly(source: socket.socket, number: int) -> bytes:
    found = b""
    while len(found) < number:
        piece = source.recv(number - len(found))
        if not piece:
            raise EOFError
        found += piece
    return found
