"""What can go wrong."""

from __future__ import annotations

from typing import Any, Mapping


class LogbookError(Exception):
    """Every error of this package."""


class Unreachable(LogbookError):
    """No broker answers, or a connection broke before the reply came.

    Whether a request whose connection broke was carried out is not known.
    """


class ProtocolError(LogbookError):
    """The other side does not speak the protocol."""


class BrokerError(LogbookError):
    """A broker said no.

    ``code`` is for programs: ``unknown_topic``, ``offset_out_of_range``, ``replication`` and
    so on, as the protocol's document lists them. ``leader`` and ``address`` say whom to ask,
    ``log_start`` and ``log_end`` what there is, ``offset`` which record is meant; each is
    ``None`` where it has no meaning.
    """

    def __init__(self, payload: Mapping[str, Any]) -> None:
        self.code: str = payload.get("code", "internal")
        self.message: str = payload.get("message", "")
        self.leader: int | None = payload.get("leader")
        self.address: str | None = payload.get("address") or None
        self.offset: int | None = payload.get("offset")
        self.log_start: int | None = payload.get("log_start", 0) if self.code == "offset_out_of_range" else None
        self.log_end: int | None = payload.get("log_end", 0) if self.code == "offset_out_of_range" else None
        super().__init__(f"{self.message} ({self.code})")

    @property
    def temporary(self) -> bool:
        """Whether the same request may succeed later, or elsewhere."""
        return self.code in ("not_leader", "not_coordinator", "unavailable", "not_enough_replicas")


RESETS = ("error", "earliest", "latest")


class OffsetOutOfRange(BrokerError):
    """A position that the log does not reach any more.

    Retention has removed what was next (``position < log_start``), or a failover lost the end
    of the log (``position > log_end``). Seek to go on, or choose a ``reset``.
    """

    def __init__(self, topic: str, partition: int, position: int, cause: BrokerError) -> None:
        log_start, log_end = cause.log_start or 0, cause.log_end or 0
        if position < log_start:
            message = f"offset {position} of {topic}/{partition} is gone: the log starts at {log_start} now"
        else:
            message = f"offset {position} of {topic}/{partition} is not there any more: the log ends at {log_end}; what was read after that is lost"
        message += "; seek to go on, or choose a reset"
        super().__init__({"code": cause.code, "message": message, "log_start": log_start, "log_end": log_end})
        self.topic = topic
        self.partition = partition
        self.position = position


def after_reset(reset: str, topic: str, partition: int, position: int, cause: BrokerError) -> int:
    """Where a reader goes on whose position the log does not reach; raises where nothing was chosen."""
    if reset == "earliest":
        return cause.log_start or 0
    if reset == "latest":
        return cause.log_end or 0
    raise OffsetOutOfRange(topic, partition, position, cause) from cause


def check_reset(reset: str) -> None:
    """Refuse what is no reset."""
    if reset not in RESETS:
        raise ValueError(f"reset is {reset!r}; it must be error, earliest or latest")
