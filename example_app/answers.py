"""How views answer: with a page for a browser, with JSON for scripts."""

from __future__ import annotations

from flask import request


def wants_page() -> bool:
    """Whether the client would rather have a page than JSON."""
    accept = request.accept_mimetypes
    return accept["text/html"] > accept["application/json"]
