"""The client against a broker process. LOGBOOK_BINARY names the command."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "src"))

from logbook_client import BrokerError, Client, Consumer, GroupConsumer, LogbookError, OffsetOutOfRange, Producer, ProtocolError, Unreachable  # noqa: E402
from logbook_client.connection import decode_frame, encode_frame  # noqa: E402
from logbook_client.routing import partition_for  # noqa: E402


class Offline(unittest.TestCase):
    """What needs no broker."""

    def test_frames(self) -> None:
        frame = encode_frame(7, "fetch", {"offset": 2**53 + 1})
        self.assertEqual(len(frame) - 4, int.from_bytes(frame[:4], "big"))
        self.assertEqual(decode_frame(frame[4:])["payload"]["offset"], 9007199254740993)
        for bad in (b"hello", b"[]", b'{"v":2,"type":"x"}', b'{"v":1}', b"[" * 100_000):
            with self.assertRaises(ProtocolError):
                decode_frame(bad)

    def test_nobody_answers(self) -> None:
        with Client(["127.0.0.1:1"], patience=0.1) as c, self.assertRaises(Unreachable):
            c.metadata()

    def test_wrong_arguments(self) -> None:
        with self.assertRaises(ValueError):
            Client([])
        with Producer(["127.0.0.1:1"]) as p, self.assertRaises(TypeError):
            p.send("t", "text")  # type: ignore[arg-type]

    def test_routing_is_the_brokers(self) -> None:
        table = pathlib.Path(__file__).parents[4] / "testdata" / "routing.tsv"
        checked = 0
        for line in table.read_text().splitlines():
            if not line or line.startswith("#"):
                continue
            key_hex, count, *expected = line.split("\t")
            for rule, want in zip(("sha256", "fnv1a", "murmur2"), expected):
                self.assertEqual(partition_for(rule, bytes.fromhex(key_hex), int(count)), int(want), (rule, key_hex))
                checked += 1
        self.assertGreater(checked, 20)


@unittest.skipUnless(os.environ.get("LOGBOOK_BINARY"), "LOGBOOK_BINARY names no broker")
class Online(unittest.TestCase):
    """Against one broker."""

    dir: tempfile.TemporaryDirectory[str]
    process: subprocess.Popen[str]
    drain: threading.Thread
    address: str

    @classmethod
    def setUpClass(cls) -> None:
        cls.dir = tempfile.TemporaryDirectory()
        cls.process = subprocess.Popen(
            [os.environ["LOGBOOK_BINARY"], "serve", "--port", "0", "--broker-port", "0", "--data", cls.dir.name, "--log-format", "json"],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert cls.process.stderr is not None
        for line in cls.process.stderr:
            said = json.loads(line)
            if said["msg"] == "broker is serving":
                cls.address = said["address"]
                break
        cls.drain = threading.Thread(target=cls.process.stderr.read, daemon=True)
        cls.drain.start()

    @classmethod
    def tearDownClass(cls) -> None:
        cls.process.terminate()
        cls.process.wait(20)
        cls.dir.cleanup()

    def test_headers_and_large_records(self) -> None:
        with Producer(self.address) as p:
            p.client.create_topic("headers")
            pairs = [("null", None), ("empty", b""), ("twice", b"1"), ("twice", b"2")]
            p.send("headers", b"x", headers=pairs)
            with Consumer(self.address, "headers", 0) as c:
                self.assertEqual(list(c.fetch()[0].headers), pairs)
            for size in (2 << 20, 30 << 20):
                with self.assertRaises(BrokerError) as caught:
                    p.send("headers", b"x" * size)
                self.assertEqual(caught.exception.code, "too_large", size)
            p.send("headers", b"after")

    def test_produce_and_consume(self) -> None:
        with Producer([self.address]) as p:
            p.client.create_topic("flights", partitions=3)
            first = p.send("flights", b"a", partition=1, headers={"h": b"v"}, timestamp_ms=12345)
            self.assertEqual((first.partition, first.offset, first.timestamp_ms), (1, 0, 12345))
            p.send("flights", None, key=b"", partition=1)
            p.send_batch("flights", [(None, b"c"), (None, b"d")], partition=1)
            keyed = {p.send("flights", b"x", key=b"DTW").partition for _ in range(5)}
            self.assertEqual(len(keyed), 1)
            turns = [p.send("flights", b"y").partition for _ in range(3)]
            self.assertEqual(turns, [0, 1, 2])
        with Consumer([self.address], "flights", 1) as c:
            records = c.fetch()[:4]
            self.assertEqual([r.value for r in records], [b"a", None, b"c", b"d"])
            self.assertEqual([r.key for r in records], [None, b"", None, None])
            self.assertEqual(records[0].headers, (("h", b"v"),))
            c.seek(2)
            self.assertEqual(c.fetch()[0].value, b"c")
            c.seek(10**6)
            with self.assertRaises(BrokerError) as caught:
                c.fetch()
            self.assertEqual(caught.exception.code, "offset_out_of_range")
            self.assertEqual(caught.exception.log_start, 0)

    def test_reset(self) -> None:
        """Records that retention removed are reported, or skipped by choice; never in silence."""
        for reset in ("error", "earliest", "latest"):
            topic = f"overtaken-{reset}"
            with Producer([self.address]) as p:
                p.client.create_topic(topic)
                for v in (b"0", b"1", b"2", b"3"):
                    p.send(topic, v)
                first = Consumer([self.address], topic, reset=reset)
                member = GroupConsumer([self.address], topic, [topic], reset=reset)
                if reset == "latest":
                    member.seek(topic, 0, 0)
                self.assertEqual(p.client.delete_records(topic, 0, 2), 2)
                first.seek(1)
                for reader, seek in ((first, first.seek), (member, lambda offset: member.seek(topic, 0, offset))):
                    if reset == "error":
                        for _ in range(2):
                            with self.assertRaises(OffsetOutOfRange) as caught:
                                reader.fetch(wait=5.0)
                            e = caught.exception
                            self.assertEqual((e.topic, e.partition, e.log_start, e.log_end), (topic, 0, 2, 4))
                            self.assertIn(f"offset {e.position} of {topic}/0 is gone: the log starts at 2 now", str(e))
                        seek(3)
                    if reset == "latest":
                        self.assertEqual(reader.fetch(), [])
                        p.send(topic, b"new")
                    want = {"error": b"3", "earliest": b"2", "latest": b"new"}[reset]
                    self.assertEqual(next_value(reader), want)
                first.close()
                member.close()
        with self.assertRaises(ValueError):
            Consumer([self.address], "t", reset="sometimes")

    def test_errors_are_clear(self) -> None:
        with Producer([self.address], patience=0.3) as p:
            with self.assertRaises(BrokerError) as caught:
                p.send("nothing", b"x")
            self.assertEqual(caught.exception.code, "unknown_topic")
            with self.assertRaises(BrokerError) as caught:
                p.client.create_topic("../up")
            self.assertEqual(caught.exception.code, "bad_request")
            p.close()
            with self.assertRaises(LogbookError):
                p.send("nothing", b"x", partition=0)

    def test_group_of_two(self) -> None:
        with Producer([self.address]) as p:
            p.client.create_topic("shared", partitions=4)
            for i in range(40):
                p.send("shared", str(i).encode())
        a = GroupConsumer([self.address], "g", ["shared"], session_timeout=0.6)
        self.assertEqual(len(a.assignment), 4)
        b = GroupConsumer([self.address], "g", ["shared"], session_timeout=0.6)
        wait_until(lambda: len(a.assignment) == 2 and len(b.assignment) == 2)
        self.assertEqual(set(a.assignment) & set(b.assignment), set())
        seen = read(a, 20) | read(b, 20)
        self.assertEqual(seen, {str(i).encode() for i in range(40)})
        self.assertTrue(a.commit() and b.commit())
        # One falls silent: the other has everything when the session is over.
        b.stop_heartbeats()
        wait_until(lambda: len(a.assignment) == 4)
        self.assertGreater(a.generation, 2)
        self.assertFalse(b.commit(), "whoever was given up cannot commit")
        b.close()
        with Producer([self.address]) as p:
            p.send("shared", b"late")
        self.assertEqual(read(a, 1), {b"late"})
        a.commit()
        a.close()
        with GroupConsumer([self.address], "g", ["shared"]) as c:
            self.assertEqual(c.fetch(wait=0.3), [], "all is committed")

    def test_a_handler_that_hangs(self) -> None:
        with Producer([self.address]) as p:
            p.client.create_topic("slow", partitions=1)
            p.send("slow", b"one", timestamp_ms=0)
            p.send("slow", b"two")
        with GroupConsumer([self.address], "slow-ones", ["slow"], session_timeout=0.6, handling_timeout=0.3) as hung:
            first = hung.fetch(wait=5, max_bytes=1)
            self.assertEqual([(r.value, r.timestamp_ms) for r in first], [(b"one", 0)])
            wait_until(lambda: hung.assignment == [])
            self.assertFalse(hung.commit(), "who has left cannot commit")
            with GroupConsumer([self.address], "slow-ones", ["slow"]) as other:
                self.assertEqual(read(other, 2), {b"one", b"two"}, "what was not committed comes again")
            self.assertEqual(read(hung, 2), {b"one", b"two"}, "it joins again with its next fetch")


def next_value(reader: Consumer | GroupConsumer) -> bytes | None:
    while True:
        records = reader.fetch(wait=5.0)
        if records:
            return records[0].value


def read(member: GroupConsumer, n: int) -> set[bytes]:
    out: list[bytes] = []
    while len(out) < n:
        out += [r.value or b"" for r in member.fetch(wait=5.0)]
    return set(out)


def wait_until(condition) -> None:  # type: ignore[no-untyped-def]
    waiter = threading.Event()
    for _ in range(3000):
        if condition():
            return
        waiter.wait(0.01)
    raise AssertionError("it never came to that")


if __name__ == "__main__":
    unittest.main()
