"""The smallest epsilon of several releases together.

Gaussian curves compose exactly, all others as privacy losses; adding up epsilons and deltas is
what remains where nothing else is finite or better.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dplateau.bounds.base import COMPOSED_MARGIN
from dplateau.certificates.certificate import Certificate, Claim, Claimed
from dplateau.certificates.composition import (
    CLOSED_MARGIN,
    METHODS,
    Composition,
    Entry,
    ForeignPart,
    Part,
    Records,
    gaussian_law,
    renyi_curve,
    row_of,
    unit_of,
    with_laws,
)
from dplateau.curves import (
    WIDEST_EPSILON,
    BasicCompositionCurve,
    GaussianCurve,
    TablePair,
    TabulatedCurve,
)
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground import checks
from dplateau.ground.progress import counting

Listed = list[tuple[Part, int]]


@counting("composing")
def compose(
    parts: Sequence[Part],
    delta: float,
    *,
    records: Records = "same",
) -> Composition:
    """Return the smallest epsilon at ``delta`` for releasing all ``parts``, fixed in advance.

    Gaussian curves compose exactly, all others as privacy losses: by their own pairs, or through a
    table of delta(epsilon).

    The claim is about parts that do not depend on each other's results: choosing the next one by
    what the last one showed, with a budget in mind, needs a privacy filter, which this is not.

    Parameters
    ----------
    parts
        Certificates, compositions, and what :func:`foreign` makes of numbers of other software.
    delta
        The failure probability of the claim, in [0, 1); 0 asks for pure epsilon.
    records
        "same", or "disjoint": every record is used by one part only, and the worst part counts.

    Returns
    -------
    Composition
        The claim about all of them, with its parts and assumptions.

    Raises
    ------
    InvalidInput
        If the parts speak of different neighbors or units.
    NotApplicable
        If they have no finite epsilon together.

    Examples
    --------
    >>> from dplateau import NoisyGD, certify
    >>> one = certify(NoisyGD(n=9, steps=4, noise_multiplier=2.0, release="all"), 1e-5)
    >>> both = compose([one, one], 1e-5)
    >>> one.claimed_epsilon < both.claimed_epsilon < 2 * one.claimed_epsilon
    True
    """
    level = checks.level("delta", delta)
    checks.choice("records", records, ("same", "disjoint"))
    listed = _counted(_checked_parts(parts), flat=records == "same")
    if records == "disjoint":
        _require_single_records(listed)
        entries = tuple(Entry(part, count, None) for part, count in listed)
        worst = max(_epsilon(part, level) for part, _ in listed)
        return _smallest([_claimed(entries, records, "worst part", worst, level)], level)
    ways = [f for build in (_gaussian, _losses, _renyi) for f in build(listed, level)]
    claims = [_claim(way, level) for way in ways]
    if not any(_clearly_best(claim) for claim in claims):
        claims += [_rows_claim(entries, level) for entries in _basic(listed, level)]
    return _smallest(claims, level)


def _clearly_best(claim: Composition) -> bool:
    """Return whether adding up epsilons cannot win: it gives each part a smaller delta."""
    laws = [(entry.law, entry.count) for entry in claim.entries if entry.law is not None]
    if claim.method == "GDP composition" or len(laws) < len(claim.entries):
        return claim.method == "GDP composition"
    apart = math.fsum(count * law.epsilon(claim.claimed_delta) for law, count in laws)
    return claim.claimed_epsilon < 0.98 * apart


@dataclass(frozen=True)
class _Found:
    """A way to account for the parts, and the room its claim leaves for a second derivation."""

    method: str
    entries: tuple[Entry, ...]
    margin: float


def _claim(way: _Found, delta: float) -> Composition:
    epsilon = METHODS[way.method](way.entries).epsilon(delta) * (1 + way.margin)
    return _claimed(way.entries, "same", way.method, epsilon, delta)


def _rows_claim(entries: tuple[Entry, ...], delta: float) -> Composition:
    """Claim the sum of the parts' epsilons, each with room for its own second derivation."""
    total = math.fsum(entry.count * row_of(entry)[0] for entry in entries) * (1 + 1e-15)
    return _claimed(entries, "same", "basic composition", total, delta)


def _claimed(
    entries: tuple[Entry, ...], records: Records, method: str, epsilon: float, delta: float
) -> Composition:
    return Composition(claim=Claim(epsilon, delta), entries=entries, records=records, method=method)


def _smallest(claims: list[Composition], delta: float) -> Composition:
    best = min(claims, key=lambda claim: claim.claimed_epsilon, default=None)
    if best is None or math.isinf(best.claimed_epsilon):
        raise NotApplicable(
            f"the parts have no finite epsilon together at delta = {delta:g}; "
            "choose a larger delta, or certify the parts at smaller ones"
        )
    return best


def _checked_parts(parts: Sequence[Any]) -> list[Part]:
    """Refuse what cannot be composed, and parts that speak of different neighbors."""
    if isinstance(parts, Certificate | ForeignPart | Composition):
        raise InvalidInput("compose takes a list of parts; put this one into [ ]")
    listed = list(parts)
    if not listed:
        raise InvalidInput("compose needs at least one part")
    for part in listed:
        if isinstance(part, tuple) and len(part) == 2:
            raise InvalidInput(
                f"the pair {part!r} does not say which neighbors it is about; write "
                f'foreign(epsilon={part[0]!r}, delta={part[1]!r}, neighbors="add_remove", name=...)'
            )
        if not isinstance(part, Certificate | ForeignPart | Composition):
            raise InvalidInput(
                "parts are certificates, compositions and what foreign(...) returns; "
                f"got {type(part).__name__}"
            )
        if isinstance(part, Claimed) and part.claim is None:
            raise NotApplicable(f"a part claims nothing, so all together do not: {part.no_claim}")
    relations = {relation for part in listed for relation in relations_of(part)}
    if len({neighbors for neighbors, _ in relations}) > 1:
        raise InvalidInput(
            "the parts speak of different neighbors (add_remove and replace); certify all runs "
            "with the same neighbors= (a replaced record is one removed and one added: a group "
            "of two)"
        )
    if len(relations) > 1:
        units = ", ".join(sorted(unit for _, unit in relations))
        raise InvalidInput(
            f"the parts speak of different units ({units}); state what protects the same unit "
            "(certify all runs with the same group_size=)"
        )
    return listed


def _require_single_records(listed: Listed) -> None:
    """Refuse larger units on disjoint records: a unit may have records in several parts."""
    units = {unit for part, _ in listed for _, unit in relations_of(part)} - {"record"}
    if units:
        raise InvalidInput(
            f"disjoint records are about neighbors of one record; a {units.pop()} may be spread "
            'over several parts (records="same" covers that)'
        )


def relations_of(part: Part) -> Iterator[tuple[str, str]]:
    """Yield the neighbors and the unit that each part of a part speaks of."""
    if isinstance(part, Composition):
        for entry in part.entries:
            yield from relations_of(entry.part)
    elif isinstance(part, ForeignPart):
        yield part.neighbors, part.unit
    else:
        yield part.run.neighbors, unit_of(part.run.group_size)


def _counted(parts: list[Part], *, flat: bool) -> Listed:
    """Return the different parts with their repeats; compositions on the same records dissolve."""
    different: dict[str, tuple[Part, int]] = {}
    keys: dict[int, str] = {}

    def add(part: Part, count: int) -> None:
        if flat and isinstance(part, Composition) and part.records == "same":
            for entry in part.entries:
                add(entry.part, count * entry.count)
            return
        if id(part) not in keys:
            # What was made twice is the same part, whenever it was made.
            keys[id(part)] = json.dumps(part.to_dict()["content"], sort_keys=True)
        first, before = different.get(keys[id(part)], (part, 0))
        different[keys[id(part)]] = (first, before + count)

    for part in parts:
        add(part, 1)
    return list(different.values())


def _gaussian(listed: Listed, delta: float) -> Iterator[_Found]:
    entries = [Entry(part, n, gaussian_law(part.curve)) for part, n in listed]
    if all(entry.law is not None for entry in entries):
        yield _Found("GDP composition", tuple(entries), CLOSED_MARGIN)


def _losses(listed: Listed, delta: float) -> Iterator[_Found]:
    if delta == 0:
        return
    try:
        entries = with_laws(listed, delta)
    except NotApplicable:
        return
    if not all(isinstance(entry.law, GaussianCurve) for entry in entries):
        yield _Found("PLD composition", entries, COMPOSED_MARGIN)


def _renyi(listed: Listed, delta: float) -> Iterator[_Found]:
    entries = tuple(Entry(part, count, None) for part, count in listed)
    # Divergences of curves that have pairs never compose better than the pairs.
    if delta == 0 or all(part.curve.loss_parts() is not None for part, _ in listed):
        return
    try:
        renyi_curve(entries)
    except NotApplicable:
        return
    yield _Found("RDP composition", entries, 0.0)


def _basic(listed: Listed, delta: float) -> Iterator[tuple[Entry, ...]]:
    """Split delta among the parts and add up their epsilons."""
    curves = tuple(part.curve for part, count in listed for _ in range(count))
    shares = BasicCompositionCurve(curves).split(delta)
    entries, place = [], 0
    for part, count in listed:
        row = _row(part, min(shares[place : place + count]))
        if row is None:
            return
        entries.append(Entry(part, count, row))
        place += count
    yield tuple(entries)


def _row(part: Part, delta: float) -> TabulatedCurve | None:
    """Return one (epsilon, delta) of a part."""
    epsilon = _epsilon(part, delta)
    if epsilon > WIDEST_EPSILON:
        return None
    return TabulatedCurve(TablePair.hull(np.array([epsilon]), np.array([delta])))


def _epsilon(part: Part, delta: float) -> float:
    """Return a part's epsilon; other than its own claim, with room for a second derivation."""
    epsilon = part.epsilon(delta)
    if isinstance(part, ForeignPart) or part.claimed_delta == delta:
        return epsilon
    if isinstance(part, Certificate):
        return part.theorem.claim(epsilon)
    return epsilon * (1 + COMPOSED_MARGIN)
