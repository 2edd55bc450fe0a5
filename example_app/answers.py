"""Content negotiation: a page for a browser, JSON for a script."""

from __future__ import annotations

from flask import request


def wants_page() -> bool:
    """Return whether the client prefers a page to JSON."""
    accept = request.accept_mimetypes
    return accept["text/html"] > accept["application/json"]
