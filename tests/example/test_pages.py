"""The example's pages: labels, contrasts, links and a strict policy."""

import re
from html import unescape
from html.parser import HTMLParser

import pytest
from helpers.repository import ROOT
from helpers.servers.example import HTML

from example_app import create_app

PATHS = [
    "/", "/products/mug", "/checkout/mug", "/orders", "/orders/1", "/orders/clear", "/pay", "/lab",
    "/lab/runs/1", "/recipes",
]  # fmt: skip
FIELDS = {"input", "select", "textarea"}


class Outline(HTMLParser):
    """The elements of a page, and the fields inside a label."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.labelled, self.scripts = [], [], []
        self._open = []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.elements.append((tag, attributes))
        if "label" in self._open and tag in FIELDS:
            self.labelled.append(attributes)
        if tag not in {"input", "img", "meta", "link", "br"}:
            self._open.append(tag)

    def handle_endtag(self, tag):
        if tag in self._open:
            del self._open[len(self._open) - 1 - self._open[::-1].index(tag) :]

    def handle_data(self, data):
        if self._open and self._open[-1] in {"script", "style"}:
            self.scripts.append(data)

    def all(self, *tags):
        return [attributes for tag, attributes in self.elements if tag in tags]


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


@pytest.fixture(params=PATHS)
def page(request, client):
    answer = client.get(request.param, headers=HTML)
    assert answer.status_code == 200
    return answer


@pytest.fixture
def outline(page):
    return Outline(page.get_data(True))


def test_every_field_has_a_label(outline):
    named = {label.get("for") for label in outline.all("label")}
    for field in outline.all(*FIELDS):
        if field.get("type") != "hidden":
            assert field.get("id") in named or field in outline.labelled, field


def test_everything_has_a_name_and_no_two_the_same(page, outline):
    ids = [attributes["id"] for _, attributes in outline.elements if "id" in attributes]
    assert sorted(set(ids)) == sorted(ids)
    assert all("alt" in image for image in outline.all("img"))
    assert len(outline.all("h1")) == len(outline.all("main")) == 1
    assert outline.all("html") == [{"lang": "en"}]
    referred = [
        name
        for _, attributes in outline.elements
        for key in ("for", "aria-labelledby", "aria-describedby", "form")
        for name in (attributes.get(key) or "").split()
    ]
    assert set(referred) <= set(ids)
    assert re.search(r"<title>\S.* · The Once Shop</title>", page.get_data(True))


def test_nothing_is_inline(page, outline):
    assert "".join(outline.scripts).strip() == ""
    assert outline.all("style") == []
    for _, attributes in outline.elements:
        assert not [name for name in attributes if name == "style" or name.startswith("on")]
    assert all(script.get("src", "").startswith("/") for script in outline.all("script"))


def test_the_policy_is_strict(page):
    policy = page.headers["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert set(re.findall(r"(\w+)-src '", policy)) == {
        "default",
        "script",
        "style",
        "img",
        "connect",
    }
    assert page.headers["X-Content-Type-Options"] == "nosniff"


def test_every_file_that_a_page_names_is_there_and_none_is_elsewhere(client, outline):
    files = [link["href"] for link in outline.all("link")]
    files += [element["src"] for element in outline.all("script", "img")]
    for file in set(files):
        assert re.match(r"/(static|_idempotence)/", file)
        with client.get(file) as answer:
            assert answer.status_code == 200, file


def test_every_link_leads_somewhere(client, outline):
    for link in outline.all("a"):
        if not link["href"].startswith("#"):
            assert client.get(link["href"]).status_code == 200, link


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
    shown = re.search(r'class="guard">.*?<code>(.*?)</code>.*?<pre>(.*?)</pre>', page, re.DOTALL)
    assert shown[1] == f"example_app/{file}.py"
    lines = [unescape(line) for line in re.findall(r"<code>(.*?)</code>", shown[2])]
    for line, begin in zip(lines, ("@blueprint.", guard, "def "), strict=True):
        assert line.startswith(begin)
    assert "\n".join(lines) in (ROOT / shown[1]).read_text()


def test_the_pay_page_shows_the_payment_in_steps_as_it_stands_in_the_source(client):
    page = client.get("/pay", headers=HTML).text
    shown = re.search(r"<code>example_app/worker.py</code>.*?<pre>(.*?)</pre>", page, re.DOTALL)
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


def luminance(colour):
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return sum(
        weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True)
    )


def contrast(*colours):
    darker, lighter = sorted(map(luminance, colours))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", [1, 2], ids=["light", "dark"])
def test_the_contrasts_are_those_of_wcag(client, scheme):
    with client.get("/static/style.css") as answer:
        found = re.finditer(r"--([\w-]+): light-dark\((#\w+), (#\w+)\)", answer.get_data(True))
        colours = {one[1]: one[1 + scheme] for one in found}
    assert contrast(colours["on-accent"], colours["accent"]) >= 4.5
    assert contrast(colours["ink"], colours["notice"]) >= 4.5
    assert contrast(colours["on-wrong"], colours["wrong"]) >= 4.5
    assert contrast(colours["wrong"], colours["wrong-ground"]) >= 4.5
    for ground in ("right", "wrong", "neutral"):
        for text in ("ink", "replayed"):
            assert contrast(colours[text], colours[f"{ground}-ground"]) >= 4.5, (text, ground)
    for ground in ("ground", "card"):
        for text in ("ink", "soft", "accent"):
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)
        for shape in ("field", "ran", "wrong", "rejected", "replayed", "failed", "wait", "way"):
            assert contrast(colours[shape], colours[ground]) >= 3, (shape, ground)


@pytest.mark.parametrize("name", ["style.css", "lab.js", "timeline.js", "pay.js", "like.js"])
def test_nothing_is_loaded_from_elsewhere(client, name):
    with client.get(f"/static/{name}") as answer:
        text = answer.get_data(True).replace("http://www.w3.org/2000/svg", "")
    assert "//" not in re.sub(r"(?m)//\s.*$", "", text)
    assert "innerHTML" not in text
    if name == "style.css":
        assert "prefers-reduced-motion" in text
        assert "light-dark(" in text
