"""The example's lab in a real browser: it draws what happens, and stays responsive."""

import re

import pytest

pytestmark = pytest.mark.browser

MOST_BLOCKED = 200
"""Milliseconds for which nothing else may happen on the page."""

ATTEMPTS = 4
"""What else the machine does can only make it worse: once is enough."""

COUNTS = {
    "none": {"sent": 200, "ran": 200, "rejected": 0, "replayed": 0},
    "lock": {"sent": 200, "ran": 1, "rejected": 199, "replayed": 0},
    "token": {"sent": 200, "ran": 1, "rejected": 199, "replayed": 0},
    "key": {"ran": 1, "replayed": 199, "no answer": 0},
    "wait": {"sent": 200, "ran": 1, "rejected": 0, "replayed": 199},
}
WATCH = """() => {
  globalThis.longest = { task: 0, gap: 0, frames: 0 };
  new PerformanceObserver((list) => {
    for (const { duration } of list.getEntries()) longest.task = Math.max(longest.task, duration);
  }).observe({ type: "longtask" });
  let last = performance.now();
  const tick = (now) => {
    longest.frames++;
    longest.gap = Math.max(longest.gap, now - last);
    last = now;
    requestAnimationFrame(tick);
  };
  requestAnimationFrame(tick);
}"""


def fire(page, url, mode, requests, delay=300):
    page.goto(url + "/lab")
    page.locator(f"input[name=mode][value={mode}]").check()
    page.get_by_label("Requests at once").fill(str(requests))
    page.get_by_label("The view takes").fill(str(delay))
    page.evaluate(WATCH)
    page.get_by_role("button", name="Send requests").click()


def count(page, what):
    return page.locator(f".counts [data-count='{what}']")


@pytest.mark.parametrize("mode", COUNTS)
def test_200_requests_are_counted_right_while_the_page_stays_responsive(visit, url, expect, mode):
    page = visit(viewport={"width": 1000, "height": 900})
    is_none = mode == "none"
    placed = "200 orders: 199 too many." if is_none else "one order."
    verdict = f"200 requests placed {placed}"
    seen = []
    for _ in range(ATTEMPTS):
        fire(page, url, mode, 200)
        expect(page.locator("#verdict")).to_have_text(verdict, timeout=60_000)
        longest = page.evaluate("() => longest")
        outcome = "wrong" if is_none else "right"
        expect(page.locator("#run")).to_have_attribute("data-outcome", outcome)
        expect(page.locator("[data-effects]")).to_have_text("200" if is_none else "1")
        for what, number in COUNTS[mode].items():
            expect(count(page, what)).to_have_text(str(number))
        seen.append(longest)
        if max(longest["task"], longest["gap"]) < MOST_BLOCKED and longest["frames"] > 20:
            return
    pytest.fail(f"longest, in milliseconds: {seen}")


def test_a_run_is_drawn_while_it_happens_and_told_in_words(visit, url, expect):
    page = visit(viewport={"width": 1000, "height": 1000})
    fire(page, url, "key", 12, delay=1900)
    verdict, drawn = page.locator("#verdict"), page.locator("#timeline path[data-kind=run]")
    expect(verdict).to_have_text("Running…")
    expect(drawn).to_have_attribute("d", re.compile("M"))
    so_far = drawn.get_attribute("d")
    expect(drawn).not_to_have_attribute("d", so_far)  # it grows
    expect(verdict).to_have_text("Running…", timeout=1)
    expect(page.locator("#verdict")).to_contain_text("placed one order")
    page.get_by_text("Each request in words").click()
    lines = page.locator("#words li").all_inner_texts()
    assert len(lines) == 12
    assert sum("ran at" in line for line in lines) == 1
    assert sum("replayed at" in line for line in lines) == 11


def test_a_run_has_an_address_and_can_be_looked_at_again(visit, url, expect):
    page = visit()
    fire(page, url, "lock", 5, delay=0)
    expect(page.locator("#verdict")).to_contain_text("5 requests placed")
    assert re.search(r"/lab/runs/\d+$", page.url)
    before = page.url
    page.reload()
    expect(page.locator("#verdict")).to_have_text("5 requests placed one order.")
    expect(count(page, "rejected")).to_have_text("4")
    page.wait_for_timeout(1100)  # the lab has a lock of its own: the same run twice in a second
    page.get_by_role("button", name="Send again").click()
    page.wait_for_url(lambda now: "/lab/runs/" in now and now != before)
    expect(page.locator("#verdict")).to_contain_text("placed one order")
