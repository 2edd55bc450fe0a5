"""What may name an operation, and what stands in the store for it."""

import enum
import hashlib
import hmac
from uuid import UUID

import pytest
from helpers.once_operations import OnceApp

ID = UUID("8e03978e-40d5-43e8-bc93-6894a57f9324")


class Kind(enum.IntEnum):
    ORDER = 1


DISTINCT = [
    *(1, "1", 0, -1, "0", " ", "1 ", 10**100, 10**100 + 1),
    *("a", "A", "ä", "a\u0308", "\udc80", "\ud83d\ude00", "\x00", "a\nb", "a:b"),
    *(ID, str(ID), ID.hex, ("uuid", ID.hex), (str(ID),), (ID,)),
    *((1,), ("1",), (1, 2), (2, 1), (12,), ("1", "2"), ("1,2",), ((1,), 2), (1, (2,)), ((1, 2),)),
    *(("tuple", 1), ("a", ("b", "c")), ("a", "b", "c"), "[1]", "null", "true"),
]


def test_every_id_is_its_own():
    once_app = OnceApp()
    assert [once_app.word(id_) for id_ in DISTINCT] == ["first"] * len(DISTINCT)
    assert [once_app.word(id_) for id_ in DISTINCT] == ["done"] * len(DISTINCT)


def test_what_is_equal_is_the_same_operation():
    once_app = OnceApp()
    assert once_app.word(ID) == "first"
    assert once_app.word(UUID(ID.hex.upper())) == "done"
    assert [once_app.word(1), once_app.word(Kind.ORDER)] == ["first", "done"]


BAD = {
    "nothing": None,
    "a truth": True,
    "a number with a point": 1.5,
    "bytes": b"1",
    "a list": ["1"],
    "an object": object(),
    "a set": {1},
    "an empty text": "",
    "an empty tuple": (),
    "a tuple with a truth": (1, True),
    "a tuple with an empty one": (1, ()),
    "a tuple with an empty text": ("", 1),
    "a tuple with nothing": (1, None),
}


@pytest.mark.parametrize("id_", BAD.values(), ids=BAD)
def test_what_cannot_name_an_operation_is_refused(id_):
    once_app = OnceApp()
    with pytest.raises(TypeError, match="The id of once") as caught:
        once_app.work(id_)
    if id_ in ("", ()):
        assert "not an empty " in str(caught.value)
    assert not list(once_app.store.scan(""))


def test_an_integer_too_long_to_be_written_is_refused_with_a_reason():
    with pytest.raises(ValueError, match="integer"):
        OnceApp().work(10**5000)


@pytest.mark.parametrize("scope", ["a", "send-mail", "shop.orders_2", "A" * 64, "-", "."])
def test_a_scope_is_a_short_word(scope):
    once_app = OnceApp()
    assert f":once:{scope}:" in once_app.key_of(scope=scope)


def test_with_a_function_for_its_id_it_is_a_decorator_only():
    once_app = OnceApp()
    with once_app.app.app_context(), pytest.raises(RuntimeError, match="decorator"):
        once_app.idempotence.once("mail", key=str).__enter__()


def test_what_the_function_returns_must_be_an_id():
    once_app, ran = OnceApp(), []

    @once_app.idempotence.once("mail", key=lambda message: message.get("id"))
    def handle(message):
        ran.append(message)

    with once_app.app.app_context(), pytest.raises(TypeError, match="NoneType"):
        handle({})
    assert ran == []


# Frozen: another text for the same operation would let what is done be done again.
VECTORS = {
    "7": ("invoice", 7, b'["once","invoice",7]'),
    "text": ("invoice", "ä7", b'["once","invoice","\\u00e47"]'),
    "uuid": ("mail", ID, b'["once","mail",["uuid","8e03978e40d543e8bc936894a57f9324"]]'),
    "tuple": ("a.b", ("eu", (7, "x")), b'["once","a.b",["tuple","eu",["tuple",7,"x"]]]'),
}


@pytest.mark.parametrize(("scope", "id_", "message"), VECTORS.values(), ids=VECTORS)
def test_the_store_key_is_this_one(scope, id_, message):
    once_app = OnceApp(IDEMPOTENCE_PREFIX="shop")
    key = hmac.digest(b"a secret for the tests", b"flask-idempotence/hash", hashlib.sha256)
    text = hmac.digest(key, message, hashlib.sha256)[:16].hex()
    assert once_app.key_of(id_, scope=scope) == f"shop:2:once:{scope}:{text}"
