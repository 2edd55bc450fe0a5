"""No public name is without a type that every type checker reads alike."""

import importlib
import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.typing

PUBLIC_MODULES = [
    "flask_idempotence",
    "flask_idempotence.client",
    "flask_idempotence.client.httpx",
    "flask_idempotence.client.requests",
    "flask_idempotence.logs",
    "flask_idempotence.metrics",
    "flask_idempotence.openapi",
    "flask_idempotence.testing",
]


def public_names():
    names = set()
    for module in map(importlib.import_module, PUBLIC_MODULES):
        own = {
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
        }
        for name in getattr(module, "__all__", own):
            names.add(f"{module.__name__}.{name}")
            value = getattr(module, name)
            if inspect.isclass(value):
                names |= {f"{base.__module__}.{base.__qualname__}" for base in value.__mro__}
    return names


def test_pyright_knows_the_type_of_every_public_name_and_of_its_members():
    # It looks for the package in the environment of the interpreter that it finds first.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = [sys.executable, "-m", "pyright", "--outputjson", "--ignoreexternal"]
    told = subprocess.run(
        [*command, "--verifytypes", "flask_idempotence"],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    symbols = json.loads(told.stdout)["typeCompleteness"]["symbols"]
    names = public_names()
    complete, incomplete = set(), {}
    for symbol in symbols:
        name = symbol["name"]
        if name in names or name.rpartition(".")[0] in names:
            if symbol["isTypeKnown"] and not symbol["isTypeAmbiguous"]:
                complete.add(name)
            else:
                incomplete[name] = [found["message"] for found in symbol["diagnostics"]]
    assert incomplete == {}
    assert len(complete) > 200
    assert "flask_idempotence.idempotent" in complete
