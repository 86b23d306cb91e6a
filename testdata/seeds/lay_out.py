#!/usr/bin/env python3
"""Lays out directories as PyStream and kafka-lite do, from their descriptions alone.

    python3 testdata/seeds/lay_out.py DIRECTORY

It shares no code with the engine, so that what the engine reads is not what it wrote itself.
A listing of every record, expected.tsv, goes beside them: kind, topic, partition, offset, time
in ns, key and value in hex ("-" is none). The tests run it; nothing of its output is kept.
"""

import hashlib
import json
import pathlib
import struct
import sys

root = pathlib.Path(sys.argv[1])
start = 978_307_200_000_000_000  # 2001-01-01 in ns


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def format_0(offset, timestamp, payload):
    body = struct.pack(">QqI", offset, timestamp, len(payload)) + payload
    return struct.pack(">I", len(body)) + body


def format_1(offset, timestamp, key, value):
    return struct.pack(">QqI", offset, timestamp, len(key)) + key + struct.pack(">I", len(value)) + value


def fnv1a(key):
    h = 0x811C9DC5
    for b in key:
        h = (h ^ b) * 0x01000193 & 0xFFFFFFFF
    return h


expected = []


def note(kind, topic, partition, offset, timestamp, key, value):
    expected.append((kind, topic, partition, offset, timestamp, "-" if key is None else key.hex(), value.hex()))


# PyStream: payloads of all lengths, with every byte value, routed by SHA-256 of a key that is not kept.
PARTITIONS = 3
logs = [b""] * PARTITIONS
ends = [0] * PARTITIONS
for i in range(300):
    payload = bytes((i + j) % 256 for j in range(i))
    p = int.from_bytes(hashlib.sha256(b"user-%d" % (i % 17)).digest(), "big") % PARTITIONS
    logs[p] += format_0(ends[p], start + i, payload)
    note("pystream", "events", p, ends[p], start + i, None, payload)
    ends[p] += 1
meta = {"version": 1, "name": "events", "partition_count": PARTITIONS}
write(root / "pystream/data/events/topic.meta", json.dumps(meta).encode())
for p, data in enumerate(logs):
    write(root / f"pystream/data/events/partition-{p:06d}/log.bin", data)
for consumer, offset in (("analytics-worker", 5), ("billing", ends[1])):
    write(root / f"pystream/offsets/{consumer}/events/partition-000001.offset", json.dumps({"version": 1, "offset": offset}).encode())

# Its cluster: a leader may be ahead of its followers.
write(root / "pystream/cluster-data/cluster.meta", json.dumps({"version": 1, "brokers": [1, 2, 3]}).encode())
orders = [format_0(i, start + 1000 + i, b"order %d" % i) for i in range(40)]
for broker, count in ((1, 40), (2, 38), (3, 40)):
    write(root / f"pystream/cluster-data/broker-{broker:06d}/topics/orders/partition-000000/log.bin", b"".join(orders[:count]))
for i in range(40):
    note("pystream-cluster", "orders", 0, i, start + 1000 + i, None, b"order %d" % i)

# kafka-lite: keys, segments named by their first offset, and a record that was not finished.
segments = [{0: b""}, {0: b""}]
ends = [0, 0]
for i in range(200):
    key, value = b"key-%d" % (i % 11), bytes((i * j) % 256 for j in range(i % 60))
    p = fnv1a(key) % 2
    first = max(segments[p])
    if len(segments[p][first]) >= 2000:
        first = ends[p]
        segments[p][first] = b""
    segments[p][first] += format_1(ends[p], start + i, key, value)
    note("kafka-lite", "clicks", p, ends[p], start + i, key, value)
    ends[p] += 1
segments[1][max(segments[1])] += format_1(ends[1], start, b"torn", b"never finished")[:-5]
for p, files in enumerate(segments):
    for first, data in files.items():
        write(root / f"kafka-lite/clicks/{p}/{first:020d}.log", data)

with open(root / "expected.tsv", "w") as out:
    for row in expected:
        print(*row, sep="\t", file=out)
