"""The extensions. Every module can import them without the application."""

from __future__ import annotations

from flask_idempotence import Idempotence

idempotence = Idempotence()
