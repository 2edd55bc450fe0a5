"""The pages in Chinese, for a browser that prefers it."""
# ruff: noqa: RUF001 (Chinese punctuation)

import re

import pytest
from helpers.repository import ROOT, text_of
from helpers.servers.example import HTML

from example_app import create_app, errors
from example_app.catalogue import PRODUCTS
from example_app.lab import runs
from example_app.languages import TEXTS
from example_app.recipes.pages import recipes

CHINESE = {"Accept-Language": "zh-CN,zh;q=0.9,en;q=0.8"}
SHOWN = re.compile(r"(?s)<(pre|code)\b.*?</\1>|<[^>]+>")
"""Code and tags."""

ENGLISH_WORDS = re.compile(r"[A-Za-z]?[a-z]+(?: [a-z]+)+")


@pytest.fixture
def app(tmp_path):
    return create_app(TESTING=True, EXAMPLE_DATABASE=str(tmp_path / "shop.sqlite3"))


@pytest.fixture
def client(app):
    return app.test_client()


def test_each_text_of_the_templates_is_translated(app):
    texts = set()
    for name in app.jinja_env.list_templates():
        source, _, _ = app.jinja_env.loader.get_source(app.jinja_env, name)
        for _, _, found in app.jinja_env.extract_translations(source):
            texts.add(found if isinstance(found, str) else found and found[0])
    in_code = {text for each in PRODUCTS.values() for text in (each.name, each.text)}
    in_code |= {text for pair in errors.TEXTS.values() for text in pair}
    in_code |= {text for pair in runs.MODES.values() for text in pair}
    in_code |= {*runs.FAILURES.values(), *runs.VERDICTS, runs.NEEDS}
    for recipe in recipes(1):
        in_code |= {recipe.title, recipe.text}
        for form in (recipe.technique, recipe.guard):
            in_code |= {form.label, *form.fields}
    assert (texts | in_code) - {None} - set(TEXTS) == set()


def test_a_translation_keeps_names_and_marks():
    marks = re.compile(r"%\(\w+\)s|<[^>]+>")
    plurals = {"%(s)s", "%(t)s"}
    for english, chinese in TEXTS.items():
        assert set(marks.findall(english)) - plurals == set(marks.findall(chinese)), english


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/products/mug", "/checkout/mug", "/orders", "/orders/clear", "/pay", "/nowhere"),
        *("/lab", "/recipes"),
    ],
)
def test_a_page_is_in_chinese_or_in_english(client, path):
    page = client.get(path, headers={**HTML, **CHINESE})
    assert '<html lang="zh-CN">' in page.text
    assert "Accept-Language" in page.headers["Vary"]
    assert ENGLISH_WORDS.findall(SHOWN.sub("", page.text)) == []
    for language in ("en", "fr", "en-GB,en;q=0.9,zh;q=0.8"):
        other = client.get(path, headers={**HTML, "Accept-Language": language})
        assert '<html lang="en">' in other.text
        assert not re.search("[\u4e00-\u9fff]", other.text)


def test_punctuation_in_chinese_is_of_full_width():
    halfwidth = re.compile(r"[\u4e00-\u9fff][,;:?!]|[\u4e00-\u9fff]\.(?!\w)")
    assert [text for text in TEXTS.values() if halfwidth.search(text)] == []


def test_what_the_scripts_say_is_translated():
    folder = ROOT / "example_app" / "static"
    known = set(re.findall(r'(?m)^  (?:"(.+?)"|(\w+)):', text_of(folder / "texts.js")))
    known = {quoted or bare for quoted, bare in known}
    for name in ("lab", "timeline", "pay", "like"):
        said = re.findall(r'translate\(\s*"([^"]+)"', text_of(folder / f"{name}.js"))
        assert set(said) - known == set(), name


def test_an_order_a_mistake_and_a_repeat_are_in_chinese(client):
    headers = {**HTML, **CHINESE}
    page = client.get("/checkout/mug", headers=headers).text
    token = re.search(r'idempotence_token" value="([^"]+)"', page)[1]

    def post(name):
        form = {"name": name, "quantity": "1", "speed": "quick", "idempotence_token": token}
        return client.post("/checkout/mug", data=form, headers=headers, follow_redirects=True).text

    assert "姓名要有 1 到 40 个字符。" in post("")
    assert "小明，谢谢惠顾" in post("小明")
    assert "这笔订单已经提交过" in post("小明")


def test_the_message_of_a_guard_is_in_the_language_of_the_request(client):
    client.post("/products/mug/like")
    english = client.post("/products/mug/like")
    chinese = client.post("/products/mug/like", headers=CHINESE)
    assert english.json["detail"].startswith("You have just liked this.")
    assert chinese.json["detail"] == "刚刚点过赞，五秒内只算一次。"
