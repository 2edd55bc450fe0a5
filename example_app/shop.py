"""The catalogue, with likes and comments in lock mode, which needs nothing from the page."""

from __future__ import annotations

from http import HTTPStatus

from flask import Blueprint, abort, jsonify, redirect, render_template, request, url_for
from flask.typing import ResponseReturnValue

from flask_idempotence import RepeatSubmit, no_repeat_submit

from .answers import wants_page
from .catalogue import PRODUCTS, check_product, product_or_404
from .database import database
from .languages import Lazy, gettext

LONGEST_COMMENT = 280
LONGEST_NAME = 40

blueprint = Blueprint("shop", __name__)
blueprint.url_value_preprocessor(check_product)


@blueprint.get("/")
def catalogue() -> ResponseReturnValue:
    """Show all products."""
    rows = database().read("SELECT product, count(*) AS count FROM likes GROUP BY product")
    likes = {row["product"]: row["count"] for row in rows}
    return render_template("catalogue.html", products=PRODUCTS.values(), likes=likes)


@blueprint.get("/products/<slug>")
def product(slug: str) -> ResponseReturnValue:
    """Show a product and its comments."""
    return product_page(slug)


# The same like from the same sender is refused while the first one runs, and for five seconds.
# The shop has no login, so the sender is the IP address.
@blueprint.post("/products/<slug>/like")
@no_repeat_submit(5, Lazy("You have just liked this. It counts once in five seconds."))
def like(slug: str) -> ResponseReturnValue:
    """Count a like."""
    database().write("INSERT INTO likes (product) VALUES (?)", slug)
    if wants_page():
        return redirect(url_for(".product", slug=slug), HTTPStatus.SEE_OTHER)
    return jsonify(likes=count_likes(slug)), HTTPStatus.CREATED


# The fields of the form are part of the lock: a comment with another text is another request.
@blueprint.post("/products/<slug>/comments")
@no_repeat_submit(10, Lazy("You have just sent this comment. The list below shows it once."))
def comment(slug: str) -> ResponseReturnValue:
    """Add a comment."""
    text, name = request.form.get("text", "").strip(), request.form.get("name", "").strip()
    if not text or len(text) > LONGEST_COMMENT or len(name) > LONGEST_NAME:
        text = gettext("Enter a comment of 1 to %(most)s characters.")
        abort(400, text % {"most": LONGEST_COMMENT})
    database().write(
        "INSERT INTO comments (product, name, text) VALUES (?, ?, ?)", slug, name, text
    )
    return redirect(url_for(".product", slug=slug, _anchor="comments"), HTTPStatus.SEE_OTHER)


@blueprint.errorhandler(RepeatSubmit)
def repeated(error: RepeatSubmit) -> ResponseReturnValue:
    """Show a browser the page of the product; a script gets the problem document."""
    slug = (request.view_args or {})["slug"]
    return product_page(slug, error) if wants_page() else error


def product_page(slug: str, error: RepeatSubmit | None = None) -> ResponseReturnValue:
    """Return the page of a product, below a refusal if there is one."""
    page = render_template(
        "product.html",
        product=product_or_404(slug),
        likes=count_likes(slug),
        comments=database().read(
            "SELECT name, text FROM comments WHERE product = ? ORDER BY rowid DESC LIMIT 50", slug
        ),
        longest_comment=LONGEST_COMMENT,
        longest_name=LONGEST_NAME,
        notice=error and error.description,
    )
    return page, error.code if error else HTTPStatus.OK


def count_likes(slug: str) -> int:
    """Count the likes of a product."""
    count: int = database().value("SELECT count(*) FROM likes WHERE product = ?", slug)
    return count
