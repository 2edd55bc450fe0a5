"""The lab: fire many requests at one view at once, and watch what becomes of each."""

from __future__ import annotations

from .events import listen
from .pages import blueprint

__all__ = ["blueprint", "listen"]
