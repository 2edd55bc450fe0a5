"""Private and undocumented names of other libraries that the package uses, each with its fault.

A release that drops one fails here first.
"""

import ast
import importlib
import inspect
import re

import pytest
from flask import Flask
from helpers.repository import text_of
from helpers.wings import MODULES

from flask_idempotence.request import proxies

NAMES = {
    "_cached_data": (
        "werkzeug.wrappers.request",
        "a body that the application has read already is read again, and found empty",
    ),
    "_get_current_object": ("werkzeug.local", "no guard runs"),
    "_session": ("flask.ctx", "each guarded response has Vary: Cookie"),
    "_flashes": ("flask.helpers", "a flashed message counts as a sign of an account"),
    "_permanent": ("flask.sessions", "a permanent session counts as an account"),
    "_user_id": ("flask_login.login_manager", "a user of Flask-Login is not found"),
    "_login_user": ("flask_login.utils", "a user whom a test signs in is not found"),
    "_wrap_socket_with_ssl": ("redis.connection", "no connection by TLS"),
    "_connect": ("redis.connection", "no connection to Redis has a deadline"),
    "connection_kwargs": ("redis.connection", "no client is taken"),
    "_creator": ("sqlalchemy.pool.base", "a creator of the application is passed over"),
    "_max_overflow": ("sqlalchemy.pool.impl", "the store's pool has another size"),
    "_read_timeout": ("pymysql.connections", "a silent MySQL has no deadline"),
    "_sock": ("pymysql.connections", "a silent MySQL has no deadline"),
    "_usock": ("pg8000.core", "a silent PostgreSQL behind pg8000 has no deadline"),
    "_in_transaction": ("pg8000.legacy", "a round trip more for each connection"),
    "_backend_key_data": ("pg8000.core", "a pooler in between is not noticed"),
}
"""Where each is, and the fault that its loss would make."""

OWN_TOO = {"_connect", "_session", "connection_kwargs"}
"""Names that the package has for parts of its own as well, or that are not private."""

PUBLIC = {"_asdict", "_replace", "_flask_idempotence", "_flask_idempotence_response"}
"""Names of `NamedTuple`, which are documented; and of attributes that the package sets itself."""


def private_names(tree):
    read, own = set(), set()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                own.add(name)
            case ast.Attribute(attr=name) | ast.Constant(value=str(name)):
                read.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name):
                own.add(name)
            case ast.AsyncFunctionDef(name=name) | ast.arg(arg=name) | ast.alias(name=name):
                own.add(name)
    is_private = re.compile(r"_(?!_)[a-z][a-z_]*").fullmatch
    return set(filter(is_private, read)), own


def test_no_other_private_name_is_used():
    found = [private_names(ast.parse(text_of(path))) for path in MODULES.values()]
    own = set().union(*(each for _, each in found))
    used = set().union(*(each for each, _ in found)) - own - PUBLIC
    assert used == NAMES.keys() - OWN_TOO


@pytest.mark.parametrize("name", NAMES)
def test_the_library_has_it(name):
    module, fault = NAMES[name]
    source = inspect.getsource(importlib.import_module(module))
    assert re.search(rf"{name}\b", source), f"{module} has no {name} any more: {fault}"


def test_one_module_alone_imports_the_context_of_requests():
    named = [module for module, path in MODULES.items() if "request_ctx" in text_of(path)]
    assert named == ["request.proxies"]


def test_an_error_handler_takes_the_context_first_where_flask_has_one():
    """Else a claim that is lost under `within=` is a bare 500 in place of 409."""
    parameters = list(inspect.signature(Flask.handle_user_exception).parameters)[1:]
    assert proxies._HAS_ONE_CONTEXT is (parameters == ["ctx", "e"])
