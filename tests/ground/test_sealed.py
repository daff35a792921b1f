"""The envelope is a contract: docs/format.md states it, and these tests hold it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from dplateau.errors import InvalidInput
from dplateau.ground.sealed import (
    CERTIFICATE,
    COMPOSITION,
    ENVELOPE,
    KINDS,
    MIXING,
    Kind,
    Stamp,
    from_text,
    open_sealed,
    resealed,
    seal,
)

STAMP = Stamp("2026-01-31T12:00:00Z", "0.2.0")
# Of the content below, by `sha256sum` over the canonical JSON typed by hand.
DIGEST = "7a92910d5ad8133c20f7c2c3d0fbb0abc1000e2516ee105474b238e7959fb01b"


def content(kind: Kind) -> dict[str, Any]:
    return {name: [place, 0.1] for place, name in enumerate(kind.fields)}


def sealed(kind: Kind) -> dict[str, Any]:
    return seal(kind, content(kind), STAMP)


def test_digests_never_change() -> None:
    assert sealed(MIXING)["digest"] == DIGEST


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.title)
def test_what_was_sealed_opens_as_its_own_kind_only(kind: Kind) -> None:
    found = sealed(kind)
    assert tuple(found) == ENVELOPE
    assert open_sealed(found, kind) == (content(kind), STAMP)
    for other in set(KINDS) - {kind}:
        said = f"not an? {other.title}: it says that it is '{kind.name}'"
        with pytest.raises(InvalidInput, match=said):
            open_sealed(found, other)


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in KINDS for name in kind.fields])
def test_every_field_is_sealed_and_needed(kind: Kind, name: str) -> None:
    found = sealed(kind)
    with pytest.raises(InvalidInput, match=f"the {kind.title} was altered"):
        open_sealed({**found, "content": {**found["content"], name: None}}, kind)
    found["content"].pop(name)
    with pytest.raises(InvalidInput, match=f"not a whole {kind.title}: it lacks '{name}'"):
        open_sealed(resealed(found), kind)


@pytest.mark.parametrize(
    "change", [{"date": "2026-01-31T12:00:01Z"}, {"library": "0.3.0"}, {"digest": None}]
)
def test_the_stamp_is_sealed(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="altered after it was made"):
        open_sealed({**sealed(CERTIFICATE), **change}, CERTIFICATE)


@pytest.mark.parametrize("name", [name for name in ENVELOPE if name not in ("kind", "format")])
def test_every_part_of_the_envelope_is_needed(name: str) -> None:
    found = sealed(CERTIFICATE)
    del found[name]
    with pytest.raises(InvalidInput, match=f"it lacks '{name}'"):
        open_sealed(found, CERTIFICATE)


def test_nothing_stands_outside_the_digest() -> None:
    found = sealed(CERTIFICATE)
    with pytest.raises(InvalidInput, match="'total_epsilon' stands outside its content"):
        open_sealed({**found, "total_epsilon": 0.01}, CERTIFICATE)
    more = {**found, "content": {**found["content"], "total_epsilon": 0.01}}
    with pytest.raises(InvalidInput, match="format 2 knows no field 'total_epsilon'"):
        open_sealed(resealed(more), CERTIFICATE)


@pytest.mark.parametrize(
    ("version", "advice"),
    [
        (1, "format 1 was never part of a release: make the mixing certificate again"),
        (3, r"read it with the dplateau that wrote it \(0.2.0\) or a later one"),
        (True, "reads format 2"),
        (2.0, "reads format 2"),
        ("2", "reads format 2"),
        (None, "reads format 2"),
    ],
)
def test_other_formats_are_refused_under_a_fitting_digest(version: Any, advice: str) -> None:
    found = resealed({**sealed(MIXING), "format": version})
    with pytest.raises(InvalidInput, match=f"of format {version!r}; dplateau .*{advice}"):
        open_sealed(found, MIXING)


@pytest.mark.parametrize("version", [10**4000, "x" * 10**6, [[1] * 10**5]])
def test_a_version_of_many_pages_is_not_printed(version: Any) -> None:
    strange = resealed({**sealed(CERTIFICATE), "format": version, "library": "y" * 10**6})
    with pytest.raises(InvalidInput) as refused:
        open_sealed(strange, CERTIFICATE)
    assert len(str(refused.value)) < 300


def test_the_first_format_is_known_by_its_own_envelope() -> None:
    old = {"schema": "dplateau/certificate", "schema_version": 1, "claimed_epsilon": 1.0}
    with pytest.raises(InvalidInput, match=r"a certificate of format 1; .* make the certificate"):
        open_sealed(old, CERTIFICATE)


@pytest.mark.parametrize("date", [None, 3, "", "2026-01-31", "2026-02-31T12:00:00Z", "x" * 20])
def test_dates_are_dates(date: Any) -> None:
    with pytest.raises(InvalidInput, match=r"a date \(UTC\)"):
        open_sealed(resealed({**sealed(MIXING), "date": date}), MIXING)


@pytest.mark.parametrize("found", [{}, {"kind": []}, {"schema": []}])
def test_what_has_no_kind_is_refused(found: Any) -> None:
    with pytest.raises(InvalidInput, match="not a certificate: the text lacks 'kind'"):
        open_sealed(found, CERTIFICATE)


# Whoever passes a certificate itself, or its text, must not read that it lacks what it has.
@pytest.mark.parametrize(("found", "kind"), [(None, "NoneType"), (3, "int"), ([], "list")])
def test_what_is_no_object_is_refused_as_that(found: Any, kind: str) -> None:
    with pytest.raises(InvalidInput, match=rf"a dict is needed, .*to_dict\(\).*; got {kind}"):
        open_sealed(found, CERTIFICATE)


# A name that stands twice shows one value to whoever reads it and another one to the digest.
TWICE = ['{"kind": 1, "kind": 1}', '{"content": {"claim": 1, "claim": 2}}']


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "9" * 5000, "NaN", "-Infinity", *TWICE])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="not a composition: the text is no JSON") as refused:
        from_text(text, COMPOSITION)
    # Advice for programmers of Python is none for a reader of papers.
    assert not re.search("recursion|set_int_max|Expecting|char", str(refused.value))


def test_a_date_may_be_fixed_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1769860800")
    assert Stamp.now().date == "2026-01-31T12:00:00Z"
    assert json.dumps(seal(MIXING, content(MIXING), Stamp.now())) == json.dumps(
        seal(MIXING, content(MIXING), Stamp.now())
    )
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "tomorrow")
    assert Stamp.now().date != "2026-01-31T12:00:00Z"
