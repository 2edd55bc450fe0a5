"""Interface of a store that passes messages on, for `flask idempotence watch`."""

from __future__ import annotations

from abc import ABC, abstractmethod

from .base import Store


class Subscription(ABC):
    """A connection on which the messages of one channel arrive."""

    @abstractmethod
    def receive(self, seconds: float) -> bytes:
        """Return the next message.

        Raises:
            StoreError: the connection has ended, or no message came within so many seconds. The
                subscription must then be closed.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""


class BroadcastingStore(Store):
    """A store that passes messages on between processes. No guard needs it.

    Every method raises `StoreError` where the store does not answer.
    """

    @abstractmethod
    def count_listeners(self, channel: str) -> int:
        """Return how many subscriptions a channel has."""

    @abstractmethod
    def publish(self, channel: str, message: bytes) -> int:
        """Send a message to all subscriptions of a channel; after a lost answer, maybe twice.

        Returns how many the server that took it has; another server of a cluster may have more.
        """

    @abstractmethod
    def subscribe(self, channel: str) -> Subscription:
        """Subscribe to a channel."""
