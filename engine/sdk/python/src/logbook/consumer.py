"""Reading one partition."""

from __future__ import annotations

import ssl
from typing import Iterator, Optional, Sequence, Union

from .client import Client, Record


class Consumer:
    """Reads one partition from where it is told. Keeps no progress; see ``GroupConsumer`` for that.

    ``start`` is ``earliest``, ``latest`` or an offset. For one thread.
    """

    def __init__(
        self,
        brokers: Sequence[str],
        topic: str,
        partition: int = 0,
        start: Union[str, int] = "earliest",
        *,
        timeout: float = 10.0,
        patience: float = 30.0,
        token: str = "",
        tls: Optional[ssl.SSLContext] = None,
    ) -> None:
        if not isinstance(start, int) and start not in ("earliest", "latest"):
            raise ValueError(f"start is {start!r}; it must be earliest, latest or an offset")
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
        """The next records; none if there are none within ``wait`` seconds."""
        records, self._position, _ = self.client.fetch(self.topic, self.partition, self.position, wait, max_bytes)
        return records

    def __iter__(self) -> Iterator[Record]:
        """Every record from here on, waiting for more without end."""
        while True:
            yield from self.fetch(wait=5.0)

    def close(self) -> None:
        """Close the connections."""
        self.client.close()
