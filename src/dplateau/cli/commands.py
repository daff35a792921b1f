"""The commands: parse, call the library, show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dplateau.cli.audit import EXAMPLE as AUDIT_EXAMPLE
from dplateau.cli.audit import audit_command
from dplateau.cli.convert import EXAMPLE as CONVERT_EXAMPLE
from dplateau.cli.convert import convert_command
from dplateau.cli.curve import EXAMPLE, curve_command
from dplateau.cli.explore import EXAMPLE as EXPLORE_EXAMPLE
from dplateau.cli.explore import explore_command
from dplateau.cli.ledger import app as ledger_app
from dplateau.cli.mixing import EXAMPLE as MIXING_EXAMPLE
from dplateau.cli.mixing import mixing_command
from dplateau.cli.options import CLAIM_PANEL, OUTPUT_PANEL, takes_run
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
from dplateau.ground.files import write_whole

# The library itself loads when a command runs, so that showing help stays quick.
if TYPE_CHECKING:
    from dplateau.algorithms import Run
    from dplateau.certificates import Certificate, Comparison

app = typer.Typer(
    name="dplateau",
    help="Privacy of noisy gradient descent: what the last iterate really costs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Delta = Annotated[
    float,
    typer.Option("--delta", help="Failure probability.", rich_help_panel=CLAIM_PANEL),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print JSON, not tables.", rich_help_panel=OUTPUT_PANEL)
]
Output = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", help="Write the certificate here.", rich_help_panel=OUTPUT_PANEL
    ),
]

_SGD = (
    "sgd --n 60000 --batch-size 256 --epochs 60 --noise-multiplier 1.1 --release last --delta 1e-5"
)
_RIDGE = (
    "sgd --n 60000 --batch-size 600 --steps 5000 --noise-multiplier 1 --learning-rate 2 "
    "--l2 0.005 --lipschitz 1 --smoothness 0.25 --release last --delta 1e-5"
)


@app.command(epilog=f"Example: `dplateau account {_RIDGE}`")
@takes_run
def account(run: Run, delta: Delta, json: Json = False, output: Output = None) -> None:
    """Give the smallest provable epsilon of a run, with what it rests on."""
    from dplateau.cli import show

    comparison, certificate = _both(run, delta, every=False)
    if output is not None:
        write_whole(output, certificate.to_json())
    if json:
        _print_json(_answer(comparison, certificate))
        return
    show.show_comparison(comparison, certificate)
    show.show_certificate(certificate)
    if output is not None:
        show.console.print(f"certificate written to {output}", soft_wrap=True, markup=False)


@app.command(name="compare", epilog=f"Example: `dplateau compare {_SGD}`")
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
    json: Json = False,
) -> None:
    """Show what every bound says about a run, or why it says nothing."""
    from dplateau.cli import show

    comparison, certificate = _both(run, delta, historical=historical)
    if json:
        _print_json(_answer(comparison, certificate))
        return
    show.show_comparison(comparison, certificate)


@app.command(
    name="calibrate",
    epilog=f"Example: `dplateau calibrate {_SGD} --epsilon 1 --vary noise` "
    "(the noise given is only where the search starts)",
)
@takes_run
def calibrate_command(
    run: Run,
    delta: Delta,
    epsilon: Annotated[
        float, typer.Option(help="The epsilon to meet.", rich_help_panel=CLAIM_PANEL)
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
    """Find the smallest noise or l2, or the longest run, that meets a target epsilon."""
    from dplateau.certificates import calibrate
    from dplateau.cli import show

    found = calibrate(run, epsilon, delta, vary=vary.replace("-", "_"))
    if output is not None:
        write_whole(output, found.certificate.to_json())
    if json:
        varied = {"varied": found.varied, "value": found.value, "unlimited": found.unlimited}
        comparison, _ = _both(found.run, delta, every=False)
        _print_json({**varied, **_answer(comparison, found.certificate)})
        return
    show.show_calibration(found)
    show.show_certificate(found.certificate)


app.command(name="curve", epilog=EXAMPLE)(curve_command)
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


def _both(
    run: Run, delta: float, *, historical: bool = False, every: bool = True
) -> tuple[Comparison, Certificate]:
    """Ask each bound once: every one, or only those that may win."""
    from dplateau.bounds.registry import BOUNDS, HISTORICAL
    from dplateau.certificates.certify import candidates, certificate_of, comparison_of, survey

    asked = BOUNDS if every else candidates(run)
    findings = survey(run, delta, (*asked, *HISTORICAL) if historical else asked)
    return comparison_of(run, delta, findings), certificate_of(run, delta, findings)


def _answer(comparison: Comparison, certificate: Certificate) -> dict[str, Any]:
    """Return the claim, every bound that was asked, and the certificate, for ``--json``."""
    return {
        **comparison.to_dict(),
        "claimed_epsilon": certificate.claimed_epsilon,
        "bound": certificate.bound,
        "assumptions": [{"text": a.text, "status": a.status} for a in certificate.assumptions],
        "certificate": certificate.to_dict(),
    }


def _print_json(found: dict[str, Any]) -> None:
    typer.echo(json.dumps(found, indent=2, allow_nan=False))


@app.command()
def demo() -> None:
    """Show what a hidden state saves on a realistic run."""
    from dplateau.cli.demo import run_demo

    run_demo()
