"""The commands: parse, call the library, show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dplateau.cli.audit import EXAMPLE as AUDIT_EXAMPLE
from dplateau.cli.audit import audit_command
from dplateau.cli.compose import EXAMPLE as COMPOSE_EXAMPLE
from dplateau.cli.compose import compose_command
from dplateau.cli.convert import EXAMPLE as CONVERT_EXAMPLE
from dplateau.cli.convert import convert_command
from dplateau.cli.curve import EXAMPLE, RECORDS_EXAMPLE, curve_command, per_record_command
from dplateau.cli.explore import EXAMPLE as EXPLORE_EXAMPLE
from dplateau.cli.explore import explore_command
from dplateau.cli.ledger import app as ledger_app
from dplateau.cli.mixing import EXAMPLE as MIXING_EXAMPLE
from dplateau.cli.mixing import mixing_command
from dplateau.cli.options import (
    CLAIM_PANEL,
    NEEDED_PANEL,
    OUTPUT_PANEL,
    real_option,
    takes_run,
    takes_run_without_noise,
)
from dplateau.cli.plan import EXAMPLE as PLAN_EXAMPLE
from dplateau.cli.plan import plan_command
from dplateau.cli.report import (
    EXPLAIN_EXAMPLE,
    REPORT_EXAMPLE,
    VERIFY_EXAMPLE,
    explain_command,
    report_command,
    verify_command,
)
from dplateau.cli.reproduce import EXAMPLE as REPRODUCE_EXAMPLE
from dplateau.cli.reproduce import reproduce_command
from dplateau.cli.sign import EXAMPLE as SIGN_EXAMPLE
from dplateau.cli.sign import sign_command
from dplateau.cli.train import (
    PREDICT_EXAMPLE,
    SCHEMA_EXAMPLE,
    TRAIN_EXAMPLE,
    predict_command,
    schema_command,
    train_command,
)
from dplateau.errors import DplateauError
from dplateau.ground import VERSION
from dplateau.ground.files import write_whole

# The library itself loads when a command runs, so that showing help stays quick.
if TYPE_CHECKING:
    from dplateau.algorithms import Run
    from dplateau.certificates import Certificate
    from dplateau.cli.show import Answer

app = typer.Typer(
    name="dplateau",
    help="Privacy of noisy gradient descent: what the last iterate really costs.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Delta = Annotated[float, real_option("--delta", help="Failure probability.", panel=NEEDED_PANEL)]
Json = Annotated[
    bool, typer.Option("--json", help="Print JSON, not tables.", rich_help_panel=OUTPUT_PANEL)
]
Every = Annotated[
    bool,
    typer.Option(
        "--all",
        help="Show every bound, or why it says nothing, and every assumption.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", help="Write the certificate here.", rich_help_panel=OUTPUT_PANEL
    ),
]

_RIDGE = (
    "sgd --n 60_000 --batch-size 600 --epochs 50 --learning-rate 2 --l2 0.005 --lipschitz 1 "
    "--smoothness 0.25{noise} --release last --delta 1e-5"
)


# Exact adversaries of longer runs take more memory than an answer is worth.
_LONGEST = 10**6


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"dplateau {VERSION}")
        raise typer.Exit


@app.callback()
def dplateau(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Say which version this is.", callback=_say_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Privacy of noisy gradient descent: what the last iterate really costs."""


@app.command(epilog=f"Example: `dplateau account {_RIDGE.format(noise=' --noise-multiplier 1')}`")
@takes_run
def account(
    run: Run, delta: Delta, whole: Every = False, json: Json = False, output: Output = None
) -> None:
    """Give the smallest provable epsilon of a run, and what stands beside it."""
    from dplateau.cli import show

    found = answer_of(run, delta, every=whole)
    if output is not None:
        write_whole(output, found.certificate.to_json())
    if json:
        _print_json(_as_dict(found))
        return
    if whole:
        show.show_comparison(found.comparison, found.certificate, every=True)
    show.show_answer(found)
    if whole:
        show.show_assumptions(found.certificate.assumptions)
    if output is not None:
        show.console.print(f"certificate written to {output}", soft_wrap=True, markup=False)


@app.command(
    name="compare",
    epilog=f"Example: `dplateau compare {_RIDGE.format(noise=' --noise-multiplier 1')}`",
)
@takes_run
def compare_command(
    run: Run,
    delta: Delta,
    historical: Annotated[
        bool,
        typer.Option(
            "--historical",
            help="Also show published bounds whose proof has a gap.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = False,
    whole: Annotated[
        bool,
        typer.Option(
            "--all", help="Also say why the others do not apply.", rich_help_panel=OUTPUT_PANEL
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Show what every bound that applies says about a run."""
    from dplateau.cli import show

    found = answer_of(run, delta, historical=historical, every=True)
    if json:
        _print_json(_as_dict(found))
        return
    show.show_comparison(found.comparison, found.certificate, every=whole)


@app.command(
    name="calibrate",
    epilog=f"Example: `dplateau calibrate {_RIDGE.format(noise='')} --epsilon 1`",
)
@takes_run_without_noise
def calibrate_command(
    run: Run,
    delta: Delta,
    epsilon: Annotated[
        float, real_option("--epsilon", help="The epsilon to meet.", panel=NEEDED_PANEL)
    ],
    vary: Annotated[
        str,
        typer.Option(
            help="noise, l2, steps, learning-rate or batch-size.", rich_help_panel=CLAIM_PANEL
        ),
    ] = "noise",
    json: Json = False,
    output: Output = None,
) -> None:
    """Find the smallest noise or l2, or the longest run, that meets a target epsilon.

    Noise that is stated is only where a search for noise starts; none needs to be.
    """
    from dplateau.certificates import calibrate
    from dplateau.cli import show

    found = calibrate(run, epsilon, delta, vary=vary.replace("-", "_"))
    if output is not None:
        write_whole(output, found.certificate.to_json())
    answer = answer_of(found.run, delta, certificate=found.certificate)
    if json:
        varied = {"varied": found.varied, "value": found.value, "unlimited": found.unlimited}
        _print_json({**varied, **_as_dict(answer)})
        return
    show.show_calibration(found)
    show.show_answer(answer)
    if output is not None:
        show.console.print(f"certificate written to {output}", soft_wrap=True, markup=False)


app.command(name="curve", epilog=EXAMPLE)(curve_command)
app.command(name="per-record", epilog=RECORDS_EXAMPLE)(per_record_command)
app.command(name="plan", epilog=PLAN_EXAMPLE)(plan_command)
app.command(name="compose", epilog=COMPOSE_EXAMPLE)(compose_command)
app.command(name="convert", epilog=CONVERT_EXAMPLE)(convert_command)
app.command(name="explore", epilog=EXPLORE_EXAMPLE)(explore_command)
app.add_typer(ledger_app, name="ledger")
app.command(name="mixing", epilog=MIXING_EXAMPLE)(mixing_command)
app.command(name="audit", epilog=AUDIT_EXAMPLE)(audit_command)
app.command(name="sign", epilog=SIGN_EXAMPLE)(sign_command)
app.command(name="reproduce", epilog=REPRODUCE_EXAMPLE)(reproduce_command)
app.command(name="verify", epilog=VERIFY_EXAMPLE)(verify_command)
app.command(name="explain", epilog=EXPLAIN_EXAMPLE)(explain_command)
app.command(name="report", epilog=REPORT_EXAMPLE)(report_command)
app.command(name="train", epilog=TRAIN_EXAMPLE)(train_command)
app.command(name="predict", epilog=PREDICT_EXAMPLE)(predict_command)
app.command(name="schema", epilog=SCHEMA_EXAMPLE)(schema_command)


def answer_of(
    run: Run,
    delta: float,
    *,
    certificate: Certificate | None = None,
    historical: bool = False,
    every: bool = False,
) -> Answer:
    """Ask every bound, or those that may win and the compositions beside them, each once."""
    from dplateau.bounds.registry import BOUNDS, HISTORICAL
    from dplateau.certificates.certify import candidates, certificate_of, comparison_of, survey
    from dplateau.cli.show import Answer

    asked = BOUNDS if every else candidates(run, beside=True)
    findings = survey(run, delta, (*asked, *HISTORICAL) if historical else asked)
    comparison = comparison_of(run, delta, findings)
    released = (row for row in comparison.rows if row.sound and not row.hidden_state)
    claim = certificate or certificate_of(run, delta, findings)
    least, reason = _least(run, delta)
    return Answer(
        certificate=claim,
        comparison=comparison,
        composition=next((row for row in released if row.epsilon is not None), None),
        least=least,
        no_least=reason,
    )


def _least(run: Run, delta: float) -> tuple[float | None, str | None]:
    """Return what an exact adversary needs at least, or why nothing is said."""
    from dplateau.audit import lower_bound

    if run.steps > _LONGEST:
        return None, f"runs of more than {_LONGEST} steps are not attacked here"
    try:
        return lower_bound(run, delta).epsilon, None
    except DplateauError as error:  # no problem is known, or none at this delta
        return None, str(error)


def _as_dict(answer: Answer) -> dict[str, Any]:
    """Return the claim, every bound that was asked, and the certificate, for ``--json``."""
    certificate, composition = answer.certificate, answer.composition
    return {
        **answer.comparison.to_dict(),
        "claimed_epsilon": certificate.claimed_epsilon,
        "bound": certificate.bound,
        "composition": None if composition is None else composition.to_dict(),
        "lower_bound": answer.least,
        "no_lower_bound": answer.no_least,
        "warnings": list(answer.doubts),
        "assumptions": [{"text": a.text, "status": a.status} for a in certificate.assumptions],
        "certificate": certificate.to_dict(),
    }


def _print_json(found: dict[str, Any]) -> None:
    typer.echo(json.dumps(found, indent=2, allow_nan=False))


@app.command(epilog="Example: `dplateau demo`")
def demo() -> None:
    """Show what a hidden state saves on a realistic run."""
    from dplateau.cli.demo import run_demo

    run_demo()
