"""The envelope is a contract: texts of earlier releases must stay readable."""

from __future__ import annotations

from typing import Any

import pytest

from dplateau.errors import InvalidInput
from dplateau.ground.sealed import (
    CERTIFICATE,
    COMPOSITION,
    KINDS,
    MIXING,
    Kind,
    from_text,
    open_sealed,
    resealed,
    seal,
)

# Of the content below: computed once by the three separate functions that this one took over.
DIGESTS = {
    CERTIFICATE: "e7c251617f454af70e9c658c63db98d74511db3b8bcf9e9684e4ca00ae578d29",
    COMPOSITION: "1421a43c247d97ee5cd2909d33a558f774e7d0b20e12da3d5f7f8a5794981052",
    MIXING: "031d871faca8196be6be07e7d02798d442c9312c9b46940dfa317e509a1d3ad1",
}


def content(kind: Kind) -> dict[str, Any]:
    return {name: [place, 0.1] for place, name in enumerate(kind.fields)}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_digests_never_change(kind: Kind) -> None:
    assert seal(kind, content(kind))["digest"] == DIGESTS[kind]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_what_was_sealed_opens_as_its_own_kind_only(kind: Kind) -> None:
    found = seal(kind, content(kind))
    assert open_sealed(found, kind) == found
    assert open_sealed({**found, "carried_along": 1}, kind)
    for other in set(KINDS) - {kind}:
        with pytest.raises(InvalidInput, match=f"not a {other.name}: the text lacks 'schema'"):
            open_sealed(found, other)


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in KINDS for name in kind.fields])
def test_every_field_is_sealed_and_needed(kind: Kind, name: str) -> None:
    found = seal(kind, content(kind))
    with pytest.raises(InvalidInput, match=f"the {kind.name} was altered"):
        open_sealed({**found, name: None}, kind)
    found.pop(name)
    with pytest.raises(InvalidInput, match=f"not a whole {kind.name}: it lacks '{name}'"):
        open_sealed(resealed(found), kind)


@pytest.mark.parametrize("version", [0, 2, True, 1.0, "1", None])
def test_other_versions_are_refused_under_a_fitting_digest(version: Any) -> None:
    found = resealed({**seal(MIXING, content(MIXING)), "schema_version": version})
    with pytest.raises(InvalidInput, match="this release reads 1"):
        open_sealed(found, MIXING)


@pytest.mark.parametrize("found", [None, 3, [], {}, {"schema": []}])
def test_what_has_no_kind_is_refused(found: Any) -> None:
    with pytest.raises(InvalidInput, match="not a certificate: the text lacks 'schema'"):
        open_sealed(found, CERTIFICATE)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="not a composition: the text is no JSON"):
        from_text(text, COMPOSITION)
