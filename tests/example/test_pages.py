"""The example's pages: links, files, a strict policy, and the code that they show.

Labels, names and contrasts are axe's, in proofs/browser/test_accessibility.py.
"""

import re
from html import unescape

import pytest
from helpers.repository import ROOT
from helpers.servers.example import HTML

from example_app import create_app

PATHS = [
    "/", "/products/mug", "/checkout/mug", "/orders", "/orders/1", "/orders/clear", "/pay", "/lab",
    "/lab/runs/1", "/recipes",
]  # fmt: skip


@pytest.fixture
def client(tmp_path):
    app = create_app(TESTING=True, EXAMPLE_DATABASE=tmp_path / "shop.sqlite3")
    database = app.extensions["example_database"]
    database.write("INSERT INTO orders (product, quantity, name) VALUES ('mug', 1, 'Ada')")
    database.write("INSERT INTO payments (amount, how) VALUES (5, 'with a key')")
    database.write(
        "INSERT INTO lab_runs (mode, requests, delay, failure, only_first, asked) "
        "VALUES ('key', 2, 0.2, 'none', 1, 0)"
    )
    yield app.test_client()
    database.close()


@pytest.mark.parametrize("path", PATHS)
def test_a_page_has_a_strict_policy_and_all_that_it_names_is_there(client, path):
    page = client.get(path, headers=HTML)
    assert page.status_code == 200
    policy = page.headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    sources = {"default", "script", "style", "img", "connect"}
    assert set(re.findall(r"(\w+)-src '", policy)) == sources
    assert page.headers["X-Content-Type-Options"] == "nosniff"
    assert re.search(r"<title>\S.* · The Once Shop</title>", page.text)
    files = re.findall(r'<(?:link|script|img)\b[^>]* (?:href|src)="([^"]*)"', page.text)
    assert len(files) > 2
    for file in set(files):
        assert re.match(r"/(static|_idempotence)/", file)
        with client.get(file) as answer:
            assert answer.status_code == 200, file
    for heading in re.findall(r'<a\b[^>]* href="#([^"]+)"', page.text):
        assert f' id="{heading}"' in page.text
    for link in set(re.findall(r'<a\b[^>]* href="([^"#]+)', page.text)):
        assert client.get(unescape(link)).status_code == 200, link


def test_the_shop_is_emptied_after_a_confirmation_only(client):
    page = client.get("/orders", headers=HTML).text
    assert "<form" not in page
    assert page.rindex("</table>") < page.index('<a href="/orders/clear">Empty the shop</a>')
    asked = client.get("/orders/clear", headers=HTML).text
    assert re.search(r"deletes 1 order,\s+1 payment,", asked)
    assert client.get("/api/payments").json["count"] == 1
    assert client.post("/orders/clear").status_code == 303
    assert client.get("/api/payments").json["count"] == 0


@pytest.mark.parametrize(
    ("path", "file", "guard"),
    [
        ("/", "shop", "@no_repeat_submit(5, "),
        ("/products/mug", "shop", "@no_repeat_submit(5, "),
        ("/checkout/mug", "checkout", "@one_time_token(purpose="),
        ("/pay", "payments", "@idempotent(required=True)"),
    ],
)
def test_a_page_shows_the_guard_as_it_stands_in_the_source(client, path, file, guard):
    page = client.get(path, headers=HTML).text
    shown = re.search(
        r'class="guard">.*?<code>(.*?)</code>.*?<pre[^>]*>(.*?)</pre>', page, re.DOTALL
    )
    assert shown[1] == f"example_app/{file}.py"
    lines = [unescape(line) for line in re.findall(r"<code>(.*?)</code>", shown[2])]
    for line, begin in zip(lines, ("@blueprint.", guard, "def "), strict=True):
        assert line.startswith(begin)
    assert "\n".join(lines) in (ROOT / shown[1]).read_text()


def test_the_pay_page_shows_the_payment_in_steps_as_it_stands_in_the_source(client):
    page = client.get("/pay", headers=HTML).text
    shown = re.search(
        r"<code>example_app/worker.py</code>.*?<pre[^>]*>(.*?)</pre>", page, re.DOTALL
    )
    lines = [unescape(line) for line in re.findall(r"<code>(.*?)</code>", shown[1])]
    head, rest = "\n".join(lines[:3]), "\n".join(lines[3:])
    assert lines[1] == "@idempotent(required=True)"
    assert re.search(
        re.escape(head) + r'\n    """.*"""\n' + re.escape(rest),
        (ROOT / "example_app/worker.py").read_text(),
    )
    assert "idempotence.step(" in rest


def test_an_empty_list_says_what_fills_it(client):
    client.post("/orders/clear")
    lists = client.get("/orders", headers=HTML).text
    assert re.search(r'No orders yet\.\s+<a href="/checkout/mug">', lists)
    assert re.search(r'No payments yet\.\s+<a href="/pay">', lists)
    assert "No payments yet." in client.get("/pay", headers=HTML).text


@pytest.mark.parametrize("name", ["style.css", "lab.js", "timeline.js", "pay.js", "like.js"])
def test_nothing_is_loaded_from_elsewhere(client, name):
    with client.get(f"/static/{name}") as answer:
        text = answer.get_data(True).replace("http://www.w3.org/2000/svg", "")
    assert "//" not in re.sub(r"(?m)//\s.*$", "", text)
    assert "innerHTML" not in text
    assert name != "style.css" or "prefers-reduced-motion" in text
