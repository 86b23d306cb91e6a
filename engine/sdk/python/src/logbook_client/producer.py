"""Sending records."""

from __future__ import annotations

import itertools
import ssl
import threading
import time
from typing import Mapping, Optional, Sequence, Tuple, Union

from .client import Client, Produced, to_base64
from .routing import partition_for

# Headers are names and values, in a mapping, or as pairs where a name repeats. A value may be None.
Headers = Union[Mapping[str, Optional[bytes]], Sequence[Tuple[str, Optional[bytes]]]]


class Producer:
    """Sends records. ``send`` returns when the record is stored as ``acks`` demands.

    ``acks`` is ``leader``, ``all`` or ``quorum``; empty is the brokers' default. Safe for use
    by several threads.
    """

    def __init__(
        self,
        brokers: Union[str, Sequence[str]],
        *,
        acks: str = "",
        timeout: float = 10.0,
        patience: float = 30.0,
        token: str = "",
        tls: Optional[ssl.SSLContext] = None,
    ) -> None:
        self.client = Client(brokers, timeout=timeout, patience=patience, token=token, tls=tls)
        self._acks = acks
        self._turns: dict[str, "itertools.count[int]"] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> "Producer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(
        self,
        topic: str,
        value: Optional[bytes],
        key: Optional[bytes] = None,
        partition: Optional[int] = None,
        headers: Optional[Headers] = None,
        timestamp_ms: Optional[int] = None,
    ) -> Produced:
        """Store one record. A key decides the partition (``b""`` is a key like any other); without one, partitions take turns."""
        return self.send_batch(topic, [(key, value)], partition, headers, timestamp_ms)

    def send_batch(
        self,
        topic: str,
        records: Sequence[tuple[Optional[bytes], Optional[bytes]]],
        partition: Optional[int] = None,
        headers: Optional[Headers] = None,
        timestamp_ms: Optional[int] = None,
    ) -> Produced:
        """Store records, (key, value) each, in one partition, wholly or not at all. The first one's key decides which."""
        for key, value in records:
            for b in (key, value):
                if b is not None and not isinstance(b, (bytes, bytearray)):
                    raise TypeError(f"keys and values are bytes, not {type(b).__name__}; encode text first")
        if partition is not None and (not isinstance(partition, int) or isinstance(partition, bool)):
            raise TypeError(f"a partition is a number, or None for any, not {partition!r}")
        if partition is None:
            partition = self._route(topic, records[0][0] if records else None)
        pairs = headers.items() if isinstance(headers, Mapping) else headers or ()
        head = []
        for name, header in pairs:
            if not isinstance(name, str) or not (header is None or isinstance(header, (bytes, bytearray))):
                raise TypeError(f"the header {name!r}: names are text, and values bytes or None")
            head.append({"key": name, "value": to_base64(header)})
        stamp = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
        wire = [{"key": to_base64(k), "value": to_base64(v), "timestamp_ms": stamp, "headers": head} for k, v in records]
        return self.client.produce(topic, wire, partition, self._acks)

    def _route(self, topic: str, key: Optional[bytes]) -> int:
        t = self.client.topic(topic)
        n = len(t["partitions"])
        if key is not None:
            return partition_for(t["router"], bytes(key), n)
        with self._lock:
            return next(self._turns.setdefault(topic, itertools.count())) % n

    def close(self) -> None:
        """Close the connections."""
        self.client.close()
