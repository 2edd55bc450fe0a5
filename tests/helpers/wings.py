"""The package's wings, their order, and the imports of its modules."""

import ast
from collections.abc import Iterator
from pathlib import Path

import flask_idempotence

PACKAGE = Path(flask_idempotence.__file__).parent

LEVELS = (
    {"errors", "signals"},
    {"config"},
    {"stores"},
    {"response"},
    {"request", "exactly_once"},
    {"engine"},
    {"guards"},
)
"""Each wing may import those of the levels before its own. The face may import all of them."""

FACE = {
    "",
    "extension",
    "web",
    "cli",
    "metrics",
    "opentelemetry",
    "openapi",
    "logs",
    "testing",
    "client",
}
"""Modules that no wing may import; `""` is the package itself."""

_LEVEL_OF = {wing: level for level, wings in enumerate(LEVELS) for wing in wings}


def level_of(wing: str) -> int:
    """Return the level of a wing; the face stands above all wings."""
    return _LEVEL_OF.get(wing, len(LEVELS))


def wing_of(module: str) -> str:
    """Return the wing of a module."""
    return module.partition(".")[0]


def module_at(path: Path) -> str:
    """Return the name of a module within the package; `""` is the package itself."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_at(path): path for path in sorted(PACKAGE.rglob("*.py"))}
"""The files of the modules, by name within the package."""


def imports_of(path: Path) -> set[str]:
    """Return the package's modules that a file imports, in functions and for its types, too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {found for node in ast.walk(tree) for found in _imported(node, path)}


def _imported(node: ast.AST, path: Path) -> Iterator[str]:
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        source = _source(node, path)
        names = [f"{source}.{alias.name}" for alias in node.names]
        names = [name if _inside(name) in MODULES else source for name in names]
    else:
        names = []
    yield from (module for name in names if (module := _inside(name)) is not None)


def _source(node: ast.ImportFrom, path: Path) -> str:
    if not node.level:
        return node.module or ""
    folder = path.parents[node.level - 1].relative_to(PACKAGE.parent)
    return ".".join([*folder.parts, *filter(None, [node.module])])


def _inside(name: str) -> str | None:
    """Return the name within the package; None for a module of another one."""
    top, _, rest = name.partition(".")
    return rest if top == PACKAGE.name else None
