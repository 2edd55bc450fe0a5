"""idempotence.fetch in a real browser, over a network that loses answers."""

import pytest

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("drops", [0, 1, 3])
def test_a_lost_answer_is_asked_for_again_under_the_same_key(visit, shop, drops):
    shop.drops = drops
    page = visit()
    page.goto(shop.url + "/pay")
    page.get_by_role("button", name="Pay").click()
    page.wait_for_selector("output:not(:empty)")
    assert page.locator("output").inner_text() == "payment 1 true"
    assert len(shop.payments) == 1
    # A browser may send once more by itself what had no answer on a connection it used before.
    assert len(shop.keys) == drops + 1
    assert set(shop.keys) == {(next(iter(shop.payments)), "12")}
