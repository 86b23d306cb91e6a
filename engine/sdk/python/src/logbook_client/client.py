"""Finding brokers, following redirects, trying again."""

from __future__ import annotations

import base64
import random
import socket
import ssl
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Mapping, Optional, Sequence, Union

from .connection import Connection
from .errors import BrokerError, LogbookError, Unreachable


@dataclass(frozen=True)
class Record:
    """A record and where it is. ``key`` and ``value`` may be ``None``, which is not empty."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Optional[bytes]
    value: Optional[bytes]
    headers: tuple[tuple[str, Optional[bytes]], ...] = field(default=())


@dataclass(frozen=True)
class Produced:
    """Where records landed; ``offset`` is the first one's."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


def to_base64(b: Optional[bytes]) -> Optional[str]:
    """Bytes as they travel: base64, or null."""
    return None if b is None else base64.b64encode(b).decode()


def from_base64(s: Optional[str]) -> Optional[bytes]:
    """The inverse of ``to_base64``."""
    return None if s is None else base64.b64decode(s)


def addresses(brokers: Union[str, Sequence[str]]) -> list[str]:
    """Addresses as a list; they may be given as text, with commas. Checked, so that a slip is not taken for a broker that is away."""
    given = brokers.split(",") if isinstance(brokers, str) else list(brokers)
    out = []
    for address in given:
        host, colon, port = address.strip().rpartition(":")
        if not (host and colon and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise ValueError(f"{address!r} is no address of a broker; it must be host:port")
        out.append(address.strip())
    if not out:
        raise ValueError("no broker to connect to; give host:port of one at least")
    return out


class Client:
    """Speaks to a cluster. Safe for use by several threads.

    ``brokers`` are addresses, host:port, of some brokers, as a list or as text with commas; the others are found. ``timeout``
    is for one attempt, ``patience`` for how long to try again what may succeed later, both
    in seconds.
    """

    def __init__(
        self,
        brokers: Union[str, Sequence[str]],
        *,
        timeout: float = 10.0,
        patience: float = 30.0,
        token: str = "",
        tls: Optional[ssl.SSLContext] = None,
    ) -> None:
        self.timeout = timeout
        self.patience = patience
        self._token = token
        self._tls = tls
        self._lock = threading.Lock()
        self._brokers = addresses(brokers)
        self._given = frozenset(self._brokers)
        self._first = 0  # the broker that answered last: whom to ask next
        self._connections: dict[str, Connection] = {}
        self._leaders: dict[tuple[str, int], str] = {}
        self._coordinators: dict[str, str] = {}
        self._topics: dict[str, dict[str, Any]] = {}
        self._epochs: dict[tuple[str, int], int] = {}  # the highest leader epochs heard of
        self._closed = threading.Event()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection; calls under way fail."""
        self._closed.set()
        with self._lock:
            connections = list(self._connections.values())
            self._connections.clear()
        for c in connections:
            c.close()

    # Requests.

    def metadata(self, *topics: str) -> dict[str, Any]:
        """Describe brokers and topics; without names, all topics."""
        m = self.any_broker("metadata", {"topics": list(topics)})
        addresses = {b["id"]: b["address"] for b in m["brokers"]}
        with self._lock:
            for address in addresses.values():
                if address and address not in self._brokers:
                    self._brokers.append(address)
            for t in m["topics"]:
                self._topics[t["name"]] = t
                for i, p in enumerate(t["partitions"]):
                    if addresses.get(p["leader"]) and p["epoch"] >= self._epochs.get((t["name"], i), 0):
                        self._leaders[t["name"], i] = addresses[p["leader"]]
        return m

    def create_topic(self, name: str, partitions: int = 1, replication: int = 0, router: str = "") -> None:
        """Make a topic. ``replication`` 0: a replica on each broker, at most three."""
        self.any_broker("create_topic", {"name": name, "partitions": partitions, "replication": replication, "router": router})

    def topic(self, name: str) -> dict[str, Any]:
        """Describe a topic; its partition count and routing rule do not change."""
        with self._lock:
            t = self._topics.get(name)
        return t if t is not None else self.metadata(name)["topics"][0]

    def produce(
        self,
        topic: str,
        records: Sequence[Mapping[str, Any]],
        partition: int,
        acks: str = "",
    ) -> Produced:
        """Store records (mappings as the protocol has them) in a partition, as one batch."""
        request = {"topic": topic, "partition": partition, "acks": acks, "records": list(records)}
        r = self.on_leader(topic, partition, "produce", request)
        return Produced(topic, r["partition"], r["offset"], r["timestamp_ms"])

    def fetch(self, topic: str, partition: int, offset: int, wait: float = 0.0, max_bytes: int = 1 << 20) -> tuple[list[Record], int, int]:
        """Read records from an offset on. Returns them, where to go on, and the high watermark."""
        request: dict[str, Any] = {"topic": topic, "partition": partition, "offset": offset, "wait_ms": int(wait * 1000), "max_bytes": max_bytes}
        with self._lock:
            # A broker that leads in a lower epoch was replaced, and must not say what the end is.
            request["leader_epoch"] = self._epochs.get((topic, partition), 0)
        r = self.on_leader(topic, partition, "fetch", request, extra=wait)
        with self._lock:
            self._epochs[topic, partition] = max(self._epochs.get((topic, partition), 0), r.get("leader_epoch", 0))
        records = [
            Record(
                topic,
                partition,
                x.get("offset", 0),
                x.get("timestamp_ms", 0),
                from_base64(x.get("key")),
                from_base64(x.get("value")),
                tuple((h["key"], from_base64(h["value"])) for h in x.get("headers") or ()),
            )
            for x in r["records"]
        ]
        return records, r["next_offset"], r["high_watermark"]

    def earliest(self, topic: str, partition: int) -> int:
        """The first offset that can be read."""
        return self._list_offsets(topic, partition, "earliest")

    def latest(self, topic: str, partition: int) -> int:
        """The offset after the last record that can be read."""
        return self._list_offsets(topic, partition, "latest")

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        """The offset of the first record at or after a time."""
        return self._list_offsets(topic, partition, "time", timestamp_ms)

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """Remove the records before an offset, as far as that is safe. Returns the first that is left."""
        return int(self.on_leader(topic, partition, "delete_records", {"topic": topic, "partition": partition, "below": before})["log_start"])

    def _list_offsets(self, topic: str, partition: int, at: str, timestamp_ms: int = 0) -> int:
        request = {"topic": topic, "partition": partition, "at": at, "timestamp_ms": timestamp_ms}
        return int(self.on_leader(topic, partition, "list_offsets", request)["offset"])

    # Whom to ask.

    def any_broker(self, kind: str, payload: Any) -> dict[str, Any]:
        """Ask one broker after another."""
        state: dict[str, Any] = {"to": None}

        def address() -> str:
            if state["to"]:
                return str(state["to"])
            with self._lock:
                return self._brokers[self._first % len(self._brokers)]

        def moved(to: Optional[str]) -> None:
            state["to"] = to
            if not to:
                with self._lock:
                    self._first += 1  # the next call does not begin with a broker that does not answer

        return self._retry(kind, payload, address, moved)

    def on_leader(self, topic: str, partition: int, kind: str, payload: Any, extra: float = 0.0) -> dict[str, Any]:
        """Ask a partition's leader."""
        if partition < 0:
            raise ValueError(f"partition {partition} of {topic}: they count from 0")

        def address() -> str:
            with self._lock:
                known = self._leaders.get((topic, partition))
            if known:
                return known
            self.metadata(topic)
            with self._lock:
                known = self._leaders.get((topic, partition))
            if not known:
                count = len(self.topic(topic)["partitions"])
                if partition >= count:
                    raise BrokerError({"code": "unknown_partition", "message": f"topic {topic!r} has partitions 0 to {count - 1}, not {partition}"})
                raise BrokerError({"code": "unavailable", "message": f"nobody leads {topic}/{partition} at the moment"})
            return known

        def moved(to: Optional[str]) -> None:
            with self._lock:
                if to:
                    self._leaders[topic, partition] = to
                else:
                    self._leaders.pop((topic, partition), None)

        return self._retry(kind, payload, address, moved, extra)

    def on_coordinator(self, group: str, kind: str, payload: Any, extra: float = 0.0) -> dict[str, Any]:
        """Ask a group's coordinator."""

        def address() -> str:
            with self._lock:
                known = self._coordinators.get(group)
            if not known:
                known = self.any_broker("find_coordinator", {"group": group})["broker"]["address"]
                with self._lock:
                    self._coordinators[group] = known
            return known

        def moved(to: Optional[str]) -> None:
            with self._lock:
                if to:
                    self._coordinators[group] = to
                else:
                    self._coordinators.pop(group, None)

        return self._retry(kind, payload, address, moved, extra)

    # Trying again.

    def _connection(self, address: str) -> Connection:
        with self._lock:
            c = self._connections.get(address)
        if c is not None and not c.broken:
            return c
        if self._closed.is_set():
            raise LogbookError("the client is closed")
        try:
            c = Connection(address, self.timeout, self._token, self._tls)
        except Unreachable as e:
            if isinstance(e.__cause__, socket.gaierror) and address not in self._given:
                raise Unreachable(f"{e}; that is the name the broker itself gives: set its LOGBOOK_ADVERTISE to one that is known here") from e
            raise
        with self._lock:
            other = self._connections.get(address)
            if other is not None and not other.broken:
                c.close()
                return other
            self._connections[address] = c
        return c

    def _retry(
        self,
        kind: str,
        payload: Any,
        address: Callable[[], str],
        moved: Callable[[Optional[str]], None],
        extra: float = 0.0,
    ) -> dict[str, Any]:
        began = time.monotonic()
        pause, redirects = 0.02, 0
        while True:
            error: LogbookError
            try:
                # Every attempt reads a reply of its own: nothing of an earlier one shows through.
                return self._connection(address()).call(kind, payload, extra)
            except Unreachable as e:
                error, redirected = e, False
                moved(None)
            except BrokerError as e:
                error, redirected = e, False
                unheard = e.code == "unknown_topic" and time.monotonic() - began < 1.0  # news of a topic takes a moment
                if not (e.temporary or unheard):
                    raise
                if e.code in ("not_leader", "not_coordinator") and e.address:
                    moved(e.address)
                    redirected = True
                else:
                    moved(None)
            if self._closed.is_set():
                raise LogbookError("the client is closed") from error
            if time.monotonic() + pause - began > self.patience:
                raise error
            redirects = redirects + 1 if redirected else 0
            if redirects != 1:  # one redirect is followed at once; brokers that name each other are not
                self._closed.wait(pause / 2 + random.uniform(0, pause))  # not all at the same moment
            pause = min(2 * pause, 1.0)
