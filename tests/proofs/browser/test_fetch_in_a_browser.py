"""idempotence.fetch in a real browser, over a network that loses answers."""

import json

import pytest
from proofs.browser.browsers import in_each_browser

pytestmark = [pytest.mark.browser, in_each_browser]


def pay(page, shop, timeout=0):
    """Press the button; return the payment's number, the status, and whether it is a replay."""
    page.goto(f"{shop.url}/pay#{timeout}")
    page.get_by_role("button", name="Pay").click()
    page.wait_for_selector("output:not(:empty)")
    *told, is_the_same_function = json.loads(page.locator("output").inner_text())
    assert is_the_same_function
    return told


@pytest.mark.parametrize("drops", [1, 3])
def test_a_lost_answer_is_asked_for_again_and_it_stays_one_payment(visit, shop, drops):
    shop.drops = drops
    assert pay(visit(), shop) == [1, 201, "true"]
    assert shop.payments == ["12"]
    assert shop.answers == [201] * (drops + 1)
    assert len(set(shop.keys)) == 1


def test_an_answer_that_arrives_is_asked_for_once(visit, shop):
    assert pay(visit(), shop) == [1, 201, None]
    assert (shop.payments, shop.answers) == (["12"], [201])


def test_a_try_that_is_given_up_while_the_first_one_runs_waits_for_its_answer(visit, shop):
    shop.delay = 2
    assert pay(visit(), shop, timeout=300) == [1, 201, "true"]
    assert shop.payments == ["12"]
    assert sorted(shop.answers)[:2] == [201, 201]
    assert set(shop.answers) == {201, 409}
    assert len(set(shop.keys)) == 1


def test_two_presses_are_two_payments(visit, shop):
    page = visit()
    assert [pay(page, shop)[0], pay(visit(), shop)[0]] == [1, 2]
    assert len(set(shop.keys)) == 2
