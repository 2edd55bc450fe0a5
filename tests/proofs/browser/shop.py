"""A small shop for a browser, under a strict content security policy, on a server with threads."""

import threading
import time
from contextlib import contextmanager
from socket import SHUT_RDWR

from flask import Response, jsonify, render_template_string, request
from helpers.apps import make_app
from helpers.callers.http_callers import serving
from markupsafe import Markup

from flask_idempotence import idempotent, one_time_token

POLICY = (
    "default-src 'none'; script-src 'self'; connect-src 'self'; img-src 'self'; "
    "form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
NONCE = "bm9uY2U"

PAGE = """<!doctype html>
<html lang="en">
<title>Shop</title>
{{ idempotence_meta() }}
{% if ids %}<i id="idempotence"></i>{% endif %}
{{ idempotence_script(nonce=nonce) }}
<form action="/orders" method="post" target="{{ target }}" data-idempotence>
  {{ field or idempotence_field(empty=empty) }}
  {% for name in fields %}<input type="hidden" name="{{ name }}">{% endfor %}
  <input name="note" aria-label="Note" required>
  <button name="what" value="tea">Buy</button>
  <button name="what" value="gift">Give</button>
</form>
{% for name in images %}<img name="{{ name }}" alt="">{% endfor %}
{% for name in ids %}<i id="{{ name }}"></i>{% endfor %}
"""
EMPTY_FIELD = '<input type="hidden" name="idempotence_token" value="">'
CACHEABLE = {"Cache-Control": "max-age=600"}

PAY_PAGE = """<!doctype html>
<html lang="en">
<title>Pay</title>
{{ idempotence_meta() }}
{{ idempotence_script() }}
<script type="module" src="/pay.mjs"></script>
<button>Pay</button>
<output></output>
"""
PAY_SCRIPT = """
import { fetch as persistently } from "/_idempotence/idempotence.mjs";

document.querySelector("button").addEventListener("click", async () => {
  const body = new FormData();
  body.set("amount", "12");
  const timeout = Number(location.hash.slice(1));
  const options = { method: "POST", body, minDelay: 20, timeout };
  const response = await persistently("/payments", options);
  const { number } = await response.json();
  const told = [number, response.status, response.headers.get("Idempotent-Replayed")];
  told.push(persistently === globalThis.idempotence.fetch);
  document.querySelector("output").textContent = JSON.stringify(told);
});
"""


class Shop:
    def __init__(self, **settings):
        self.delay = 0.0
        self.released = threading.Event()
        """Ends the delay of orders."""
        self.csp = POLICY
        self.drops = 0
        self.names = {}
        self.posts, self.orders, self.tokens = [], [], 0
        self.payments, self.keys, self.answers = [], [], []
        self.app = make_app(**settings)
        self._add_hooks()
        self._add_forms()
        self._add_payments()

    def _add_hooks(self):
        app = self.app

        @app.before_request
        def watch():
            if request.endpoint == "idempotence.token":
                self.tokens += 1
            if request.method == "POST":
                self.posts.append(request.path)

        @app.after_request
        def be_strict(response):
            response.headers["Content-Security-Policy"] = self.csp
            return response

        app.get("/posts", endpoint="posts")(lambda: jsonify(len(self.posts)))
        app.get("/favicon.ico")(lambda: ("", 204))

    def _add_forms(self):
        app = self.app

        @app.get("/")
        def form():
            return self._form()

        @app.get("/clobbered")
        def form_with_names_of_properties():
            return self._form(field=EMPTY_FIELD, **self.names)

        @app.get("/elsewhere")
        def to_another_window():
            return self._form(target="_blank")

        @app.get("/cached")
        def cached_form():
            # The same for everybody: the script fetches the token.
            return self._form(empty=True), CACHEABLE

        @app.get("/careless")
        def cached_form_with_a_token():
            token = app.test_client().get("/token").json["token"]
            return self._form(field=EMPTY_FIELD.replace('""', f'"{token}"')), CACHEABLE

        @app.post("/orders")
        @one_time_token()
        def order():
            self.released.wait(self.delay)
            self.orders.append((request.form["note"], request.form.get("what")))
            return f"<!doctype html><title>Thanks</title><h1>Order {len(self.orders)}</h1>"

    def _form(self, *, field="", empty=False, target="_self", **more):
        more |= {"field": Markup(field), "nonce": NONCE if NONCE in self.csp else None}
        return render_template_string(PAGE, empty=empty, target=target, **more)

    def _add_payments(self):
        app = self.app

        app.get("/pay", endpoint="page")(lambda: render_template_string(PAY_PAGE))
        script = Response(PAY_SCRIPT, mimetype="text/javascript")
        app.get("/pay.mjs", endpoint="script")(lambda: script)

        @app.post("/payments")
        @idempotent(required=True)
        def pay():
            time.sleep(self.delay)
            self.payments.append(request.form["amount"])
            return jsonify(number=len(self.payments)), 201

        @app.after_request
        def lose_answers(response):
            if request.path == "/payments":
                self.keys.append(request.headers["Idempotency-Key"])
                self.answers.append(response.status_code)
                if len(self.answers) <= self.drops:
                    request.environ["werkzeug.socket"].shutdown(SHUT_RDWR)
            return response


@contextmanager
def running_shop(**settings):
    shop = Shop(**settings)
    with serving(shop.app) as shop.url:
        yield shop
