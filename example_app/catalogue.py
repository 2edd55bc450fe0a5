"""What the shop sells."""

from __future__ import annotations

from dataclasses import dataclass

from flask import abort


@dataclass(frozen=True)
class Product:
    """Something to buy; the price is in euros."""

    slug: str
    name: str
    price: int
    text: str

    @property
    def picture(self) -> str:
        """The name of its file."""
        return f"pictures/{self.slug}.svg"


_ALL = (
    Product("mug", "Blue mug", 12, "Holds a third of a litre, and one order at a time."),
    Product("teapot", "Teapot", 34, "Pours as often as you like. It is bought once."),
    Product("notebook", "Notebook", 9, "Ruled. What you write down twice stands there twice."),
    Product("fern", "Fern", 18, "Wants water once a day, whoever gives it."),
)
PRODUCTS = {product.slug: product for product in _ALL}


def product_or_404(slug: str) -> Product:
    """Return the product of that name, or answer the request with 404."""
    return PRODUCTS.get(slug) or abort(404)
