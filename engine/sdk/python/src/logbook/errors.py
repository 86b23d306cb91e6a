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
