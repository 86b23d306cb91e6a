"""Frames on a socket: a length of four bytes, big-endian, and as many bytes of JSON."""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
from typing import Any, Optional

from .errors import BrokerError, ProtocolError, Unreachable

VERSION = 1
MAX_FRAME = 64 << 20


def encode_frame(request_id: int, kind: str, payload: Any) -> bytes:
    """Encode a request."""
    envelope = {"v": VERSION, "id": request_id, "type": kind, "payload": payload}
    body = json.dumps(envelope, separators=(",", ":")).encode()
    if kind == "hello":
        body += b"\n"  # an HTTP server waits for a line's end, and nobody would learn that it is one
    return struct.pack(">I", len(body)) + body


def decode_frame(body: bytes) -> dict[str, Any]:
    """Decode a frame's bytes. Integers stay exact, however large."""
    try:
        envelope = json.loads(body)
    except (ValueError, RecursionError) as e:
        raise ProtocolError(f"a frame that is not JSON: {e}") from e
    if not isinstance(envelope, dict) or envelope.get("v") != VERSION or not isinstance(envelope.get("type"), str):
        raise ProtocolError("a frame that is no envelope of version 1")
    return envelope


# HELLO_TIMEOUT is how long, in seconds, a broker may take to answer the hello: one that
# hangs has a socket that takes connections.
HELLO_TIMEOUT = 2.0


def stranger(head: bytes) -> str:
    """Say who answers, if its first bytes are no length of a frame."""
    if head == b"HTTP":
        return "an HTTP server answers there, not a broker: use the broker's port (LOGBOOK_BROKER_PORT, 9400 unless told otherwise)"
    if head[:2] == b"\x15\x03":
        return "it wants TLS: give a tls context"
    if all(32 <= b < 127 for b in head):
        return f"text answers there, from {head.decode()!r} on, not a broker: an HTTP server?"
    (length,) = struct.unpack(">I", head)
    return f"a frame of {length} bytes, the limit is {MAX_FRAME}: is that a broker?"


class Connection:
    """A connection to one broker, which takes one request at a time."""

    def __init__(
        self, address: str, timeout: float, token: str = "", tls: Optional[ssl.SSLContext] = None, name: str = "logbook python client"
    ) -> None:
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        self.address = address
        self._timeout = timeout
        self._lock = threading.Lock()
        self._next = 0
        self._broken = False
        try:
            self._socket = socket.create_connection((host, int(port)), timeout)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                self._socket = tls.wrap_socket(self._socket, server_hostname=host)
        except ssl.SSLError as e:
            self.close()
            raise ProtocolError(f"no TLS with {address}: {e}; is it the port of a broker that has TLS, and its certificate trusted here?") from e
        except (OSError, ValueError) as e:
            raise Unreachable(f"no connection to {address}: {e}") from e
        try:
            self._timeout = min(timeout, HELLO_TIMEOUT)
            self.call("hello", {"client": name, "token": token})
            self._timeout = timeout
        except BaseException:
            self.close()
            raise

    def call(self, kind: str, payload: Any, extra: float = 0.0) -> dict[str, Any]:
        """Send a request and return the reply's payload. ``extra`` is what the request itself may wait, in seconds."""
        with self._lock:
            if self._broken:
                raise Unreachable(f"the connection to {self.address} is closed")
            self._next += 1
            request_id = self._next
            try:
                self._socket.settimeout(self._timeout + extra)
                try:
                    self._socket.sendall(encode_frame(request_id, kind, payload))
                except OSError:
                    reply = self._read()  # why the broker hung up, where it said so
                    if reply["type"] != "error":
                        raise
                else:
                    reply = self._read()
            except OSError as e:
                self._drop()
                raise Unreachable(f"the connection to {self.address} broke: {e}") from e
            except BaseException:
                self._drop()  # half a reply may be unread
                raise
        if reply["type"] == "error":
            if reply.get("id") != request_id:
                self.close()  # the broker hangs up, and says why
            raise BrokerError(reply.get("payload") or {})
        if reply.get("id") != request_id or reply["type"] != kind:
            self.close()
            raise ProtocolError(f"a reply of type {reply['type']} to a {kind}")
        payload = reply.get("payload")
        return payload if isinstance(payload, dict) else {}

    def _read(self) -> dict[str, Any]:
        head = self._exactly(4)
        (length,) = struct.unpack(">I", head)
        if length > MAX_FRAME:
            raise ProtocolError(f"{self.address}: {stranger(head)}")
        return decode_frame(self._exactly(length))

    def _exactly(self, n: int) -> bytes:
        parts: list[bytes] = []
        while n > 0:
            part = self._socket.recv(min(n, 1 << 20))
            if not part:
                raise ConnectionError("the broker closed it")
            parts.append(part)
            n -= len(part)
        return b"".join(parts)

    def _drop(self) -> None:
        self._broken = True
        self._socket.close()

    @property
    def broken(self) -> bool:
        """Whether it is of no more use."""
        return self._broken

    def close(self) -> None:
        """Close it; a call under way fails."""
        self._broken = True
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except (OSError, AttributeError):
            pass
        if hasattr(self, "_socket"):
            self._socket.close()
