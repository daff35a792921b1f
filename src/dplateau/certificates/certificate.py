"""A claim with everything needed to use it, to cite it and to check it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from dplateau.algorithms import Run, run_from_dict
from dplateau.bounds.base import Assumption, Bound, Witness
from dplateau.bounds.registry import bound_named
from dplateau.curves import PrivacyCurve
from dplateau.errors import InvalidInput, NotApplicable
from dplateau.ground import checks
from dplateau.ground.sealed import CERTIFICATE, from_text, open_sealed, seal, to_text

if TYPE_CHECKING:
    from dplateau.verify import Verification


@dataclass(frozen=True)
class Certificate:
    """``run`` is (claimed_epsilon, claimed_delta)-private, by the bound named ``bound``.

    ``witness`` holds the theorem's free choices: with it anyone can re-derive the claim, and
    :meth:`verify` does so without the code that found it.
    """

    run: Run
    bound: str
    claimed_epsilon: float
    claimed_delta: float
    witness: Witness
    assumptions: tuple[Assumption, ...]

    @cached_property
    def curve(self) -> PrivacyCurve:
        """The whole privacy curve that the same proof gives."""
        return self.theorem.curve_for(self.run, self.witness)

    @property
    def theorem(self) -> Bound:
        """The bound itself."""
        return bound_named(self.bound)

    def epsilon(self, delta: float) -> float:
        """Return the epsilon that this proof gives at another delta."""
        return self.claimed_epsilon if delta == self.claimed_delta else self.curve.epsilon(delta)

    def delta(self, epsilon: float) -> float:
        """Return the delta that this proof gives at an epsilon."""
        return self.curve.delta(epsilon)

    def tradeoff(self, fpr: float) -> float:
        """Return a lower bound on any attack's false-negative rate at that false-positive rate."""
        return self.curve.tradeoff(fpr)

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

    def citation(self) -> str:
        """Return BibTeX of what to cite for this claim."""
        return self.theorem.citation.bibtex()

    def verify(self) -> Verification:
        """Re-derive the claim by code that shares nothing with the code that found it."""
        from dplateau.verify import verify

        return verify(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as JSON-ready data."""
        content = {
            "claimed_epsilon": self.claimed_epsilon,
            "claimed_delta": self.claimed_delta,
            "bound": self.bound,
            "run": self.run.to_dict(),
            "witness": dict(self.witness),
            "assumptions": [{"text": a.text, "status": a.status} for a in self.assumptions],
            "citation": self.theorem.citation.short(),
        }
        return seal(CERTIFICATE, content)

    def to_json(self) -> str:
        """Return the certificate as JSON text; floats keep every digit."""
        return to_text(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> Certificate:
        """Read what :meth:`to_json` wrote; altered, foreign or later-schema text is refused."""
        return cls.from_dict(from_text(text, CERTIFICATE))

    @classmethod
    def from_dict(cls, found: Any) -> Certificate:
        """Read what :meth:`to_dict` returned."""
        found = open_sealed(found, CERTIFICATE)
        return cls(
            run=run_from_dict(_typed(found, "run", dict)),
            bound=bound_named(found["bound"]).name,
            claimed_epsilon=checks.nonnegative("claimed_epsilon", found["claimed_epsilon"]),
            claimed_delta=checks.level("claimed_delta", found["claimed_delta"]),
            witness=_typed(found, "witness", dict),
            assumptions=tuple(map(_assumption, _typed(found, "assumptions", list))),
        )

    def __str__(self) -> str:
        """Show the claim in one line, with its unit unless that is one record."""
        claim = (
            f"({self.claimed_epsilon:.6g}, {self.claimed_delta:g})-DP by "
            f"{self.theorem.title} ({self.theorem.citation.short()})"
        )
        most = self.run.group_size
        if most == 1:
            return claim
        return f"{claim}; neighbors differ in all the records of one person, at most {most}"


def _typed(found: dict[str, Any], name: str, kind: type[Any]) -> Any:
    if not isinstance(found[name], kind):
        raise InvalidInput(f"not a certificate: {name!r} must be a JSON {kind.__name__}")
    return found[name]


def _assumption(item: Any) -> Assumption:
    try:
        return Assumption(**item)
    except TypeError:
        raise InvalidInput(f"not a certificate: {item!r} must be an assumption") from None
