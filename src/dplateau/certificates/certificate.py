"""A claim with everything needed to use it, to cite it and to check it."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

from dplateau.algorithms import Run, run_from_dict
from dplateau.bounds.base import Assumption, Bound, Witness
from dplateau.bounds.registry import bound_named
from dplateau.curves import PrivacyCurve
from dplateau.errors import DplateauError, InvalidInput, NotApplicable
from dplateau.ground import checks
from dplateau.ground.sealed import CERTIFICATE, Kind, Sealed, Stamp
from dplateau.ground.shown import Shown, rounded_up

if TYPE_CHECKING:
    from dp_accounting import DpEvent
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    from dplateau.verify import Verification


# How a certificate says what it is a part of.
_THIS_PART = "this part is "
# What comes of reading numbers, lists and names where something else stands.
_UNREADABLE = (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, StopIteration)


@dataclass(frozen=True)
class Claim:
    """(epsilon, delta)-differential privacy."""

    epsilon: float
    delta: float

    def __str__(self) -> str:
        """Show both numbers, rounded up."""
        return f"({rounded_up(self.epsilon)}, {rounded_up(self.delta)})-DP"


@dataclass(frozen=True, kw_only=True, repr=False)
class Claimed(Shown, Sealed):
    """What certificates and compositions share: a claim, or the reason why there is none.

    ``no_claim`` says why nothing is claimed, for instance "not private (seeded run)": ``claim`` is
    None then, no number can be read off, and verifying fails with that reason. ``files`` maps the
    names of the files that the claim is about to their SHA-256. ``stamp`` says when and by which
    version the claim was made, and does not count when claims are compared.
    """

    claim: Claim | None
    no_claim: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    stamp: Stamp = field(default_factory=Stamp.now, compare=False)

    def __post_init__(self) -> None:
        """Refuse a claim beside a reason for none, and neither."""
        if (self.claim is None) == (self.no_claim is None):
            raise InvalidInput("state a claim, or in no_claim the reason why there is none")

    @property
    def claimed_epsilon(self) -> float:
        """The epsilon of the claim; refused if there is none."""
        return self._stated().epsilon

    @property
    def claimed_delta(self) -> float:
        """The delta of the claim; refused if there is none."""
        return self._stated().delta

    def _stated(self) -> Claim:
        if self.claim is None:
            raise NotApplicable(f"nothing is claimed: {self.no_claim}")
        return self.claim

    @property
    def headline(self) -> str:
        """The claim in a few words, or why there is none."""
        return str(self.no_claim if self.claim is None else self.claim)

    @cached_property
    def curve(self) -> PrivacyCurve:
        """The whole privacy curve that the same proof gives; refused if nothing is claimed."""
        self._stated()
        return self._proved_curve()

    @abstractmethod
    def _proved_curve(self) -> PrivacyCurve: ...

    def epsilon(self, delta: float) -> float:
        """Return the epsilon that this proof gives at another delta."""
        return self.claimed_epsilon if delta == self.claimed_delta else self.curve.epsilon(delta)

    def delta(self, epsilon: float) -> float:
        """Return the delta that this proof gives at an epsilon."""
        return self.curve.delta(epsilon)

    def tradeoff(self, fpr: float) -> float:
        """Return a lower bound on any attack's false-negative rate at that false-positive rate."""
        return self.curve.tradeoff(fpr)

    def to_pld(self, *, value_discretization_interval: float = 1e-4) -> PrivacyLossDistribution:
        """Return a ``PrivacyLossDistribution`` of dp-accounting that dominates the release.

        It composes there with others of the same interval (and the same neighbors, which a loss
        distribution does not know). Every pair of the proof is rounded up onto the grid; sums and
        transforms are dp-accounting's. Read it at deltas around the claimed one or larger: a proof
        that is known by delta(epsilon) only is tabulated there.
        """
        from dplateau.certificates.dp_events import to_pld

        return to_pld(self.curve, self.claimed_delta, value_discretization_interval)

    def with_files(self, files: Mapping[str, bytes]) -> Self:
        """Return the same claim about files with these names and contents, kept as SHA-256."""
        hashes = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
        return replace(self, files=hashes)

    def verify(self, *, seconds: float | None = None) -> Verification:
        """Re-derive the claim by code that shares nothing with the code that found it.

        After ``seconds`` of processor time (10 unless told otherwise) the verdict is that it was
        given up: a claim that was read from a file may ask for hours.
        """
        from dplateau.verify import SECONDS, verify

        return verify(self.to_dict(), seconds=SECONDS if seconds is None else seconds)

    def _claim_content(self) -> dict[str, Any]:
        claim = self.claim
        return {
            "claim": None if claim is None else {"epsilon": claim.epsilon, "delta": claim.delta},
            "no_claim": self.no_claim,
            "files": dict(self.files),
        }


@dataclass(frozen=True, kw_only=True, repr=False)
class Certificate(Claimed):
    """``run`` is (claim.epsilon, claim.delta)-private, by the bound named ``bound``.

    ``witness`` holds the theorem's free choices: with it anyone can re-derive the claim, and
    :meth:`verify` does so without the code that found it.
    """

    kind: ClassVar[Kind] = CERTIFICATE
    run: Run
    bound: str
    witness: Witness
    assumptions: tuple[Assumption, ...]

    def _proved_curve(self) -> PrivacyCurve:
        try:
            return self.theorem.curve_for(self.run, self.witness)
        except DplateauError:
            raise
        except _UNREADABLE as problem:  # a file may hold anything in place of a witness
            kind = type(problem).__name__
            text = f"the witness is none of {self.bound!r}: reading it failed ({kind}: {problem})"
            raise InvalidInput(text) from problem

    @property
    def theorem(self) -> Bound:
        """The bound itself."""
        return bound_named(self.bound)

    def rdp(self, alpha: float) -> float:
        """Return a bound on the Rényi divergence of order ``alpha``, or refuse and say why."""
        return self.curve.rdp(alpha)

    def group(self, size: int) -> PrivacyCurve:
        """Return the privacy curve of ``size`` records (or groups) that change together."""
        loss = self.run.loss
        curved = loss is not None and (loss.strong_convexity > 0 or loss.dissipativity is not None)
        if size > 1 and curved and self.theorem.hidden_state and self.run.neighbors == "add_remove":
            raise NotApplicable(
                "absent records take the curvature of their losses with them, which this proof "
                f"uses; certify(run, delta, group_size={size}) finds one that does not"
            )
        return self.curve.group(size)

    def to_dp_event(self) -> DpEvent:
        """Return an event of dp-accounting that is no more private than the release.

        There is one where the proof is a composition of Gaussian laws or of their mixtures and one
        record is added or removed. Give it to an accountant for neighbors that add or remove one.

        >>> from dplateau import NoisyGD, certify
        >>> run = NoisyGD(n=9, steps=4, noise_multiplier=2.0, release="all")
        >>> round(certify(run, 1e-5).to_dp_event().noise_multiplier, 9)
        1.0
        """
        from dplateau.certificates.dp_events import to_dp_event

        return to_dp_event(self.curve, self.run)

    @property
    def name_of_part(self) -> str | None:
        """What the release is, where a certificate of a part says so (:meth:`named`)."""
        texts = (assumption.text for assumption in self.assumptions)
        return next((t.removeprefix(_THIS_PART) for t in texts if t.startswith(_THIS_PART)), None)

    def named(self, what: str) -> Certificate:
        """Return the certificate with a statement of what it is, as a part of a composition."""
        stated = Assumption(f"{_THIS_PART}{what}", "by construction")
        return replace(self, assumptions=(*self.assumptions, stated))

    def without_claim(self, reason: str) -> Certificate:
        """Return the same paper with nothing claimed, for instance because the run was seeded."""
        return replace(self, claim=None, no_claim=reason)

    def citation(self) -> str:
        """Return BibTeX of what to cite for this claim."""
        return self.theorem.citation.bibtex()

    def _content(self) -> dict[str, Any]:
        return {
            **self._claim_content(),
            "bound": self.bound,
            "run": self.run.to_dict(),
            "witness": dict(self.witness),
            "assumptions": [a.to_dict() for a in self.assumptions],
            "citation": self.theorem.citation.short(),
        }

    @classmethod
    def _read(cls, content: dict[str, Any], stamp: Stamp) -> Certificate:
        return cls(
            **claim_fields(content, CERTIFICATE),
            run=run_from_dict(_typed(content, "run", dict)),
            bound=bound_named(content["bound"]).name,
            witness=_typed(content, "witness", dict),
            assumptions=tuple(map(_assumption, _typed(content, "assumptions", list))),
            stamp=stamp,
        )

    def __str__(self) -> str:
        """Show the claim in one line, with its unit unless that is one record."""
        if self.claim is None:
            return self.headline
        claim = f"{self.claim} by {self.theorem.title} ({self.theorem.citation.short()})"
        most = self.run.group_size
        if most == 1:
            return claim
        return f"{claim}; neighbors differ in all the records of one person, at most {most}"


def claim_fields(content: Mapping[str, Any], kind: Kind) -> dict[str, Any]:
    """Read what :class:`Claimed` holds."""
    claim, reason, files = content["claim"], content["no_claim"], content["files"]
    if claim is not None:
        if not isinstance(claim, dict) or set(claim) != {"epsilon", "delta"}:
            raise InvalidInput(f"not a {kind.title}: its claim must be an epsilon and a delta")
        epsilon = checks.nonnegative("epsilon", claim["epsilon"])
        claim = Claim(epsilon, checks.level("delta", claim["delta"]))
    if not (reason is None or (isinstance(reason, str) and reason.isprintable())):
        raise InvalidInput(f"not a {kind.title}: 'no_claim' must be one line of text, or null")
    if not isinstance(files, dict) or not all(isinstance(sha, str) for sha in files.values()):
        raise InvalidInput(f"not a {kind.title}: 'files' must map names to SHA-256")
    return {"claim": claim, "no_claim": reason, "files": files}


def _typed(content: dict[str, Any], name: str, kind: type[Any]) -> Any:
    if not isinstance(content[name], kind):
        raise InvalidInput(f"not a certificate: {name!r} must be a JSON {kind.__name__}")
    return content[name]


def _assumption(item: Any) -> Assumption:
    try:
        return Assumption(**item)
    except TypeError:
        raise InvalidInput(f"not a certificate: {item!r} must be an assumption") from None
