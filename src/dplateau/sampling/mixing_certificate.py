"""A mixing claim with its proof: plain data that anyone can check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from dplateau.algorithms import Run, run_from_dict
from dplateau.bounds import literature
from dplateau.bounds.base import Assumption
from dplateau.errors import InvalidInput
from dplateau.ground import checks
from dplateau.ground.sealed import MIXING, Stamp, from_text, open_sealed, seal, to_text

if TYPE_CHECKING:
    from dplateau.verify import MixingVerification

CITATIONS = (
    literature.bravo("Theorem 3.4 and section 4, by Gaussian trade-offs instead of Pinsker"),
    literature.this_library("docs/theory/mixing.md"),
)


@dataclass(frozen=True)
class MixingCertificate:
    """After ``run.steps`` steps, chains from any two starts are ``claimed_tv`` apart at most.

    The distance is total variation. It bounds the distance to the chain's stationary law as well,
    which exists and is unique because the claim is below one. ``witness`` holds the blocks, each
    with the shift plan that proves its factor; :meth:`verify` re-derives the claim without the code
    that found it.
    """

    run: Run
    claimed_tv: float
    witness: Mapping[str, Any]
    assumptions: tuple[Assumption, ...]
    stamp: Stamp = field(default_factory=Stamp.now, compare=False)

    @property
    def steps(self) -> int:
        """Number of steps after which the claim holds (and ever after)."""
        return self.run.steps

    @property
    def blocks(self) -> tuple[tuple[int, int], ...]:
        """The blocks as (how many, of how many steps)."""
        return tuple((block["count"], block["steps"]) for block in self.witness["blocks"])

    def citation(self) -> str:
        """Return BibTeX of what to cite for this claim."""
        return "\n".join(citation.bibtex() for citation in CITATIONS)

    def verify(self) -> MixingVerification:
        """Re-derive the claim by code that shares nothing with the code that found it."""
        from dplateau.verify import verify_mixing

        return verify_mixing(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as JSON-ready data, sealed."""
        content = {
            "claim": {"total_variation": self.claimed_tv, "steps": self.steps},
            "run": self.run.to_dict(),
            "witness": dict(self.witness),
            "assumptions": [{"text": a.text, "status": a.status} for a in self.assumptions],
            "citation": "; ".join(citation.short() for citation in CITATIONS),
        }
        return seal(MIXING, content, self.stamp)

    def to_json(self) -> str:
        """Return the certificate as JSON text; floats keep every digit."""
        return to_text(self.to_dict())

    @classmethod
    def from_json(cls, text: str) -> MixingCertificate:
        """Read what :meth:`to_json` wrote; altered, foreign and later-format text is refused."""
        return cls.from_dict(from_text(text, MIXING))

    @classmethod
    def from_dict(cls, found: Any) -> MixingCertificate:
        """Read what :meth:`to_dict` returned."""
        content, stamp = open_sealed(found, MIXING)
        try:
            claimed = content["claim"]["total_variation"]
            return cls(
                run=run_from_dict(content["run"]),
                claimed_tv=checks.nonnegative("total_variation", claimed),
                witness=dict(content["witness"]),
                assumptions=tuple(Assumption(**item) for item in content["assumptions"]),
                stamp=stamp,
            )
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            if isinstance(error, InvalidInput):
                raise
            raise InvalidInput(f"not a whole mixing certificate: {error}") from None

    def __str__(self) -> str:
        """Show the claim in one line."""
        parts = " and ".join(f"{count} of {steps}" for count, steps in self.blocks)
        sizes = f"{parts} steps" if sum(count for count, _ in self.blocks) > 1 else "one"
        return (
            f"total variation at most {self.claimed_tv:.4g} after {self.steps} steps from any "
            f"start (blocks: {sizes})"
        )
