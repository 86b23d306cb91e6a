"""A client for Logbook brokers, on the standard library alone."""

from .client import Client, Produced, Record
from .consumer import Consumer
from .errors import BrokerError, LogbookError, OffsetOutOfRange, ProtocolError, Unreachable
from .group import GroupConsumer
from .producer import Producer

__all__ = [
    "BrokerError",
    "Client",
    "Consumer",
    "GroupConsumer",
    "LogbookError",
    "OffsetOutOfRange",
    "Produced",
    "Producer",
    "ProtocolError",
    "Record",
    "Unreachable",
]
