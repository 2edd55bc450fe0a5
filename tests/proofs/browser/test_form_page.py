"""The shop of docs/how-to/protect-a-form.md in a browser: a second click gets the order's page."""

import threading

import pytest
from flask import flash, request, session
from helpers.callers.http_callers import serving
from helpers.http_transcripts import FORM_PAGE, run_blocks
from helpers.servers.processes import until
from proofs.browser.browsers import place_of, shows, write
from sqlalchemy import event

pytestmark = pytest.mark.browser


@pytest.fixture
def shop(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    names = run_blocks(FORM_PAGE, 1)
    app = names["app"]
    names.update(posts=[], clicked=threading.Event())

    @app.before_request
    def count():
        if request.method == "POST":
            names["posts"].append(request.path)

    @event.listens_for(names["db"].session, "before_commit")
    def change_the_session(_):
        flash("Thank you.")
        names["clicked"].wait(10)

    @app.get("/flashed")
    def flashed():
        return f"<h1>{len(session.get('_flashes', []))}</h1>"

    with serving(app) as url:
        yield {**names, "url": url}


@pytest.mark.parametrize("scripts", [True, False])
def test_the_second_click_gets_the_order_and_the_cart_is_empty(visit, shop, scripts):
    page = visit(java_script_enabled=scripts)
    replayed = []
    page.on("response", lambda said: replayed.append(said.headers.get("idempotent-replayed")))
    page.goto(shop["url"] + "/login")
    assert shows(page, "#cart", "Mug, Tea")
    write(page, "[name=address]", "1 High Street")
    where = place_of(page, "button")
    page.mouse.click(*where)
    assert until(lambda: shop["posts"])
    page.mouse.click(*where)
    sent = 1 if scripts else 2  # the script ignores the second click
    assert until(lambda: len(shop["posts"]) == sent)
    shop["clicked"].set()
    assert shows(page, "h1", "Thank you for order 1.")
    assert (len(shop["posts"]), replayed.count("true")) == (sent, sent - 1)
    page.goto(shop["url"] + "/checkout")
    assert shows(page, "#cart", "Your cart is empty.")
    # The browser has thrown the first response away, and its session with it.
    page.goto(shop["url"] + "/flashed")
    assert shows(page, "h1", "1" if scripts else "0")
