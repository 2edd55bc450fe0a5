"""The gateway of docs/gateway: what it turns away, and what it leaves to Flask."""

import json

import pytest
from helpers.applications.gateway_app import make_app
from helpers.servers.nginx_gateway import JSON, PAY, make_world
from helpers.servers.processes import send

pytestmark = pytest.mark.gateway


def test_a_repeat_of_a_running_request_is_turned_away_before_flask(gateway):
    key = gateway.new_key()
    with gateway.running(key) as answers:
        with gateway.reaching_flask(0):
            repeat = gateway.pay(key)
        with gateway.reaching_flask(1):
            by_flask = gateway.pay(key, port=gateway.nginx.plain)
    assert (repeat.status, repeat.headers["Retry-After"]) == (409, "1")
    assert repeat.json["type"] == "urn:flask-idempotence:key-in-progress"
    assert repeat.slug == "key-in-progress"
    assert repeat.told == by_flask.told
    assert [answer.status for answer in answers] == [201]
    assert gateway.nginx.verdicts[-2:] == ["running", "passed"]


def test_a_repeat_of_what_is_done_is_answered_as_flask_answers_it(gateway):
    key = gateway.new_key()
    first = gateway.pay(key)
    with gateway.reaching_flask(0):
        repeat = gateway.pay(key)
    with gateway.reaching_flask(1):
        by_flask = gateway.pay(key, port=gateway.nginx.plain)
    assert (first.status, first.replayed) == (201, False)
    assert repeat.replayed
    assert repeat.told == by_flask.told
    assert repeat.body == first.body
    assert gateway.nginx.verdicts[-2:] == ["passed", "replayed"]


def test_a_replay_says_for_how_long_the_key_is_remembered_as_flask_does(gateway):
    key = gateway.new_key()
    gateway.pay(key)
    ports = (gateway.nginx.plain, None, gateway.nginx.plain)
    before, between, after = (gateway.pay(key, port=port).expires_in for port in ports)
    assert 86_400 >= before >= between >= after > 86_000


@pytest.fixture(scope="module")
def app():
    return make_app()


class TestWhoAsks:
    def test_another_users_same_key_gets_an_answer_of_its_own(self, gateway):
        key = gateway.new_key()
        alices = gateway.pay(key, user="alice")
        with gateway.reaching_flask(1):
            bobs = gateway.pay(key, user="bob")
        with gateway.reaching_flask(0):
            again = [gateway.pay(key, user=user) for user in ("alice", "bob")]
        assert (bobs.status, bobs.replayed) == (201, False)
        assert alices.body != bobs.body
        assert [answer.body for answer in again] == [alices.body, bobs.body]

    def test_the_same_user_of_another_tenant_gets_an_answer_of_its_own(self, gateway):
        key = gateway.new_key()
        with gateway.reaching_flask(2):
            answers = [gateway.pay(key, Host=host) for host in ("a.example", "B.example:80") * 2]
        assert [answer.replayed for answer in answers] == [False, False, True, True]
        assert answers[0].body != answers[1].body

    def test_a_session_comes_first_for_flask_and_hence_for_the_gateway(self, gateway, app):
        key = gateway.new_key()
        alices = gateway.pay(key)
        signer = app.session_interface.get_signing_serializer(app)
        cookie = signer.dumps({"user_id": "carol"})
        with gateway.reaching_flask(1):
            carols = gateway.pay(key, Cookie=f"session={cookie}")
        assert (carols.status, carols.replayed) == (201, False)
        assert carols.body != alices.body


@pytest.mark.parametrize(
    ("first", "again"),
    [
        *(
            ({"Authorization": sent}, {"Authorization": sent})
            for sent in ("bearer alice", "BEARER  alice", "Basic YWxpY2U6eA==")
        ),
        (
            {"body": b'{"amount":5,"for":"M\\u00e4rz","csrf_token":1}'},
            {"body": '{ "for": "M\u00e4rz",\n"amount": 5 }'.encode()},
        ),
    ],
)
def test_what_flask_reads_alike_is_the_same(gateway, first, again):
    key = gateway.new_key()
    answer = gateway.pay(key, **first)
    with gateway.reaching_flask(0):
        repeat = gateway.pay(key, **again)
    assert (repeat.replayed, repeat.body) == (True, answer.body)


@pytest.mark.parametrize(
    "sent",
    [
        {"Authorization": None},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer caf\xe9"},
        {"Authorization": "Digest username=alice"},
        {"Cookie": "session=whatever"},
        {"Cookie": ""},
        {"X-Api-Key": "shared"},
        {"x_tenant_id": "shop"},
        {"path": PAY + "?"},
        {"path": PAY + "?a=1"},
        {"path": "/%61pi/payments"},
        {"Content-Type": "application/x-www-form-urlencoded", "body": b"amount=7"},
        {"Content-Type": "text/plain", "body": b'{"amount": 7}'},
        {"Content-Type": None, "body": b'{"amount": 7}'},
        {"body": b'{"amount": 7e0}'},
        {"body": b'{"amount": 7}' + b" " * 100_000},
        {"If-None-Match": '"1"'},
        {"Range": "bytes=0-1"},
    ],
    ids=lambda sent: str(sent)[:60],
)
def test_what_is_not_certain_goes_on_to_flask(gateway, sent):
    key = gateway.new_key()
    with gateway.reaching_flask(2):
        first, repeat = gateway.pay(key, **sent), gateway.pay(key, **sent)
    assert first.status != 201 or repeat.replayed


class TestWhatIsAsked:
    def test_another_request_under_the_key_is_told_so_by_flask(self, gateway):
        key = gateway.new_key()
        with gateway.running(key, amount=7), gateway.reaching_flask(1):
            assert gateway.pay(key, 8).status == 422
        with gateway.reaching_flask(1):
            assert gateway.pay(key, 8).status == 422
        assert gateway.nginx.verdicts[-1] == "passed"

    def test_a_body_that_is_not_kept_in_memory_is_no_empty_one(self, gateway):
        key = gateway.new_key()
        assert gateway.pay(key, body=b"").status == 400
        with gateway.reaching_flask(1):
            assert gateway.pay(key, body=b" " * 100_000 + b"{}").status == 422

    @pytest.mark.parametrize(
        "key", ["", '"', '"a', "a,b", '"a", "b"', '"a";b=1', "x" * 256, "caf\xe9", "a\tb", '"\\n"']
    )
    def test_garbage_for_a_key_gets_flasks_400(self, gateway, key):
        with gateway.reaching_flask(1):
            answer = gateway.pay(key)
        assert (answer.status, answer.json["type"]) == (400, "urn:flask-idempotence:key-invalid")

    @pytest.mark.parametrize("keys", ["ab", ""], ids=["two", "none"])
    def test_two_keys_and_no_key_get_flasks_400(self, gateway, keys):
        headers = [("Authorization", "Bearer alice"), ("Content-Type", JSON)]
        headers += [("Idempotency-Key", key) for key in keys]
        with gateway.reaching_flask(1):
            assert send(gateway.nginx.port, PAY, "POST", headers, b'{"amount": 7}').status == 400

    def test_the_quoted_and_the_bare_form_are_one_key(self, gateway):
        key = gateway.new_key()
        first = gateway.pay(f'"{key}"')
        with gateway.reaching_flask(0):
            assert gateway.pay(key).body == gateway.pay(f'"{key}"').body == first.body

    def test_another_method_is_another_request(self, gateway):
        key = gateway.new_key()
        headers = {"Authorization": "Bearer alice", "Content-Type": JSON, "Idempotency-Key": key}
        gateway.pay(key)
        with gateway.reaching_flask(2):
            assert send(gateway.nginx.port, PAY, "PUT", headers, b"{}").status == 405
            assert send(gateway.nginx.port, PAY, "GET", headers).status == 200


def test_a_login_check_in_front_of_it_comes_first(tmp_path):

    def ask_first(site):
        asks = "        auth_request /may-i;\n"
        may_i = """
    location = /may-i {
        internal;
        proxy_pass http://flask/may-i;
        proxy_pass_request_body off;
        proxy_set_header Content-Length "";
    }
"""
        site = site.replace("        access_by_lua_block", asks + "        access_by_lua_block")
        return site.replace("\n    location / {", may_i + "\n    location / {")

    with make_world(tmp_path, site=ask_first) as world:
        assert world.pay("1").status == 201
        assert world.pay("1").replayed
        (tmp_path / "revoked").touch()
        assert world.pay("1").status == 401


def test_it_follows_the_settings_of_who_asks(tmp_path):
    def site(text):
        own = 'identity_host = false, identity_headers = { "X-Team" },'
        return text.replace('prefix = "idempotence",', f'prefix = "idempotence", {own}')

    settings = {
        "FLASK_IDEMPOTENCE_IDENTITY_HOST": "false",
        "FLASK_IDEMPOTENCE_IDENTITY_HEADERS": '["X-Team"]',
    }
    with make_world(tmp_path, site=site, **settings) as world:
        assert world.pay("k", Host="a.example", X_Api_Key="old").status == 201
        with world.reaching_flask(0):
            assert world.pay("k", Host="b.example", X_Api_Key="new").replayed
        with world.reaching_flask(1):
            assert not world.pay("k", X_Team="blue").replayed


MESSAGE = 'Noch nicht fertig: "请稍候" \\ 100%s {x} \U0001f600 \x7f\x01\r\n\t/'


def in_progress(tmp_path, status, *, ensure_ascii=True):
    """Return the answers of the gateway and of Flask to a request that still runs.

    A status in a list is one by the slug; else it is the one of duplicates.
    """
    settings = {
        "FLASK_IDEMPOTENCE_MESSAGES": json.dumps({"key-in-progress": MESSAGE}),
        "FLASK_IDEMPOTENCE_DUPLICATE_STATUS": json.dumps(
            status if isinstance(status, int) else {"key-in-progress": status[0]}
        ),
        "GATEWAY_ENSURE_ASCII": str(ensure_ascii).lower(),
    }
    statuses = status if isinstance(status, int) else f'{{ ["key-in-progress"] = {status[0]} }}'
    escaped = "".join(f"\\{byte:03d}" for byte in MESSAGE.encode())
    lua = (
        f'messages = {{ ["key-in-progress"] = "{escaped}" }}, '
        f"duplicate_status = {statuses}, ensure_ascii = {str(ensure_ascii).lower()},"
    )

    def site(text):
        return text.replace('prefix = "idempotence",', f'prefix = "idempotence", {lua}')

    with make_world(tmp_path, site=site, **settings) as world:
        key = world.new_key()
        with world.running(key):
            before = world.seen
            by_gateway = world.pay(key)
            reached = world.seen - before
            by_flask = world.pay(key, port=world.nginx.plain)
        return by_gateway, by_flask, reached


@pytest.mark.parametrize(
    ("status", "ensure_ascii"), [([201], True), ([499], False), (201, True)], ids=str
)
def test_it_follows_the_settings_of_texts_and_statuses(tmp_path, status, ensure_ascii):
    by_gateway, by_flask, reached = in_progress(tmp_path, status, ensure_ascii=ensure_ascii)
    assert reached == 0
    assert by_gateway.told == by_flask.told
    assert by_gateway.status == (409 if status == 201 else status[0])
    assert by_gateway.json["detail"] == MESSAGE
    assert by_gateway.slug == "key-in-progress"
    assert by_gateway.headers["Retry-After"] == "1"
    assert ("请稍候".encode() in by_gateway.body) == (not ensure_ascii)


@pytest.mark.parametrize("status", [204, 302])
def test_a_status_that_nginx_would_send_in_another_way_is_left_to_flask(tmp_path, status):
    by_gateway, by_flask, reached = in_progress(tmp_path, [status])
    assert reached == 1
    assert by_gateway.told == by_flask.told
    assert by_gateway.status == status
