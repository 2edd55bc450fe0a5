"""Pages with what templates are given, and a reader of them."""

from html.parser import HTMLParser

from flask import render_template_string

from flask_idempotence import one_time_token
from helpers.apps import make_app

ALL = "{{ idempotence_meta() }}{{ idempotence_script() }}{{ idempotence_field() }}"


class Elements(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def __getitem__(self, tag):
        (attributes,) = [attributes for name, attributes in self.found if name == tag]
        return attributes


def page_app(template=ALL, *, headers=None, **settings):
    app = make_app(**settings)

    @app.route("/", methods=["GET", "POST"])
    @one_time_token()
    def page():
        return render_template_string(template), headers or {}

    return app


def page_of(app, path="/", **options):
    return Elements(app.test_client().get(path, **options).text)
