"""The rules by which a key finds its partition. They are the broker's, number for number."""

from __future__ import annotations

import hashlib


def murmur2(key: bytes) -> int:
    """Kafka's murmur2, with its sign bit cleared."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(key)
    whole = len(key) // 4 * 4
    for i in range(0, whole, 4):
        k = int.from_bytes(key[i : i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = h * m & mask ^ k
    rest = key[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return (h ^ h >> 15) & 0x7FFFFFFF


def fnv1a(key: bytes) -> int:
    """FNV-1a of 32 bits, without a sign."""
    h = 0x811C9DC5
    for b in key:
        h = (h ^ b) * 0x01000193 & 0xFFFFFFFF
    return h


def sha256(key: bytes) -> int:
    """SHA-256 as a number, big-endian."""
    return int.from_bytes(hashlib.sha256(key).digest(), "big")


RULES = {"murmur2": murmur2, "fnv1a": fnv1a, "sha256": sha256}


def partition_for(rule: str, key: bytes, partitions: int) -> int:
    """The partition for a key."""
    return RULES[rule](key) % partitions
