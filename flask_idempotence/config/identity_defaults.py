"""Defaults of the settings by which senders are told apart."""

from __future__ import annotations

SESSION_KEYS = (
    "_user_id",
    "user_id",
    "uid",
    "username",
    "user",
    "account_id",
    "email",
    "sub",
    "identity.id",
)
"""Default of `IDEMPOTENCE_IDENTITY_SESSION_KEYS`; the last one is Flask-Principal's."""

HEADERS = (
    "X-Api-Key",
    "Api-Key",
    "X-Auth-Token",
    "X-Access-Token",
    "X-Session-Token",
    "X-Forwarded-User",
    "X-Forwarded-Email",
    "X-Remote-User",
    "Remote-User",
    "X-Auth-Request-User",
    "Cf-Access-Authenticated-User-Email",
    "X-Amzn-Oidc-Identity",
    "X-Goog-Authenticated-User-ID",
    "X-MS-Client-Principal-ID",
    "X-User-ID",
    "Stripe-Account",
    "X-Tenant-ID",
    "X-Account-ID",
    "X-Organization-ID",
)
"""Default of `IDEMPOTENCE_IDENTITY_HEADERS`."""

COOKIES = (
    "access_token_cookie",
    "refresh_token_cookie",
    "*jwt*",
    "token",
    "*_token",
    "*-token",
    "session_id",
    "sessionid",
    "sid",
    "connect.sid",
    "JSESSIONID",
    "PHPSESSID",
)
"""Default of `IDEMPOTENCE_IDENTITY_COOKIES`."""
