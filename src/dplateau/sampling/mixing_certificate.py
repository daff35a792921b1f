"""A mixing claim with its proof: plain data that anyone can check."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dplateau.algorithms import Run, run_from_dict
from dplateau.bounds import literature
from dplateau.bounds.base import Assumption
from dplateau.errors import InvalidInput
from dplateau.ground import checks

if TYPE_CHECKING:
    from dplateau.verify import MixingVerification

SCHEMA = "dplateau/mixing-certificate"
SCHEMA_VERSION = 1
FIELDS = (
    "schema",
    "schema_version",
    "claimed_tv",
    "steps",
    "run",
    "witness",
    "assumptions",
    "citation",
)
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
        """Return the certificate as JSON-ready data."""
        body: dict[str, Any] = {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "claimed_tv": self.claimed_tv,
            "steps": self.steps,
            "run": self.run.to_dict(),
            "witness": dict(self.witness),
            "assumptions": [{"text": a.text, "status": a.status} for a in self.assumptions],
            "citation": "; ".join(citation.short() for citation in CITATIONS),
        }
        return {**body, "digest": digest(body)}

    def to_json(self) -> str:
        """Return the certificate as JSON text; floats keep every digit."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> MixingCertificate:
        """Read what :meth:`to_json` wrote; altered, foreign or later-schema text is refused."""
        try:
            found = json.loads(text)
        except json.JSONDecodeError as error:
            raise InvalidInput(f"not a mixing certificate: the text is no JSON ({error})") from None
        return cls.from_dict(found)

    @classmethod
    def from_dict(cls, found: Any) -> MixingCertificate:
        """Read what :meth:`to_dict` returned."""
        _check_envelope(found)
        try:
            return cls(
                run=run_from_dict(found["run"]),
                claimed_tv=checks.nonnegative("claimed_tv", found["claimed_tv"]),
                witness=dict(found["witness"]),
                assumptions=tuple(Assumption(**item) for item in found["assumptions"]),
            )
        except (TypeError, ValueError, AttributeError) as error:
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


def _check_envelope(found: Any) -> None:
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise InvalidInput(f"not a mixing certificate: the text lacks 'schema': '{SCHEMA}'")
    version = found.get("schema_version")
    if version != SCHEMA_VERSION:
        raise InvalidInput(
            f"mixing certificate of schema version {version!r}; this release reads {SCHEMA_VERSION}"
        )
    if found.get("digest") != digest(found):
        raise InvalidInput("the certificate was altered after it was made: its digest differs")
    missing = [name for name in FIELDS if name not in found]
    if missing:
        raise InvalidInput(f"not a whole mixing certificate: it lacks {missing[0]!r}")


def digest(body: Mapping[str, Any]) -> str:
    """Return a checksum of the certificate's own fields (it detects accidents, not forgers)."""
    own = {name: body.get(name) for name in FIELDS}
    text = json.dumps(own, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
