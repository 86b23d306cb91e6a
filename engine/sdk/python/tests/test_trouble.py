"""Clients in trouble: what a wrong address, a hung broker and a strange answer look like."""

from __future__ import annotations

import http.server
import pathlib
import socket
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "src"))

from logbook_client import BrokerError, Client, Producer, ProtocolError, Unreachable  # noqa: E402
from logbook_client.client import addresses  # noqa: E402
from logbook_client.connection import decode_frame, encode_frame  # noqa: E402


class Fake:
    """A broker that answers every request by a rule."""

    def __init__(self, rule: "dict[str, object]") -> None:
        self.rule = rule
        self.asked: list[str] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                c, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(c,), daemon=True).start()

    def _serve(self, c: socket.socket) -> None:
        stream = c.makefile("rb")
        while True:
            head = stream.read(4)
            if len(head) < 4:
                return
            request = decode_frame(stream.read(int.from_bytes(head, "big")))
            self.asked.append(request["type"])
            payload = {"broker": 1, "version": 1} if request["type"] == "hello" else self.rule[request["type"]]
            kind = "error" if isinstance(payload, dict) and "code" in payload else request["type"]
            c.sendall(encode_frame(request["id"], kind, payload))

    def close(self) -> None:
        self._listener.close()


def metadata(address: str) -> "dict[str, object]":
    partition = {"leader": 1, "epoch": 1, "replicas": [1], "active": [1]}
    return {"brokers": [{"id": 1, "address": address, "alive": True}], "topics": [{"name": "t", "router": "murmur2", "partitions": [partition]}]}


class Trouble(unittest.TestCase):
    def fake(self) -> Fake:
        f = Fake({})
        f.rule["metadata"] = metadata(f.address)
        self.addCleanup(f.close)
        return f

    def test_addresses(self) -> None:
        self.assertEqual(addresses("a:1, b:2"), ["a:1", "b:2"])
        self.assertEqual(addresses(["a:1 ", "[::1]:2"]), ["a:1", "[::1]:2"])
        for bad in ("", "host", "host:", ":9400", "host:port", "host:0", "host:70000", "host:-1", "host:\u0661"):
            with self.assertRaises(ValueError, msg=bad):
                addresses(bad)
        with self.assertRaises(ValueError):
            Producer("127.0.0.1")

    def test_a_hung_broker_at_the_head(self) -> None:
        hung = socket.create_server(("127.0.0.1", 0))  # the system takes connections, and nobody answers
        self.addCleanup(hung.close)
        good = self.fake()
        with Client(f"127.0.0.1:{hung.getsockname()[1]},{good.address}") as c:
            began = time.monotonic()
            for _ in range(20):
                c.metadata()
            self.assertLess(time.monotonic() - began, 9.0)

    def test_redirects_in_a_circle(self) -> None:
        a, b = self.fake(), self.fake()
        a.rule["produce"] = {"code": "not_leader", "message": "ask the other", "address": b.address}
        b.rule["produce"] = {"code": "not_leader", "message": "ask the other", "address": a.address}
        with Producer(a.address, patience=2.0) as p, self.assertRaises(BrokerError):
            p.send("t", b"x")
        self.assertLess(len(a.asked) + len(b.asked), 60)

    def test_a_web_server(self) -> None:
        web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
        http.server.BaseHTTPRequestHandler.log_message = lambda *_: None  # type: ignore[method-assign]
        threading.Thread(target=web.serve_forever, daemon=True).start()
        self.addCleanup(web.server_close)
        self.addCleanup(web.shutdown)
        began = time.monotonic()
        with Client(f"127.0.0.1:{web.server_address[1]}") as c, self.assertRaises((ProtocolError, Unreachable)) as caught:
            c.metadata()
        self.assertLess(time.monotonic() - began, 9.0)
        self.assertIn("HTTP", str(caught.exception))

    def test_a_name_that_nobody_knows(self) -> None:
        seed = self.fake()
        seed.rule["metadata"] = metadata("broker-7.invalid:9400")
        with Producer(seed.address, patience=0.5) as p, self.assertRaises(Unreachable) as caught:
            p.send("t", b"x")
        self.assertIn("LOGBOOK_ADVERTISE", str(caught.exception))

    def test_partitions_that_are_none(self) -> None:
        f = self.fake()
        with Producer(f.address) as p:
            began = time.monotonic()
            with self.assertRaises(ValueError):
                p.send("t", b"x", partition=-1)
            with self.assertRaises(BrokerError) as caught:
                p.send("t", b"x", partition=7)
            self.assertEqual(caught.exception.code, "unknown_partition")
            self.assertLess(time.monotonic() - began, 5.0)
            for wrong in ("0", 1.5, True):
                with self.assertRaises(TypeError):
                    p.send("t", b"x", partition=wrong)  # type: ignore[arg-type]
            with self.assertRaises(TypeError):
                p.send("t", b"x", headers={"h": "text"})  # type: ignore[dict-item]


if __name__ == "__main__":
    unittest.main()
