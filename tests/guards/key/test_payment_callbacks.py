"""The callbacks of payment providers, as docs/how-to/payment-callbacks.md receives them."""

import time
import types
from urllib.parse import parse_qsl, urlencode

import pytest
from helpers.callers.payment_providers import (
    PROVIDERS,
    SETTINGS,
    Notification,
    WechatXml,
    application_of_page,
)
from sqlalchemy import text
from werkzeug.exceptions import NotFound


class Shop:
    """The page's application in this process, with one open order."""

    def __init__(self, folder, monkeypatch):
        monkeypatch.setenv("FLASK_DATABASE", f"sqlite:///{folder}/shop.db")
        for name, value in SETTINGS.items():
            monkeypatch.setenv(f"FLASK_{name}", value)
        self.module = types.ModuleType("callbacks")
        exec(application_of_page(), vars(self.module))
        self.app = self.module.app
        self.app.testing = True
        with self.module.database.begin() as connection:
            for table in self.module.TABLES:
                connection.execute(text(table))
        self.order("A-1", 8800)

    def order(self, number, cents):
        with self.module.database.begin() as connection:
            into = f"INSERT INTO orders VALUES ('{number}', {cents}, 'CNY', 'open')"
            connection.execute(text(into))

    def send(self, notification, address="192.0.2.1"):
        path, headers, body = notification
        environ = {"REMOTE_ADDR": address}
        client = self.app.test_client()
        return client.post(path, data=body, headers=headers, environ_base=environ)

    def all(self, query):
        with self.module.database.begin() as connection:
            return [tuple(row) for row in connection.execute(text(query))]

    @property
    def payments(self):
        return self.all("SELECT provider, trade, cents, review FROM payments ORDER BY trade")

    def state(self, number="A-1"):
        [(state,)] = self.all(f"SELECT state FROM orders WHERE number = '{number}'")
        return state


@pytest.fixture
def shop(tmp_path, monkeypatch):
    return Shop(tmp_path, monkeypatch)


@pytest.fixture(params=PROVIDERS)
def provider(request):
    return PROVIDERS[request.param]


def contents(provider, answers):
    return [provider.is_content(answer.status_code, answer.data) for answer in answers]


ADDRESSES = ["192.0.2.1", "192.0.2.1", "203.0.113.5", "2001:db8::1", "198.51.100.7"]


def test_five_attempts_from_four_addresses_are_one_payment(shop, provider):
    sent = [provider.notify("trade-1", "A-1", 8800) for _ in ADDRESSES]
    assert len({(str(one.headers), one.body) for one in sent}) == 5
    answers = [shop.send(one, address) for one, address in zip(sent, ADDRESSES, strict=True)]
    assert contents(provider, answers) == [True] * 5
    assert ["Idempotent-Replayed" in answer.headers for answer in answers] == [False] + [True] * 4
    assert shop.payments == [(provider.ledger, "trade-1", 8800, 0)]
    assert shop.state() == "paid"


def test_without_the_loader_another_address_would_run_again(shop, provider, monkeypatch):
    """The trap that the page warns of; the unique index alone is left then."""
    monkeypatch.setattr(
        shop.app.extensions["idempotence"].engine.services.callbacks, "load_identity", None
    )
    answers = [shop.send(provider.notify("trade-1", "A-1", 8800), each) for each in ADDRESSES]
    assert ["Idempotent-Replayed" in answer.headers for answer in answers].count(True) == 1
    assert shop.payments == [(provider.ledger, "trade-1", 8800, 0)]


def altered(notification):
    path, headers, body = notification
    place = body.index(b"A-1")
    return Notification(path, headers, body[:place] + b"A-2" + body[place + 3 :])


def test_a_forged_notification_never_comes_as_far_as_the_guard(shop, provider):
    right = provider.notify("trade-1", "A-1", 8800)
    forged = [
        Notification(right.path, {"Content-Type": right.headers["Content-Type"]}, b""),
        Notification(right.path, {"Content-Type": right.headers["Content-Type"]}, b"{}"),
        Notification(right.path, right.headers, right.body.replace(b"sign", b"sgin") + b" x"),
    ]
    if b"A-1" in right.body:  # what is encrypted cannot be altered like this
        forged.append(altered(right))
    statuses = {shop.send(one).status_code for one in forged}
    assert statuses <= {400, 401}
    engine = shop.app.extensions["idempotence"].engine
    assert (shop.payments, len([*engine.store.scan("")])) == ([], 0)
    assert contents(provider, [shop.send(right)]) == [True]


@pytest.mark.parametrize("name", ["wechat3", "stripe"])
@pytest.mark.parametrize("off", [-400, 400])
def test_an_old_notification_is_refused(shop, name, off):
    old = PROVIDERS[name].notify("trade-1", "A-1", 8800, at=time.time() + off)
    assert shop.send(old).status_code == 401
    assert shop.payments == []


OF_ANOTHER_SHOP = {
    "alipay": {"app_id": "another"},
    "wechat": {"mch_id": "another"},
    "wechat3": {"secret": "another APIv3 key, also 32 bytes"},
}


@pytest.mark.parametrize("name", OF_ANOTHER_SHOP)
def test_what_was_signed_for_another_shop_is_refused(shop, name):
    theirs = PROVIDERS[name].notify("trade-1", "A-1", 8800, **OF_ANOTHER_SHOP[name])
    assert shop.send(theirs).status_code == 403
    assert shop.payments == []


def test_a_text_that_can_be_read_in_two_ways_is_refused(shop):
    """The buyer's own subject would give the signature of one cent to another payment."""
    alipay = PROVIDERS["alipay"]
    chosen = "&subject=x&total_amount=88.00&trade_no=T&trade_status=TRADE_SUCCESS&version=1"
    right = alipay.notify("1", "B-1", 1, subject=chosen.removeprefix("&subject="))
    sent = dict(parse_qsl(right.body.decode()))
    names = sorted(sent.keys() - {"sign", "sign_type"})
    text = "&".join(f"{name}={sent[name]}" for name in names)
    before, _, after = text.partition(chosen)
    forged = dict(part.split("=", 1) for part in (before + chosen).split("&"))
    forged |= {"version": "1" + after}
    in_a_name = {name: value for name, value in forged.items() if name != "version"}
    name, _, last = f"version=1{after}".rpartition("=")
    in_a_name[name] = last
    for fields in (forged, in_a_name, sent):
        signed = {**fields, "sign": sent["sign"], "sign_type": "RSA2"}
        answer = shop.send(right._replace(body=urlencode(signed).encode()))
        assert (answer.status_code, shop.payments) == (401, [])


HUGE, WIDE = 10**30, "\N{FULLWIDTH DIGIT EIGHT}" * 2
MALFORMED = {
    "alipay": [
        *({"total_amount": amount} for amount in ("88.001", "-88.00", "+88.00", "8.8e1", "88_00")),
        *(
            {"total_amount": amount}
            for amount in (WIDE + ".00", " 88.00", "NaN", "Infinity", "1e999999")
        ),
        *({"total_amount": amount} for amount in ("", "88,00", "0.00", str(HUGE))),
        *(
            {"without": name}
            for name in ("out_trade_no", "trade_no", "total_amount", "trade_status")
        ),
        *({"out_trade_no": number} for number in ("A-1\0", "A" * 65)),
        {"trade_no": "1" * 65},
        {"state": "TRADE_CLOSED", "out_trade_no": "A-1\0"},
        {"state": "TRADE_CLOSED", "without": "out_trade_no"},
    ],
    "wechat": [
        *({"total_fee": fee} for fee in ("8800.0", WIDE * 2, "8_800", "+8800", "-8800", "", "x")),
        *({"total_fee": fee} for fee in ("0", str(HUGE), "9" * 5000)),
        *({"without": name} for name in ("out_trade_no", "total_fee", "transaction_id")),
        {"without": "result_code"},
        {"fee_type": "yuan"},
    ],
    "wechat3": [
        *({"sealing": {"nonce": salt}} for salt in ("", 7, None)),
        *({"sealing": {"ciphertext": text}} for text in ("x", 7, "é", None)),
        *({"sealing": {"associated_data": data}} for data in (7, None)),
        *({name: None} for name in ("transaction_id", "out_trade_no", "trade_state", "amount")),
        *({"amount": {"total": total, "currency": "CNY"}} for total in ("8800", 8800.0, True)),
        *({"amount": {"total": total, "currency": "CNY"}} for total in (HUGE, -8800, None)),
        {"amount": {"total": 8800}},
        {"amount": [8800]},
    ],
    "stripe": [
        *({"said": event} for event in ([], 7, "x", {}, ["id"], {"id": 7}, {"id": ["x"]})),
        {"said": {"id": "evt", "type": "payment_intent.succeeded"}},
        {"said": {"id": "evt", "type": "payment_intent.succeeded", "data": []}},
        *({"id": trade} for trade in (None, "", ["pi"], "\ud800")),
        *({"metadata": data} for data in (None, [], {"order": 7}, {"order": ["A-1"]})),
        *({"amount_received": cents} for cents in ("8800", 8800.0, True, -8800, HUGE, None)),
        {"currency": None},
    ],
}


def test_what_is_signed_and_malformed_is_a_400_and_no_payment(shop, provider):
    shop.app.testing = False
    found = {
        str(changes): shop.send(provider.notify("trade-1", "A-1", 8800, **changes)).status_code
        for changes in MALFORMED[provider.name]
    }
    assert found == dict.fromkeys(found, 400)
    assert (shop.payments, shop.state()) == ([], "open")
    assert contents(provider, [shop.send(provider.notify("trade-1", "A-1", 8800))]) == [True]


FOR_REVIEW = [
    *((name, 1, {}) for name in PROVIDERS),  # another amount
    ("wechat", 8800, {"fee_type": "USD"}),
    ("wechat3", 8800, {"amount": {"total": 8800, "currency": "USD"}}),
    ("stripe", 8800, {"currency": "usd"}),
    ("stripe", 8800, {"metadata": {}}),  # it names no order
]


@pytest.mark.parametrize(("name", "cents", "changes"), FOR_REVIEW)
def test_another_amount_or_currency_is_booked_for_review_and_pays_nothing(
    shop, name, cents, changes
):
    provider = PROVIDERS[name]
    sent = [provider.notify("trade-1", "A-1", cents, **changes) for _ in range(3)]
    assert contents(provider, [shop.send(each) for each in sent]) == [True] * 3
    assert (shop.payments, shop.state()) == ([(provider.ledger, "trade-1", cents, 1)], "open")


class TestTheBooking:
    def test_an_order_that_is_paid_twice_keeps_the_second_for_review(self, shop, provider):
        for trade in ("trade-1", "trade-2", "trade-2"):
            shop.send(provider.notify(trade, "A-1", 8800))
        booked = [(provider.ledger, "trade-1", 8800, 0), (provider.ledger, "trade-2", 8800, 1)]
        assert (shop.payments, shop.state()) == (booked, "paid")

    def test_events_may_come_in_any_order(self, shop):
        alipay = PROVIDERS["alipay"]
        for trade, states, state, review in (
            ("1", ["TRADE_CLOSED", "TRADE_SUCCESS"], "closed", 1),
            ("2", ["TRADE_SUCCESS", "TRADE_CLOSED"], "paid", 0),
            ("3", ["TRADE_FINISHED", "TRADE_SUCCESS", "WAIT_BUYER_PAY"], "paid", 0),
        ):
            shop.order(f"C-{trade}", 5)
            for event in states:
                answers = [
                    shop.send(alipay.notify(trade, f"C-{trade}", 5, state=event)) for _ in range(2)
                ]
                assert contents(alipay, answers) == [True, True]
            assert shop.state(f"C-{trade}") == state
            assert ("alipay", trade, 5, review) in shop.payments

    def test_results_and_refunds_of_one_trade_are_events_of_their_own(self, shop):
        wechat, alipay = PROVIDERS["wechat"], PROVIDERS["alipay"]
        sent = [
            wechat.notify("1", "A-1", 8800, result_code=result)
            for result in ("FAIL", "FAIL", "SUCCESS", "SUCCESS")
        ]
        sent += [
            alipay.notify("1", "A-1", 8800, out_biz_no=refund)
            for refund in ("", "r-1", "r-1", "r-2")
        ]
        found = ["Idempotent-Replayed" in shop.send(each).headers for each in sent]
        assert found == [False, True, False, True, False, False, True, False]

    def test_two_events_that_report_one_payment_book_it_once(self, shop):
        stripe = PROVIDERS["stripe"]
        for event in ("evt_1", "evt_2"):
            answer = shop.send(stripe.notify("pi_1", "A-1", 8800, event=event))
            assert answer.status_code == 204
            assert "Idempotent-Replayed" not in answer.headers
        assert shop.payments == [("stripe", "pi_1", 8800, 0)]

    def test_the_index_holds_when_the_store_has_forgotten(self, shop, provider):
        for _ in range(2):
            answer = shop.send(provider.notify("trade-1", "A-1", 8800))
            assert contents(provider, [answer]) == [True]
            shop.app.extensions["idempotence"].engine.store.clear("")
        assert shop.payments == [(provider.ledger, "trade-1", 8800, 0)]


@pytest.mark.parametrize("error", [ConnectionError(), NotFound()], ids=["500", "404"])
def test_a_view_that_fails_is_run_by_the_next_attempt(shop, provider, error):
    """By the default, `remember="final"`, a 404 would be the answer to all attempts."""
    shop.app.testing = False
    book, left = shop.module.book, [2]

    def away(connection, **payment):
        book(connection, **payment)
        if left[0]:
            left[0] -= 1
            raise error

    shop.module.book = away
    answers = [shop.send(provider.notify("trade-1", "A-1", 8800)) for _ in range(4)]
    assert contents(provider, answers) == [False, False, True, True]
    assert [answer.status_code for answer in answers[:2]] == [getattr(error, "code", 500)] * 2
    assert shop.payments == [(provider.ledger, "trade-1", 8800, 0)]


FAILS = {"alipay": b"fail", "wechat": b"FAIL", "wechat3": b'"code":"FAIL"', "stripe": b"key-in-"}


def test_a_repeat_that_has_waited_in_vain_is_refused_in_the_providers_words(shop, provider):
    """The clock runs on by itself while the repeat waits, so that the test does not."""
    engine = shop.app.extensions["idempotence"].engine
    passed = [0.0]
    engine.clock = lambda: time.monotonic() + passed[0]
    engine.sleep = lambda seconds: passed.__setitem__(0, passed[0] + seconds)
    book, found = shop.module.book, []

    def slow(connection, **payment):
        found.append(shop.send(provider.notify("trade-1", "A-1", 8800)))
        book(connection, **payment)

    shop.module.book = slow
    assert contents(provider, [shop.send(provider.notify("trade-1", "A-1", 8800))]) == [True]
    assert contents(provider, found) == [False]
    assert found[0].status_code == 409
    assert FAILS[provider.name] in found[0].data.replace(b" ", b"")
    assert found[0].headers["Idempotence-Refusal"] == "key-in-progress"
    assert 2.9 < passed[0] < 3.1
    assert len(shop.payments) == 1


BOMB = (
    b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">'
    + b"".join(
        b'<!ENTITY a%d "%s">' % (n, (b"&a%d;" % (n - 1) if n else b"&a;") * 10) for n in range(9)
    )
    + b"]><xml>&a8;</xml>"
)
XML = {
    "nothing": b"",
    "no XML": b"success",
    "cut off": b"<xml><sign>",
    "a bomb": BOMB,
    "a bomb in UTF-16": BOMB.decode().encode("utf-16"),
    "a file": b'<!DOCTYPE x [<!ENTITY f SYSTEM "file:///etc/passwd">]><xml><a>&f;</a></xml>',
    "a document type": b"<!DOCTYPE xml><xml><a>1</a></xml>",
    "one field twice": b"<xml><a>1</a><a>2</a></xml>",
    "an unknown encoding": b'<?xml version="1.0" encoding="klingon"?><xml/>',
    "an encoding of many bytes": b'<?xml version="1.0" encoding="shift_jis"?><xml/>',
    "deep": b"<a>" * 10_000,
    "long": b"<xml>" + b" " * 70_000,
}


@pytest.mark.parametrize("kind", XML)
def test_hostile_xml_is_a_400_and_takes_no_time(shop, kind):
    begun = time.monotonic()
    sent = Notification(WechatXml.path, {"Content-Type": "text/xml"}, XML[kind])
    assert shop.send(sent).status_code == (413 if kind == "long" else 400)
    assert time.monotonic() - begun < 2
    assert shop.payments == []


def test_garbage_for_a_header_is_a_401(shop):
    for name, header in (("stripe", "Stripe-Signature"), ("wechat3", "Wechatpay-Timestamp")):
        right = PROVIDERS[name].notify("1", "A-1", 8800)
        for value in ("", "t", "t=", "t=x", "=,=,", "t=1,t=2,v1=", "²", "v1=é", "9" * 20, "t=-1"):
            sent = right._replace(
                headers={**right.headers, header: value.encode().decode("latin-1")}
            )
            assert shop.send(sent).status_code == 401
