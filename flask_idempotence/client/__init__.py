"""The caller's side: one key for all attempts at a request, and when to try again.

`flask_idempotence.client.requests` has an adapter for requests, `flask_idempotence.client.httpx`
transports for httpx. They are for any server that knows the header, and need the extra:
`pip install "flask-idempotence[client]"`.
"""

from __future__ import annotations

from .retries import RETRIED_STATUSES, Retries, new_key, was_replayed

__all__ = ["RETRIED_STATUSES", "Retries", "new_key", "was_replayed"]
