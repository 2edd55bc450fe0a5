"""The application of processes that tests start: its settings are `FLASK_…` in the environment."""

import os

from flask import Flask

from flask_idempotence import Idempotence

app = Flask("plain")
app.config["SECRET_KEY"] = "a secret for the tests"
app.config.from_prefixed_env()
idempotence = Idempotence(app)


@app.get("/")
def index():
    return {"pid": os.getpid()}
