"""What the scenarios are multiplied from: a line each, its name and an expression of Python.

`F` has the package's public names, Flask's module and a few helpers; `n` is how often a view ran.
"""


def _table(text):
    """Return names and what belongs to them; a line that ends with a backslash goes on."""
    lines = text.strip().replace("\\\n", "").splitlines()
    return dict(line.strip().split(": ", 1) for line in lines)


def listed(text):
    return [each.strip() for each in text.replace("\n", " ").split("|")]


VALUES = listed("""
None | True | False | 0 | 1 | -1 | 409 | 0.5 | 1.5 | float('inf') | float('nan') | 1e12 | '' | 'x'
| '5' | 'a b' | 'é' | 'x' * 65 | b'x' | b'x' * 16 | [] | ['a'] | ('a', 'b') | ['a.b'] | {'a'} | {}
| {'a': 1} | [1] | (1, 'x') | F.Thing() | F.Lazy() | lambda *_: None | lambda *_: 'k'
| lambda *_: True | lambda *_: F.UUID(int=7) | lambda *_: [1, None, 'x'] | lambda *_: 1 / 0
| F.answer_later | F.timedelta(seconds=5) | F.timedelta(seconds=-1) | F.timedelta(days=73000)
| F.date(2026, 1, 1) | F.UUID(int=5) | F.Decimal('1.5') | 'reject' | 'allow' | 'replay'
| 'at-most-once' | 'success' | ['GET'] | ['FOO'] | 'Idempotence-Token' | 'Idempotency-Key'
| '[a-z]+' | '(' | 'memory://' | 'redis://localhost:x/y' | ['user', 'ip'] | range(3) | '/t'
| {'repeat-submit': 'Again'} | {'repeat-submit': 200} | 'WARNING' | ['x' * 44] | dict | 7.0
""")

ARGUMENTS = _table("""
F.no_repeat_submit: interval message only ignore key shared wait failed methods unless observe \\
on_store_error no_such
F.one_time_token: purpose restore_on_failure unless observe on_store_error
F.idempotent: required ttl key key_pattern ignore compare on_repeat guarantee remember wait \\
unless observe on_store_error within
F.block_of_once: scope id key ttl wait within
F.block_of_step: name id within
F.block_of_lock: name lease wait
F.forget: scope id
F.issue: purpose
F.redeem: token purpose
F.keep: ttl
F.Retries: attempts seconds first_wait longest_wait statuses
F.Idempotence: app store
""")  # fmt: skip

PAIRED = {
    "F.idempotent": """
        required=True | ttl=409 | ttl=5 | key='Idempotence-Token' | key=lambda: 'k'
        | key=lambda: None | key=lambda: F.UUID(int=7) | key='X-Key' | key_pattern='[a-z]+'
        | ignore=['a'] | compare=False | compare=lambda: [1] | compare=lambda: F.UUID(int=1)
        | compare=lambda: 1 / 0 | on_repeat='reject' | on_repeat='replay' | remember='success'
        | guarantee='at-most-once' | remember=lambda response: False | wait=1 | ignore=['a.b']
        | unless=lambda: None | unless=lambda: True | observe=True | observe=False
        | on_store_error='allow' | on_store_error='reject'""",
    "F.no_repeat_submit": """
        interval=0.5 | interval=5 | message='x' | message=F.Lazy() | only=['a']
        | only=[] | ignore=['a'] | key=lambda: 'k' | key=lambda: [1] | key=lambda: None | wait=1
        | shared=True | failed=lambda response: True | failed=lambda response: None
        | failed=lambda response: 1 / 0 | methods=['GET'] | unless=lambda: True | observe=True
        | unless=lambda: 1 / 0 | on_store_error='allow' | only=['a.b']""",
}

GUARDS = _table("""
lock: F.no_repeat_submit(10)
lock shared: F.no_repeat_submit(10, 'Once.', key=lambda: 'all', shared=True)
lock only: F.no_repeat_submit(10, only=['a'])
lock failed: F.no_repeat_submit(10, failed=lambda response: response.status_code == 201)
lock observed: F.no_repeat_submit(10, observe=True)
token: F.one_time_token()
token back: F.one_time_token(restore_on_failure=True)
token observed: F.one_time_token(observe=True)
key: F.idempotent()
key required: F.idempotent(required=True, ttl=60)
key reject: F.idempotent(on_repeat='reject')
key once: F.idempotent(guarantee='at-most-once')
key success: F.idempotent(remember='success')
key alone: F.idempotent(compare=False)
key is token: F.idempotent(key='Idempotence-Token')
key made: F.idempotent(key=lambda: F.flask.request.args.get('q'))
key observed: F.idempotent(observe=True)
key allow: F.idempotent(on_store_error='allow')
lock waits: F.no_repeat_submit(10, key=lambda: F.flask.request.args.get('q'), wait=3)
key waits: F.idempotent(wait=2)
""")

FEW = ("lock", "token", "token back", "key", "key once", "key success", "key reject")

VIEWS = _table("""
text: f'done {n}'
created: ({'id': n}, 201, {'Location': f'/{n}'})
empty: ('', 204)
redirect: F.flask.redirect(f'/{n}')
401: (f'{n}', 401)
409: (f'{n}', 409)
422: (f'{n}', 422)
429: (f'{n}', 429)
503: (f'{n}', 503, {'Retry-After': '7'})
abort 403: F.flask.abort(403)
abort 404: F.flask.abort(404)
abort 502: F.flask.abort(502)
raises: 1 / 0
exits: F.sys.exit(3)
says no: {'success': False, 'n': n}
says no in text: '{"success": false}'
list: [n, {'success': False}]
bytes: bytes([255, n])
large: 'x' * 1_200_000
stream: F.flask.Response(F.stream(n, False))
stream fails: F.flask.Response(F.stream(n, True))
file: F.flask.send_file(F.io.BytesIO(b'file'), mimetype='text/x')
cookies: ('c', 200, [('Set-Cookie', f'n={n}'), ('Set-Cookie', 'm=1')])
session: F.flask.session.update(n=n) or 'in'
vary: ('v', 200, {'Vary': 'Accept', 'ETag': '"1"', 'X-A': 'ä'})
none: None
first fails: (f'{n}', 500 if n == 1 else 200)
first refused: (f'{n}', 422 if n == 1 else 200)
releases: F.current_guard.release() or 'r'
keeps: F.current_guard.keep() or (f'k {n}', 500)
keeps long: F.current_guard.keep(ttl=100_000) or f'k {n}'
ensures: F.current_guard.ensure_held() or f'e {F.current_guard.mode} {F.current_guard.key}'
raises a refusal: F.throw(F.RepeatSubmit('Mine.'))
raises Running: F.throw(F.Running())
reads: F.flask.request.get_data()
reads the stream: F.flask.request.stream.read(3)
""")

STORIES = {
    "thrice": [{}, {}, {}],
    "another body": [{}, {"json": {"a": 2}}, {}],
    "another key": [{}, {"key": "other"}, {"key": '"k"'}],
    "another sender": [{}, {"session": {"user_id": 1}}, {"session": {"user_id": 2}}, {}],
    "later": [{}, {"later": 11}, {"later": 400}, {"later": 90_000}],
    "methods": [{"method": m} for m in ("GET", "POST", "PUT", "HEAD", "DELETE", "PATCH", "QUERY")],
    "no key": [{"key": None, "token": None}] * 2,
    "bad key": [{"key": k, "token": "t.x"} for k in ("", "a" * 256, "é", '"open', "a,b")],
    "switched": [{}, {"ENABLED": False}, {"ENABLED": True}, {"KEY_ENABLED": False}, {}],
    "query": [{}, {"path": "/?q=1"}, {"path": "/?q=1"}, {"path": "/?q=2&csrf_token=5"}],
    "pages": [{}, {"headers": {"Accept": "text/html"}}, {"headers": {"Accept": "*/*"}}],
}

_JSON = "'content_type': 'application/json'"
_FORM = "'content_type': 'multipart/form-data; boundary=x'"
BODIES = _table(f"""
none: {{}}
empty object: {{'json': {{}}}}
a 1: {{'json': {{'a': 1}}}}
a 1.0: {{'json': {{'a': 1.0}}}}
a '1': {{'json': {{'a': '1'}}}}
a true: {{'json': {{'a': True}}}}
a b: {{'json': {{'a': 1, 'b': 2}}}}
b a: {{'data': '{{"b": 2, "a": 1}}', {_JSON}}}
a twice: {{'data': '{{"a": 2, "a": 1}}', {_JSON}}}
spaces: {{'data': '{{ "a" : 1 }}', {_JSON}}}
json suffix: {{'data': '{{"a": 1}}', 'content_type': 'application/vnd.x+json'}}
broken json: {{'data': '{{"a": ', {_JSON}}}
nan: {{'data': '{{"a": NaN}}', {_JSON}}}
big: {{'data': '{{"a": 1e400}}', {_JSON}}}
deep: {{'data': '[' * 5000 + ']' * 5000, {_JSON}}}
null: {{'data': 'null', {_JSON}}}
list: {{'json': [1, 2]}}
form: {{'data': {{'a': '1'}}}}
form with csrf: {{'data': {{'a': '1', 'csrf_token': '5'}}}}
form twice: {{'data': {{'a': ['1', '2']}}}}
text: {{'data': 'a=1', 'content_type': 'text/plain'}}
octets: {{'data': b'\\xff\\x00', 'content_type': 'application/octet-stream'}}
latin: {{'data': b'a=\\xe4', 'content_type': 'application/x-www-form-urlencoded'}}
file: {{'data': F.parts('f.txt'), {_FORM}}}
other file: {{'data': F.parts('g.txt'), {_FORM}}}
broken parts: {{'data': b'--x no', {_FORM}}}
no boundary: {{'data': b'--x no', 'content_type': 'multipart/form-data'}}
dotted: {{'json': {{'a.b': 1, 'a': {{'b': 1}}}}}}
""")

SENDERS = [
    {},
    *({"ip": ip} for ip in ("10.0.0.2", "2001:db8::1", "2001:db8::2", "2001:db8:0:1::1")),
    *({"base": base} for base in ("http://other.test", "http://localhost:81")),
    *({"session": each} for each in (
        {"user_id": 1}, {"user_id": "1"}, {"_user_id": "1"}, {"user": {"id": 1}}, {"other": 1},
        {"email": "a@b"}, {"user_id": ""}, {"user_id": 0}, {"user_id": True}, {"user": [1]},
        {"account_id": 1, "user_id": 1},
    )),
    *({"headers": dict([line.split(": ", 1)])} for line in (
        "Authorization: Bearer x", "Authorization: bearer x", "Authorization: Bearer y",
        "Authorization: Basic YTpi", "Authorization: Basic YTpj", "X-Api-Key: 1",
        "X-Api-Key: 2", "X-User-Id: 1", "X-Tenant-Id: t", "Stripe-Account: s",
        "X-Session-Token: 1", "X-Forwarded-For: 9.9.9.9", "Cookie: token=1",
        "Cookie: session_id=5",
        "Cookie: theme=dark", "Cookie: csrf_token=1", "Cookie: x-jwt=1",
        "Cookie: aws-waf-token=1",
        "Cookie: my_token=3", "Cookie: remember_token=1|x",
    )),
]  # fmt: skip

HOOKS = _table("""
before reads: app.before_request(lambda: F.flask.request.get_data() and None)
before consumes: app.before_request(lambda: F.flask.request.stream.read() and None)
before answers: app.before_request(lambda: ('early', 202))
before raises: app.before_request(lambda: 1 / 0)
after raises: app.after_request(lambda response: 1 / 0)
after fails once: app.after_request(lambda r: F.throw(KeyError('once')) if F.runs == 1 else r)
after replaces: app.after_request(lambda response: F.flask.Response('new'))
after 500: app.after_request(lambda r: setattr(r, 'status_code', 500) or r)
after header: app.after_request(lambda r: r.headers.add('X-Run', str(F.runs)) or r)
after cookie: app.after_request(lambda r: r.set_cookie('seen', '1') or r)
teardown raises: app.teardown_request(lambda error: 1 / 0)
handler of refusals: app.errorhandler(F.Refusal)(lambda e: ({'told': e.description}, 418))
handler of HTTP: app.errorhandler(F.HTTPException)(lambda e: ({'code': e.code}, e.code or 200))
handler of all: app.errorhandler(Exception)(lambda e: (type(e).__name__, 500))
handler says fine: app.errorhandler(Exception)(lambda error: 'fine')
handler raises: app.errorhandler(Exception)(lambda error: 1 / 0)
identity text: extension.identity_loader(lambda: 'ann')
identity None: extension.identity_loader(lambda: None)
identity number: extension.identity_loader(lambda: 5)
identity empty: extension.identity_loader(lambda: '')
identity object: extension.identity_loader(lambda: F.Thing())
identity mapping: extension.identity_loader(lambda: {'id': 5})
identity list: extension.identity_loader(lambda: [5])
identity True: extension.identity_loader(lambda: True)
identity raises: extension.identity_loader(lambda: 1 / 0)
all fail: extension.result_failed(lambda response: True)
none fails: extension.result_failed(lambda response: False)
failed raises: extension.result_failed(lambda response: 1 / 0)
finished raises: F.listen(F.flask.request_finished, app)
started raises: F.listen(F.flask.request_started, app)
claimed raises: F.listen(F.claimed, app)
completed raises: F.listen(F.completed, app)
""")

VERBS = ("claim", "complete", "release", "put_token", "take_token", "renew")

BLOCKS = _table("""
once: extension.once('job', 1)
once of 2: extension.once('job', 2)
once of text: extension.once('job', '1', ttl=5)
once that waits: extension.once('job', 1, wait=1)
lock: extension.lock('name')
lock that waits: extension.lock('name', wait=1, lease=5)
step: extension.step('charge')
step 1: extension.step('charge', 1)
step of mail: extension.step('mail')
""")

ENDS = _table("""
well: None
raises: 1 / 0
result: setattr(block, 'result', {'n': n})
bad result: setattr(block, 'result', {1})
released: F.current_guard.release()
kept: F.current_guard.keep(ttl=5)
ensured: F.current_guard.ensure_held()
key: lines.append(f'key {block.key}')
""")

PLACES = ("task", "text", "key", "lock")

COMMANDS = listed("""
doctor | doctor --json | doctor --strict | config | config --json | routes | routes --json
| routes --strict | routes --defaults | stats | stats --json | stats --prometheus
| stats --mode key | stats --mode lock --endpoint view | stats --mode x | inspect | inspect zz
| inspect --running | inspect --running --json | inspect --running --older-than 5 | inspect
--endpoint view --key k --identity x | inspect --scope job --id 1 | inspect --scope job --id-json 1
| release | release zz | release --scope job --id 1 --yes | release --scope job --id-json 1 --yes
| purge | purge --all | purge --all --yes | purge --mode key | purge --mode key --yes
| purge --mode once --endpoint job --yes | purge --all --live --yes | watch --for 0 | watch --json
| init-db | init-db --sql | prune | --help | doctor --help | routes --help | stats --help
| inspect --help | release --help | purge --help | prune --help | no-such-command
""")

ANSWERS = {
    "fine": (200, {}),
    "down": (503, {}),
    "wait 3": (503, {"Retry-After": "3"}),
    "wait 99": (503, {"Retry-After": "99"}),
    "running": (409, {"Idempotence-Refusal": "key-in-progress", "Retry-After": "1"}),
    "reused": (422, {"Idempotence-Refusal": "key-reused"}),
    "conflict": (409, {}),
    "replayed": (500, {"Idempotent-Replayed": "true"}),
    "not stored": (503, {"Idempotent-Stored": "false"}),
    "no answer": None,
}
