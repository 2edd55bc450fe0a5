"""The products of the shop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flask import abort


@dataclass(frozen=True)
class Product:
    """A product; its price is in euros."""

    slug: str
    name: str
    price: int
    text: str

    @property
    def picture(self) -> str:
        """The path of its picture below `static`."""
        return f"pictures/{self.slug}.svg"


_ALL = (
    Product("mug", "Blue mug", 12, "Holds a third of a litre."),
    Product("teapot", "Teapot", 34, "Pours four cups."),
    Product("notebook", "Notebook", 9, "Ninety-six ruled pages."),
    Product("fern", "Fern", 18, "Needs water once a day."),
)
PRODUCTS = {product.slug: product for product in _ALL}


def product_or_404(slug: str) -> Product:
    """Return the product, or abort with 404."""
    return PRODUCTS.get(slug) or abort(404)


def check_product(endpoint: str | None, values: dict[str, Any] | None) -> None:
    """Abort with 404 before the guard if the URL names an unknown product.

    Register it as a `url_value_preprocessor`. An error handler cannot abort.
    """
    del endpoint
    if values and "slug" in values:
        product_or_404(values["slug"])
