"""Who the sender is, as tables: what makes two of two, and what leaves one person one."""

import pytest
from helpers.applications.sign_ins import (
    GUARDS,
    LOADERS,
    ODD_IDS,
    PAIRS,
    WAYS,
    WITH_A_CASHIER,
    WITH_ODD_IDS,
    FlaskLogin,
    JwtInHeader,
    JwtOptional,
    KeptSession,
    LoadedPart,
    Mapping,
    MultiByHeaders,
    Person,
    Site,
    Token,
    returning,
    table,
)
from helpers.repository import ROOT, section

PERSON = Person()
SECOND = Person(user="5", client="kiosk")
"""Who signs in the other way, in the same request."""


def label(ways):
    return " and ".join(way.__doc__ for way in ways)


def counting(ways, guard):
    """Return the places of those ways whose persons count for a guard."""
    places = range(len(ways))
    hiding = [place for place in places if ways[place].hides]
    if hiding or guard != "a token":
        return hiding or list(places)
    front = min((way.binds for way in ways if way.binds), default=None)
    binding = [0] if front is None else [0, front]
    return [place for place in places if ways[place].binds in binding]


def is_renewed_at_a_cost(ways, way, name, guard):
    """Whether a renewal is one of the limits below."""
    if guard == "a token" and way.binds == 2:  # where it is bound to the header as it is
        return ways.index(way) in counting(ways, guard) or Mapping in ways
    is_counted_whole = name == "renew" and any(other.by_credentials for other in ways)
    return is_counted_whole or (name in way.alone and len(ways) > 1)


SOME_PAIRS = [
    pair if place % 12 == 0 else pytest.param(pair, marks=pytest.mark.deep)
    for place, pair in enumerate(PAIRS)
]
SET_UPS = [*((way,) for way in (*WAYS, *LOADERS)), *SOME_PAIRS]
every_set_up = pytest.mark.parametrize("ways", SET_UPS, ids=label)


@every_set_up
def test_who_differs_in_anything_that_says_who_he_is_is_another_sender(ways):
    site, persons, wrong = Site(*ways), [PERSON, SECOND][: len(ways)], []
    for place, way in enumerate(ways):
        for field in way.tells:
            changed = persons.copy()
            changed[place] = persons[place].other(field)
            one, other = site.visitor(*persons), site.visitor(*changed)
            for guard in GUARDS:
                if place in counting(ways, guard):
                    is_right, found = site.takes_for_two(guard, one, other)
                    wrong += [] if is_right else [(way.__doc__, field, guard, found)]
    assert wrong == []


@every_set_up
def test_a_person_is_one_sender_after_everything_that_is_renewed(ways):
    site, persons, wrong = Site(*ways), [PERSON, SECOND][: len(ways)], []
    for place, way in enumerate(ways):
        for name in way.stays:
            visitor = site.visitor(*persons)

            def renew(place=place, name=name, visitor=visitor):
                getattr(site.ways[place], name)(visitor, persons[place])

            for guard in GUARDS:
                if not is_renewed_at_a_cost(ways, way, name, guard):
                    is_right, found = site.takes_for_one(guard, visitor, visitor, renew)
                    wrong += [] if is_right else [(way.__doc__, name, guard, found)]
    assert wrong == []


@pytest.mark.parametrize("ways", [*WITH_A_CASHIER, *SOME_PAIRS], ids=label)
def test_a_second_user_counts_whatever_his_id(ways):
    """A device with the number of its cashier is not the device alone."""
    site, wrong = Site(*ways), []
    for place, way in enumerate(ways):
        persons = [PERSON, PERSON]
        persons[place] = None
        for guard in GUARDS if way.admits_guests else ():
            if counting(ways, guard) == [0, 1]:
                one, other = site.visitor(PERSON, PERSON), site.visitor(*persons)
                is_right, found = site.takes_for_two(guard, one, other)
                wrong += [] if is_right else [(way.__doc__, guard, found)]
    assert wrong == []


@pytest.mark.parametrize("kind", ODD_IDS)
@pytest.mark.parametrize("way", WITH_ODD_IDS, ids=lambda way: way.__doc__)
def test_an_id_may_be_of_any_type(way, kind):
    class Odd(way):
        make_id = staticmethod(ODD_IDS[kind])

    site = Site(Odd)
    one, other = site.visitor(PERSON), site.visitor(PERSON.other("user"))
    for guard in ("a lock", "a key", "a key of its own"):
        assert site.takes_for_two(guard, one, other)[0]
        assert site.takes_for_one(guard, one, one, lambda: site.ways[0].renew(one, PERSON))[0]


@every_set_up
def test_the_address_does_not_count_beside_a_user(ways):
    site = Site(*ways)
    visitor = site.visitor(*[PERSON, SECOND][: len(ways)])
    if not {LoadedPart, Mapping}.issuperset(ways):  # of which several may have one
        assert site.takes_for_one("a key", visitor, visitor, visitor.move)[0]
    assert site.takes_for_one("a key of its own", visitor, visitor, visitor.move)[0]


GUESTS = {way: None for way in WAYS if way.admits_guests}
GUESTS[LoadedPart] = PERSON  # guests of one tenant


@pytest.mark.parametrize("way", GUESTS, ids=lambda way: way.__doc__)
def test_a_guest_is_known_by_his_key_or_else_by_his_address(way):
    site, guest = Site(way), GUESTS[way]
    one, other = site.visitor(guest), site.visitor(guest)
    other.move()
    assert site.takes_for_one("a token", one, other)[0]
    assert site.takes_for_one("a key of its own", one, other)[0]
    for guard in ("a lock", "a key"):
        assert site.takes_for_two(guard, one, other)[0]
        assert site.takes_for_one(guard, one, site.visitor(guest))[0]


@pytest.mark.parametrize("guard", ["a key of its own", "a token"])
def test_the_session_of_a_guest_may_begin_between_two_attempts(guard):
    site = Site(KeptSession)
    guest = site.visitor(None)
    found = site.takes_for_one(guard, guest, guest, lambda: site.ways[0].save(guest, None))
    assert found[0], found


@pytest.mark.parametrize("guard", ["a lock", "a key"])
def test_the_session_that_the_server_keeps_tells_guests_apart(guard):
    site = Site(KeptSession)
    guests = [site.visitor(None) for _ in range(2)]
    for guest in guests:
        site.ways[0].save(guest, None)
    assert site.takes_for_two(guard, *guests)[0]


# What makes two senders of one person


def entering(place):
    return lambda site, visitor: site.ways[place].enter(visitor, PERSON)


def doing(place, name):
    return lambda site, visitor: getattr(site.ways[place], name)(visitor, PERSON)


REQUESTS = ("a lock", "a key", "a key of its own")
LIMITS = {
    "a login between the two attempts": [((FlaskLogin,), [None], entering(0), REQUESTS)],
    "one of two libraries knows its user only in the second attempt": [
        ((FlaskLogin, JwtOptional), [PERSON, None], entering(1), REQUESTS),
        ((FlaskLogin, JwtOptional), [None, PERSON], entering(0), REQUESTS),
    ],
    "a field of a mapping in the session changes": [
        ((Mapping,), [PERSON], doing(0, "change"), GUARDS)
    ],
    "a new credential, where a callback of Flask-HTTPAuth returns a mapping, a named tuple or a "
    "row": [
        ((returning(Token, kind),), [PERSON], doing(0, "renew"), REQUESTS)
        for kind in ("a mapping", "a named tuple", "a row")
    ] + [
        ((JwtInHeader, returning(MultiByHeaders, "a row")), [PERSON, PERSON],
         doing(0, "renew"), REQUESTS)
    ],
    "a new `Authorization` header between the issue of a token and its use": [
        ((JwtInHeader,), [PERSON], doing(0, "renew"), ["a token"])
    ],
    "a login, where a loader returns a tuple with None": [
        ((LoadedPart, FlaskLogin), [PERSON, None], entering(1), GUARDS)
    ],
}  # fmt: skip
"""Cells of this kind: ways to sign in, who has, what happens between two attempts, and guards."""


@pytest.mark.parametrize("limit", LIMITS)
def test_the_limits(limit):
    wrong = []
    for ways, persons, change, guards in LIMITS[limit]:
        site = Site(*ways)
        for guard in guards:
            visitor = site.visitor(*persons)
            found = site.compare(
                guard,
                visitor,
                visitor,
                renew=lambda change=change, site=site, at=visitor: change(site, at),
            )
            if found not in ([200, 200], ["token-not-yours"]):
                wrong.append((label(ways), guard, found))
    assert wrong == []


def test_the_page_has_the_table_and_the_limits():
    page = ROOT / "docs" / "identity.md"
    rows = [line for line in section(page, "Signed in by").splitlines() if line.startswith("| ")]
    assert rows[1:] == table(), "\n".join(table())
    limits = section(page, "Limits").replace("\n", " ")
    assert [limit for limit in LIMITS if limit not in " ".join(limits.split())] == []
