"""Reading one partition."""

from __future__ import annotations

import ssl
from typing import Iterator, Optional, Sequence, Union

from .client import Client, Record
from .errors import BrokerError, after_reset, check_reset


class Consumer:
    """Reads one partition from where it is told. Keeps no progress; see ``GroupConsumer`` for that.

    ``start`` is ``earliest``, ``latest`` or an offset. ``reset`` says what becomes of a
    position that the log does not reach any more: ``error`` raises ``OffsetOutOfRange``,
    ``earliest`` and ``latest`` go on at the log's first offset or its end. For one thread.
    """

    def __init__(
        self,
        brokers: Union[str, Sequence[str]],
        topic: str,
        partition: int = 0,
        start: Union[str, int] = "earliest",
        *,
        reset: str = "error",
        timeout: float = 10.0,
        patience: float = 30.0,
        token: str = "",
        tls: Optional[ssl.SSLContext] = None,
    ) -> None:
        if not isinstance(start, int) and start not in ("earliest", "latest"):
            raise ValueError(f"start is {start!r}; it must be earliest, latest or an offset")
        check_reset(reset)
        self._reset = reset
        self.client = Client(brokers, timeout=timeout, patience=patience, token=token, tls=tls)
        self.topic = topic
        self.partition = partition
        self._start = start
        self._position: Optional[int] = start if isinstance(start, int) else None

    def __enter__(self) -> "Consumer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def position(self) -> int:
        """The next offset that ``fetch`` asks for."""
        if self._position is None:
            find = self.client.earliest if self._start == "earliest" else self.client.latest
            self._position = find(self.topic, self.partition)
        return self._position

    def seek(self, offset: int) -> None:
        """Go on from an offset."""
        self._position = offset

    def fetch(self, wait: float = 0.0, max_bytes: int = 1 << 20) -> list[Record]:
        """The next records; none if there are none within ``wait`` seconds.

        Raises ``OffsetOutOfRange`` where the log does not reach the position any more, unless a
        ``reset`` was chosen.
        """
        try:
            records, self._position, _ = self.client.fetch(self.topic, self.partition, self.position, wait, max_bytes)
        except BrokerError as e:
            if e.code != "offset_out_of_range":
                raise
            self._position = after_reset(self._reset, self.topic, self.partition, self.position, e)
            records = []
        return records

    def __iter__(self) -> Iterator[Record]:
        """Every record from here on, waiting for more without end."""
        while True:
            yield from self.fetch(wait=5.0)

    def close(self) -> None:
        """Close the connections."""
        self.client.close()
