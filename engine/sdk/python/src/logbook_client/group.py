"""Sharing a topic's partitions with others."""

from __future__ import annotations

import secrets
import ssl
import threading
import time
from typing import Any, Optional, Sequence, Union

from .client import Client, Record
from .errors import BrokerError, LogbookError, after_reset, check_reset

Partition = tuple[str, int]


class GroupConsumer:
    """A member of a consumer group.

    A thread sends heartbeats, three in a session, and joins again when the group
    rebalances. ``fetch`` returns records of the partitions that are the member's at the
    moment, and ``commit`` stores how far it has come. ``reset`` says what becomes of a
    position that the log does not reach any more: ``error`` raises ``OffsetOutOfRange``,
    ``earliest`` and ``latest`` go on at the log's first offset or its end. Where nothing is
    committed the member starts at the first offset, or with ``latest`` at the end. A member
    that takes longer than ``handling_timeout`` seconds from a ``fetch`` that returned records
    to its next call leaves, so that others get its partitions, and joins again with its next
    ``fetch``; 0 is no limit. For one thread, beside its own.
    """

    def __init__(
        self,
        brokers: Union[str, Sequence[str]],
        group: str,
        topics: Sequence[str],
        *,
        reset: str = "error",
        session_timeout: float = 10.0,
        handling_timeout: float = 300.0,
        assignor: str = "",
        instance: str = "",
        timeout: float = 10.0,
        patience: float = 30.0,
        token: str = "",
        tls: Optional[ssl.SSLContext] = None,
    ) -> None:
        check_reset(reset)
        self.group = group
        self._topics = list(topics)
        self._reset = reset
        self._session = session_timeout
        self._limit = handling_timeout
        self._handling = 0.0  # since when records are being handled; 0: none are
        self._away = False  # it left because that took too long
        self._assignor = assignor
        self._instance = instance
        # Two clients, so that a fetch that waits does not hold up a heartbeat.
        self._brokers, self._token, self._tls = brokers, token, tls
        self._data = Client(brokers, timeout=timeout, patience=patience, token=token, tls=tls)
        self._control = Client(brokers, timeout=timeout, patience=patience, token=token, tls=tls)
        self._lock = threading.Lock()
        self._member = ""
        self._generation = 0
        self._epoch = 0  # the highest of a coordinator heard of
        self._positions: dict[Partition, int] = {}
        self._turn = 0
        self._error: Optional[LogbookError] = None
        self._stop = threading.Event()
        try:
            self._join()
        except BaseException:
            self._data.close()
            self._control.close()
            raise
        self._thread = threading.Thread(target=self._heartbeats, name=f"logbook heartbeats of {group}", daemon=True)
        self._thread.start()

    def __enter__(self) -> "GroupConsumer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def member_id(self) -> str:
        """The id that the coordinator gave."""
        with self._lock:
            return self._member

    @property
    def generation(self) -> int:
        """The group's generation that the member is in."""
        with self._lock:
            return self._generation

    @property
    def assignment(self) -> list[Partition]:
        """The member's partitions, (topic, number) each."""
        with self._lock:
            return sorted(self._positions)

    def _who(self) -> dict[str, Any]:
        with self._lock:
            return {"group": self.group, "member": self._member, "instance": self._instance, "generation": self._generation}

    def _join(self) -> None:
        while not self._stop.is_set():
            with self._lock:
                owned = [{"topic": t, "partition": p} for t, p in self._positions]
                member = self._member
                # The id is chosen here, so that the member can leave whatever becomes of the reply.
                wanted = "" if member else f"{self.group[:200]}-{secrets.token_hex(13)}"
            request = {
                "group": self.group,
                "member": member,
                "new_member": wanted,
                "instance": self._instance,
                "topics": self._topics,
                "assignor": self._assignor,
                "session_timeout_ms": int(self._session * 1000),
                "owned": owned,
            }
            try:
                joined = self._control.on_coordinator(self.group, "join_group", request, extra=2 * self._session)
                with self._lock:
                    self._member = joined["member"]
                    self._epoch = max(self._epoch, joined["coordinator_epoch"])
                who = {"group": self.group, "member": joined["member"], "instance": self._instance, "generation": joined["generation"]}
                synced = self._control.on_coordinator(self.group, "sync_group", who)
            except BrokerError as e:
                if e.code == "unknown_member":
                    with self._lock:
                        self._member, self._generation, self._positions = "", 0, {}
                elif e.code != "rejoin":
                    self._abandon(wanted)
                    raise
                continue
            except BaseException:
                self._abandon(wanted)
                raise
            self._take(joined, [(p["topic"], p["partition"]) for p in synced["partitions"]])
            return

    def _abandon(self, member: str) -> None:
        """Leave, if a join was given up: otherwise nobody's member holds partitions until its session ends."""
        if not member or self._instance:
            return
        with self._lock:
            self._member = ""
        try:
            with Client(self._brokers, timeout=2.0, patience=2.0, token=self._token, tls=self._tls) as c:
                c.on_coordinator(self.group, "leave_group", {"group": self.group, "member": member, "generation": 0})
        except LogbookError:
            pass  # its session ends by itself

    def _take(self, joined: dict[str, Any], mine: list[Partition]) -> None:
        """Begin to read what is new, give up what is another's."""
        with self._lock:
            kept = {p: o for p, o in self._positions.items() if p in mine}
        fresh = [p for p in mine if p not in kept]
        if fresh:
            # A coordinator of a lower epoch was replaced, and may not know what was committed since.
            asked = {"group": self.group, "coordinator_epoch": self._epoch, "partitions": [{"topic": t, "partition": p} for t, p in fresh]}
            committed = self._control.on_coordinator(self.group, "fetch_offsets", asked)
            for o in committed["offsets"]:
                kept[o["topic"], o["partition"]] = o["offset"]
            for t, p in fresh:
                if (t, p) not in kept:
                    find = self._control.latest if self._reset == "latest" else self._control.earliest
                    kept[t, p] = find(t, p)
        with self._lock:
            self._member, self._generation, self._positions = joined["member"], joined["generation"], kept

    def _heartbeats(self) -> None:
        while not self._stop.wait(self._session / 3):
            with self._lock:
                late = self._limit > 0 and self._handling > 0 and time.monotonic() - self._handling > self._limit
                away, self._away = self._away, self._away or late
            if away:
                continue
            if late:
                self._leave()
                with self._lock:
                    self._member, self._generation, self._positions = "", 0, {}
                continue
            try:
                beat = self._control.on_coordinator(self.group, "heartbeat", self._who())
                with self._lock:
                    self._epoch = max(self._epoch, beat["coordinator_epoch"])
                continue
            except BrokerError as e:
                if e.code not in ("rejoin", "unknown_member"):
                    self._fail(e)
                    if e.code == "fenced":
                        return
                    continue
                if e.code == "unknown_member":
                    with self._lock:
                        self._member, self._generation, self._positions = "", 0, {}
            except LogbookError as e:
                self._fail(e)
                continue
            try:
                self._join()
            except LogbookError as e:
                self._fail(e)

    def _fail(self, error: LogbookError) -> None:
        if not self._stop.is_set():
            with self._lock:
                self._error = error

    def fetch(self, wait: float = 0.0, max_bytes: int = 1 << 20) -> list[Record]:
        """The next records of one of the member's partitions; none if there are none within ``wait`` seconds.

        Raises ``OffsetOutOfRange`` where the log does not reach a position any more, unless a
        ``reset`` was chosen, and what went wrong with the membership since the last call.
        """
        deadline = time.monotonic() + wait
        with self._lock:
            self._handling, away = 0.0, self._away
        if away:
            self._join()
            with self._lock:
                self._away = False
        while True:
            with self._lock:
                error, self._error = self._error, None
                mine = sorted(self._positions.items())
            if error is not None:
                raise error
            for i in range(len(mine)):
                self._turn += 1
                (topic, partition), offset = mine[self._turn % len(mine)]
                left = max(0.0, deadline - time.monotonic())
                last = i == len(mine) - 1
                records = self._fetch_one(topic, partition, offset, min(left, 0.2) if last else 0.0, max_bytes)
                if records:
                    with self._lock:
                        self._handling = time.monotonic()
                    return records
            if time.monotonic() >= deadline:
                return []
            if not mine:
                self._stop.wait(min(0.05, max(0.0, deadline - time.monotonic())))

    def _fetch_one(self, topic: str, partition: int, offset: int, wait: float, max_bytes: int) -> list[Record]:
        try:
            records, following, _ = self._data.fetch(topic, partition, offset, wait, max_bytes)
        except BrokerError as e:
            if e.code != "offset_out_of_range":
                raise
            with self._lock:
                if self._positions.get((topic, partition)) != offset:
                    return []  # another's by now
            records, following = [], after_reset(self._reset, topic, partition, offset, e)
        with self._lock:
            if self._positions.get((topic, partition)) != offset:
                return []  # another's by now
            self._positions[topic, partition] = following
        return records

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on at an offset of one of the member's partitions."""
        with self._lock:
            if (topic, partition) not in self._positions:
                raise LogbookError(f"{topic}/{partition} is not this member's at the moment; see assignment")
            self._positions[topic, partition] = offset

    def commit(self) -> bool:
        """Store how far the member has come. ``False``: a rebalance came first, and records may be seen again."""
        who = self._who()
        with self._lock:
            if self._away:
                return False
            if self._handling:
                self._handling = time.monotonic()  # it is not stuck
            who["offsets"] = [{"topic": t, "partition": p, "offset": o} for (t, p), o in self._positions.items()]
        if not who["offsets"]:
            return True
        try:
            self._data.on_coordinator(self.group, "commit_offsets", who)
        except BrokerError as e:
            if e.code in ("rejoin", "unknown_member"):
                return False
            raise
        return True

    def stop_heartbeats(self) -> None:
        """Fall silent without leaving, as a process that hangs does. For tests."""
        self._stop.set()
        self._thread.join()

    def close(self) -> None:
        """Leave the group, unless the member is static, and end the thread."""
        stopped = self._stop.is_set()
        self._stop.set()
        self._data.close()
        if not stopped:
            self._thread.join(timeout=self._session)
            self._control.patience = 1.0
            self._leave()
        self._control.close()

    def _leave(self) -> None:
        if self._member and not self._instance:
            try:
                self._control.on_coordinator(self.group, "leave_group", self._who())
            except LogbookError:
                pass  # the session runs out by itself
