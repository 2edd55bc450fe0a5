"""The lab sends many requests to one view at once, and shows the outcome of each."""

from __future__ import annotations

from .events import listen
from .pages import blueprint

__all__ = ["blueprint", "listen"]
