"""What a claim says, in plain words: whom it protects, what left, what an attacker can gain."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dplateau.algorithms import (
    AllIterates,
    Checkpoints,
    FullBatch,
    LastIterate,
    RandomStop,
    Run,
    refuse_release,
)
from dplateau.bounds.base import Assumption
from dplateau.certificates import Certificate, Composition, ForeignPart
from dplateau.certificates.compose import relations_of
from dplateau.ground import checks
from dplateau.ground.shown import counted, rounded_up
from dplateau.plots.canvas import in_short, noise_in_short

Paper = Certificate | Composition
# The false-alarm rate at which attacks are reported.
FALSE_ALARMS = 0.01
# Beyond this e^epsilon is no number of double precision.
_LARGEST_POWER = 700.0
# Who answers for an assumption, by its status, in the order in which an officer asks.
VOUCHED_BY = {
    "declared": "Vouched for by whoever made the claim (declared, checked by nobody here)",
    "by construction": "True of the algorithm as it is described (by construction)",
    "checked": "Checked by computation from the description",
}


# How assumptions begin that fail most often, and cost most when they do: in that order.
MATTERS_MOST = (
    "only the last iterate leaves",
    "the velocity never leaves",
    "only the checkpoints leave",
    "the stopping step is uniform",
    "no record's gradient is longer",
    "no person has more than",
    "the ridge term covers every coordinate",
    "each record joins each batch",
    "each batch is a uniformly random set",
    "the shuffle is uniform, secret",
    "every record's loss is",
    "every iterate is projected",
    "real-number arithmetic",
)


@dataclass(frozen=True)
class Attack:
    """What the best attack that knows all other records gains, at most.

    ``true_positives`` is the largest true-positive rate at a false-positive rate of 1 percent and
    ``advantage`` the largest difference between both rates.
    """

    true_positives: float
    advantage: float
    unit: str = "record"

    @classmethod
    def on(cls, paper: Paper) -> Attack:
        """Read both off the claim's trade-off curve; total variation is delta at epsilon 0."""
        # The curve bounds what is missed from below; the subtraction is rounded to nearest.
        detected = math.nextafter(1.0 - paper.tradeoff(FALSE_ALARMS), math.inf)
        return cls(min(1.0, detected), min(1.0, paper.delta(0.0)), unit_of(paper))

    def __str__(self) -> str:
        """Say both as percentages, rounded up."""
        detected, advantage = percent(self.true_positives), percent(self.advantage)
        return (
            f"An attack that raises a false alarm in 1 percent of all cases finds a {self.unit} in "
            f"at most {detected} of the cases in which it was used (true-positive rate). At any "
            f"rate of false alarms the difference between both rates is at most {advantage} "
            "(advantage)."
        )


@dataclass(frozen=True)
class Words:
    """A claim in plain words. ``attack`` and ``delta`` are None if nothing is claimed."""

    headline: str
    delta: float | None
    sentence: str
    neighbors: str
    released: tuple[str, ...]
    attack: Attack | None
    assumptions: tuple[tuple[str, tuple[str, ...]], ...]
    doubts: tuple[str, ...]


def words_of(paper: Paper, *, attack: bool = True) -> Words:
    """Return what the claim says; ``attack=False`` leaves out what takes the longest.

    >>> from dplateau import NoisyGD, certify
    >>> words = words_of(certify(NoisyGD(n=9, steps=4, noise_multiplier=2.0, release="all"), 1e-5))
    >>> words.neighbors
    'Data sets that differ in one record, which is in one of them and not in the other.'
    """
    claimed = paper.claim is not None
    return Words(
        headline=paper.headline,
        delta=None if paper.claim is None else paper.claim.delta,
        sentence=_sentence(paper),
        neighbors=_neighbors(paper),
        released=tuple(_released(paper)),
        attack=Attack.on(paper) if attack and claimed else None,
        # Those of a claim that was taken back are not all true: noise of a known seed is not fresh.
        assumptions=grouped(paper.assumptions) if claimed else (),
        doubts=doubts_about(paper),
    )


def percent(share: float) -> str:
    """Return a share of one as a percentage, rounded up.

    >>> percent(0.0123456), percent(1.0)
    ('1.24 percent', '100 percent')
    """
    return f"{rounded_up(100 * share, 3)} percent"


def grouped(assumptions: Iterable[Assumption]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return assumptions by who answers for them; those that nobody has are left out."""
    given = list(assumptions)
    groups = ((who, tuple(a.text for a in given if a.status == s)) for s, who in VOUCHED_BY.items())
    return tuple((who, texts) for who, texts in groups if texts)


def most_important(assumptions: Iterable[Assumption]) -> tuple[Assumption, ...]:
    """Return assumptions, those first whose failure is most likely and costs most."""

    def rank(assumption: Assumption) -> int:
        begins = (i for i, start in enumerate(MATTERS_MOST) if assumption.text.startswith(start))
        return next(begins, len(MATTERS_MOST))

    return tuple(sorted(assumptions, key=rank))


def certificates_in(paper: Paper | ForeignPart) -> Iterator[Certificate]:
    """Yield every certificate that a paper is made of, each once for each place it stands in."""
    match paper:
        case Certificate():
            yield paper
        case Composition():
            for entry in paper.entries:
                yield from certificates_in(entry.part)
        case ForeignPart():
            pass


def proofs_in(paper: Paper) -> list[Certificate]:
    """Return the certificates that a paper is made of, the same ones once."""
    return list({(c.run, c.bound, c.claim): c for c in certificates_in(paper)}.values())


def _sentence(paper: Paper) -> str:
    if paper.claim is None:
        return f"Nothing is claimed: {paper.no_claim}."
    epsilon = rounded_up(paper.claim.epsilon)
    factor = f"e^{epsilon}"
    if paper.claim.epsilon < _LARGEST_POWER:
        factor = rounded_up(math.nextafter(math.exp(paper.claim.epsilon), math.inf), 3)
    # Not "except for outcomes of probability delta": those beyond the factor may be likelier.
    plus = "" if paper.claim.delta == 0 else f", plus {rounded_up(paper.claim.delta)} (delta)"
    replaced = {neighbors for neighbors, _ in relations_of(paper)} == {"replace"}
    without = "with any other in its place" if replaced else "without it"
    return (
        "Whoever knows everything about all the others and sees all that was released learns no "
        f"more than this about one more {unit_of(paper)}: every event is at most {factor} times "
        f"as likely (e^epsilon, epsilon = {epsilon}){plus}, with it as {without}, and the other "
        "way round."
    )


def unit_of(paper: Paper) -> str:
    """Return what the claim protects: a record, or a group of them."""
    units = {unit for _, unit in relations_of(paper)}
    return units.pop() if len(units) == 1 else "record"


def _neighbors(paper: Paper) -> str:
    """Say which data sets the claim makes hard to tell apart."""
    if paper.claim is None:
        return "None: nothing is claimed."
    relations = set(relations_of(paper))
    if len(relations) > 1:
        return "The parts speak of different neighbors."
    ((neighbors, unit),) = relations
    if neighbors == "replace":
        return f"Data sets of one size that differ in one {unit}, exchanged for any other."
    return f"Data sets that differ in one {unit}, which is in one of them and not in the other."


def _released(paper: Paper) -> Iterator[str]:
    if isinstance(paper, Certificate):
        yield _what_left(paper)
        return
    where = "the same records" if paper.records == "same" else "disjoint records"
    yield f"{counted(paper.count, 'release')} from {where}:"
    for entry in paper.entries:
        times = f"{entry.count} x " if entry.count > 1 else ""
        if isinstance(entry.part, ForeignPart):
            yield f"{times}{entry.part.name}: {entry.part.words}, declared by whoever states it"
        else:
            first, *more = _released(entry.part)
            yield f"{times}{entry.part.headline}: {first}"
            yield from (f"- {line}" for line in more)


def _what_left(certificate: Certificate) -> str:
    run, name = certificate.run, certificate.name_of_part
    head = "" if name is None else f"{name[0].upper()}{name[1:]}. "
    if isinstance(run.batches, FullBatch) and run.steps == 1:
        return f"{head}{_one_average(run)}{_constants(run)}"
    text = f"{head}{_stated(run)}{_constants(run)}"
    holds_anyway = not (certificate.theorem.hidden_state or isinstance(run.release, AllIterates))
    if certificate.claim is None or not holds_anyway:
        return text
    return f"{text} The claim would hold if every iterate had left as well."


def _one_average(run: Run) -> str:
    """Say what one step over all records is: a sum of something of each, with noise."""
    size = counted(run.n, "record")
    kind = run.noise_kind.capitalize()
    return f"One sum over {size}, divided by {run.n}, with {kind} noise, {noise_in_short(run)}."


def _constants(run: Run) -> str:
    """Say which constants of the losses were declared: what an officer can ask about."""
    if run.loss is None:
        return ""
    words = {"lipschitz": "Lipschitz constant", "holder": "Hölder (exponent, constant)"}
    stated = [
        f"{words.get(name, name.replace('_', ' '))} {_number(value)}"
        for name, value in run.loss.to_dict().items()
        if not isinstance(value, bool)
    ]
    return f" Declared of each record: {', '.join(stated)}." if stated else ""


def _number(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, int | float) else str(value)


def _stated(run: Run) -> str:
    described = in_short(run, length=True).partition(";")[0]
    match run.release:
        case LastIterate():
            what = "last iterate"
            if run.average_last > 1:
                what = f"average of the last {run.average_last} iterates"
            return f"Only the {what} of {described}. Nothing else that depends on the data."
        case AllIterates():
            return f"Every iterate of {described}."
        case Checkpoints() as checkpoints:
            count = sum(count for _, count in checkpoints.segments(run.steps))
            return (
                f"{counted(count, 'iterate')}, fixed in advance, of {described}, or what follows "
                "from these alone. Nothing else that depends on the data."
            )
        case RandomStop():
            return f"The iterate of one uniformly random step of {described}."
        case _ as unknown:
            refuse_release(unknown)


def doubts_about(paper: Paper) -> tuple[str, ...]:
    """Return what makes the claim weak, if anything."""
    if paper.claim is None:
        return ()
    sizes = [certificate.run.n for certificate in certificates_in(paper)] or [1]
    return checks.weak_claim(paper.claim.epsilon, paper.claim.delta, max(sizes))
