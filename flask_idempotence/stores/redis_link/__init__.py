"""The link to Redis: sends commands within one deadline, over connections of its own."""

from .connections import Command
from .link import Link

__all__ = ["Command", "Link"]
