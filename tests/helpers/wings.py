"""The package's wings, their order, and the imports of its modules."""

import ast
from importlib.util import resolve_name
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
    *("", "extension", "web", "cli", "figures", "metrics", "opentelemetry", "openapi", "logs"),
    "testing",
    "client",
}
"""Modules that no wing may import; `""` is the package itself."""

_LEVEL_OF = {wing: level for level, wings in enumerate(LEVELS) for wing in wings}


def level_of(wing: str) -> int:
    """Return the level of a wing; the face stands above all wings."""
    return _LEVEL_OF.get(wing, len(LEVELS))


def wing_of(module: str) -> str:
    return module.partition(".")[0]


def module_at(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_at(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imports_of(path: Path) -> set[str]:
    package = (
        ".".join(path.parent.relative_to(PACKAGE.parent).parts)
        if path.is_relative_to(PACKAGE)
        else ""
    )
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            source = resolve_name("." * node.level + (node.module or ""), package)
            names = [f"{source}.{alias.name}" for alias in node.names]
            found |= {name if within(name) in MODULES else source for name in names}
    return {within(name) for name in found if name.split(".")[0] == PACKAGE.name}


def within(name: str) -> str:
    return name.partition(".")[2]
