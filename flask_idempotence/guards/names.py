"""What names an operation of `once`: its scope and its id."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

SCOPE = re.compile(r"[A-Za-z0-9_.-]{1,64}")

Id = str | int | UUID | tuple["Id", ...]
"""What may name an operation. `7` and `"7"` are two; a tuple is for what has several parts."""

NO_ID: Any = object()


def plain(id_: Any) -> Any:
    """Return an id as JSON can tell it from every other.

    Raises:
        TypeError: it is none.
    """
    if isinstance(id_, UUID):
        return ["uuid", id_.hex]
    if isinstance(id_, tuple) and id_:
        return ["tuple", *map(plain, id_)]
    if isinstance(id_, int) and not isinstance(id_, bool):
        return id_
    if isinstance(id_, str) and id_:
        return id_
    raise TypeError(
        "An id of once() is a text that is not empty, an integer, a UUID, or a tuple of these, "
        f"not {type(id_).__name__}."
    )
