"""The application of hosts whose clocks differ."""

import time
import uuid

from flask import request
from helpers.applications.plain import app, idempotence

from flask_idempotence import idempotent, no_repeat_submit, one_time_token

app.get("/time")(lambda: str(time.time()))
app.post("/issue")(idempotence.issue_token)


def run():
    time.sleep(float(request.headers.get("Takes", 0)))
    return f"ran: {uuid.uuid4()}", int(request.headers.get("Status", 200))


GUARDS = {
    "lock": no_repeat_submit(interval=20),
    "key": idempotent(required=True),
    "short": idempotent(required=True, ttl=600),
    "token": one_time_token,
    "again": one_time_token(restore_on_failure=True),
    "token-key": idempotent(key="Idempotence-Token", required=True),
    "short-token-key": idempotent(key="Idempotence-Token", required=True, ttl=600),
}
for name, guard in GUARDS.items():
    app.add_url_rule(f"/{name}", name, guard(run), methods=["POST"])
