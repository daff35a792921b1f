"""The command ``audit``: a claim against an exact adversary, and against a trainer's own runs."""

from __future__ import annotations

import json as json_text
import os
import pkgutil
import sys
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dplateau.cli.options import (
    CLAIM_PANEL,
    OUTPUT_PANEL,
    print_text,
    real_option,
    takes_run_or_file,
    tell,
    whole_option,
)
from dplateau.cli.papers import claim_in
from dplateau.errors import DplateauError, InvalidInput
from dplateau.ground.files import write_whole
from dplateau.ground.sealed import COMPOSITION
from dplateau.ground.shown import rounded_up

# The library itself loads when the command runs, so that showing help stays quick.
if TYPE_CHECKING:
    from dplateau.algorithms import Run
    from dplateau.audit import AuditReport
    from dplateau.audit.against_claims import Findings
    from dplateau.certificates import Certificate
    from dplateau.verify import Verification

app = typer.Typer()

_EXAMPLE = (
    "Example: `dplateau audit certificate.json --trainer my_training:train --runs 4000 --seed 1`"
)
_PANEL = "Auditing a trainer"


class Effort(StrEnum):
    """How long to search for an adversary."""

    QUICK = "quick"
    NORMAL = "normal"
    THOROUGH = "thorough"


@app.command(name="audit", epilog=_EXAMPLE)
@takes_run_or_file
def audit_command(
    run: Run | Path,
    delta: Annotated[
        float | None,
        real_option(
            "--delta",
            help="Failure probability (a certificate states its own).",
            panel=CLAIM_PANEL,
        ),
    ] = None,
    part: Annotated[
        int | None,
        whole_option(
            "--part",
            help="Of a composition: which of its proofs, by its number in the report.",
            panel=CLAIM_PANEL,
        ),
    ] = None,
    effort: Annotated[
        Effort,
        typer.Option(
            help="Of the search for an exact adversary: quick, normal, thorough.",
            rich_help_panel=CLAIM_PANEL,
        ),
    ] = Effort.NORMAL,
    trainer: Annotated[
        str | None,
        typer.Option(
            help="module:function that trains; called as train(data, rng), or with --at-once as "
            "train(data, rng, count).",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    pair: Annotated[
        str | None,
        typer.Option(
            help="module:function that takes the run and returns two neighboring data sets "
            "(default: gradient rows, all zero but one).",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    runs: Annotated[
        int | None,
        whole_option("--runs", help="Runs on each data set (default 1000).", panel=_PANEL),
    ] = None,
    confidence: Annotated[
        float | None,
        real_option("--confidence", help="Of the verdict (default 0.95).", panel=_PANEL),
    ] = None,
    seed: Annotated[
        int | None, whole_option("--seed", help="Makes the audit repeatable.", panel=_PANEL)
    ] = None,
    at_once: Annotated[
        int | None,
        whole_option("--at-once", help="Runs that the trainer does in one call.", panel=_PANEL),
    ] = None,
    jobs: Annotated[
        int | None,
        whole_option(
            "--jobs",
            help="Processes that share the runs (default 1; 0: one for every processor).",
            panel=_PANEL,
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            help="File of finished runs: an audit that was stopped goes on from it.",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON.", rich_help_panel=OUTPUT_PANEL)
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", help="Write the JSON here.", rich_help_panel=OUTPUT_PANEL),
    ] = None,
    picture: Annotated[
        Path | None,
        typer.Option(
            help="Draw what the trainer's runs show: .png, .svg or .pdf.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = None,
) -> None:
    """Attack a claim: re-derive it, set it against an exact adversary, and audit a trainer.

    The exit code is 1 if anything contradicts the claim.
    """
    from dplateau.audit.against_claims import findings_against

    options = {
        "pair": pair,
        "runs": runs,
        "confidence": confidence,
        "seed": seed,
        "at_once": at_once,
        "jobs": jobs,
        "state": state,
        "picture": picture,
    }
    _check_request(trainer, options, output)
    functions = None if trainer is None else (_function(trainer), pair and _function(pair))
    findings = findings_against(*_claim(run, delta, part), effort=effort.value)
    if functions is not None and findings.sound:
        findings = _with_trainer(findings, functions, options)
    body = json_text.dumps(findings.to_dict(), indent=2, allow_nan=False)
    if picture is not None and findings.report is not None:
        _draw(findings.report, findings.certificate, picture)
    if output is not None:
        write_whole(output, body + "\n")
    if json:
        tell(body)
    else:
        print_text(str(findings))
    if findings.contradicted:
        raise typer.Exit(1)


def _check_request(trainer: str | None, options: dict[str, Any], output: Path | None) -> None:
    """Refuse what could not be done or written, before anything is computed."""
    from dplateau.plots.canvas import checked_suffix, require_matplotlib

    if trainer is None:
        for name, value in options.items():
            if value is not None:
                raise InvalidInput(
                    f"--{name.replace('_', '-')} is for audits of a trainer; "
                    "say --trainer module:function too"
                )
    picture = options["picture"]
    if picture is not None:
        checked_suffix(picture)
        require_matplotlib()
    if picture is not None and picture == output:
        raise InvalidInput(f"picture and numbers cannot both go to {picture}")
    for path in (output, picture):
        if path is not None and not path.parent.is_dir():
            raise InvalidInput(f"cannot write {path}: there is no folder {path.parent}")


def _claim(
    run: Run | Path, delta: float | None, part: int | None
) -> tuple[Certificate, Verification]:
    from dplateau.certificates import Certificate, certify
    from dplateau.verify import verify

    if not isinstance(run, Path):
        if part is not None:
            raise InvalidInput("--part is for a composition in a file; leave it out")
        if delta is None:
            raise InvalidInput("a run needs --delta, the failure probability of the claim")
        certificate = certify(run, delta)
        return certificate, certificate.verify()
    fields = claim_in(run)
    if fields["kind"] == COMPOSITION.name:
        fields = _part(run, fields, part)
    elif part is not None:
        raise InvalidInput(f"{run} is no composition; leave --part out")
    certificate = Certificate.from_dict(fields)
    if delta is not None and delta != certificate.claimed_delta:
        raise InvalidInput(
            f"{run} claims delta {rounded_up(certificate.claimed_delta)}, not {delta:g}; "
            "leave --delta out"
        )
    return certificate, verify(fields)


def _part(file: Path, fields: dict[str, Any], part: int | None) -> dict[str, Any]:
    """Return one certificate of a composition: an attack on it is one on the whole."""
    from dplateau.certificates import Composition
    from dplateau.report.words import proofs_in

    certificates = proofs_in(Composition.from_dict(fields))
    if not certificates:
        raise InvalidInput(f"{file} holds declared parts alone, whose runs are not known here")
    if part is None or not 1 <= part <= len(certificates):
        listed = "; ".join(f"{i} {one.headline}" for i, one in enumerate(certificates, 1))
        raise InvalidInput(f"{file} holds several releases; say --part 1 and so on: {listed}")
    return certificates[part - 1].to_dict()


def _with_trainer(
    findings: Findings, functions: tuple[Callable[..., Any], Any], options: dict[str, Any]
) -> Findings:
    from dplateau.audit.monte_carlo import audit_trainer

    train, make_pair = functions
    runs = 1000 if options["runs"] is None else options["runs"]
    data, neighbor = _pair(findings.certificate.run, make_pair)
    audit = audit_trainer(
        _guarded(train, "trainer"),
        findings.certificate,
        data,
        neighbor,
        runs=runs,
        confidence=0.95 if options["confidence"] is None else options["confidence"],
        seed=options["seed"],
        at_once=options["at_once"],
        jobs=1 if options["jobs"] is None else options["jobs"] or None,
        state=options["state"],
    )
    return replace(findings, report=audit)


def _pair(run: Run, make_pair: Callable[..., Any] | None) -> tuple[Any, Any]:
    from dplateau.audit.monte_carlo_rates import worst_case_pair

    if make_pair is None:
        canary = worst_case_pair(run)
        return canary.data, canary.neighbor
    pair = _guarded(make_pair, "pair")(run)
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise InvalidInput(f"--pair must return two data sets; got {type(pair).__name__}")
    return pair[0], pair[1]


def _function(place: str) -> Callable[..., Any]:
    """Return the function that ``module:function`` names, from here or from what is installed."""
    if place.count(":") != 1:
        raise InvalidInput(f"{place!r} is not module:function, as in my_training:train")
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        named: Any = pkgutil.resolve_name(place)
    except Exception as error:
        raise InvalidInput(f"cannot load {place}: {type(error).__name__}: {error}") from None
    if not callable(named):
        raise InvalidInput(f"{place} is no function; it is a {type(named).__name__}")
    function: Callable[..., Any] = named
    return function


def _guarded(function: Callable[..., Any], what: str) -> Callable[..., Any]:
    """Turn a failure of the user's function into one line that says where it happened."""

    @wraps(function)
    def called(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except DplateauError:
            raise
        except Exception as error:
            line = error.__traceback__
            while line is not None and line.tb_next is not None:
                line = line.tb_next
            where = "" if line is None else f" (line {line.tb_lineno})"
            raise InvalidInput(
                f"the {what} failed: {type(error).__name__}: {error}{where}"
            ) from error

    return called


def _draw(report: AuditReport, certificate: Certificate, picture: Path) -> None:
    from dplateau.plots import AuditDisplay

    display = AuditDisplay.from_report(report, certificate)
    write_whole(picture, display.to_bytes(picture.suffix))
