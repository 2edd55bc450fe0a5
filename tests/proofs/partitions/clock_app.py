"""The application of hosts whose clocks differ; its settings come from the environment."""

import json
import os
import time
import uuid

from flask import Flask, request

from flask_idempotence import Idempotence, idempotent, no_repeat_submit, one_time_token

app = Flask("clocks")
app.config.update(SECRET_KEY="a secret for the tests", **json.loads(os.environ["SETTINGS"]))
idempotence = Idempotence(app)
app.get("/")(lambda: str(time.time()))
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
