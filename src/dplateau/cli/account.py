"""What runs cost: ``account``, ``compare``, ``convert``. What to run: ``calibrate``, ``plan``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dplateau.cli.options import (
    CLAIM_PANEL,
    NEEDED_PANEL,
    Certified,
    Delta,
    Epsilon,
    Json,
    Neighbors,
    RecordsPerPerson,
    output_option,
    print_json,
    print_text,
    real_option,
    takes_run,
    takes_run_without_noise,
    tell_written,
    whole_option,
)
from dplateau.errors import DplateauError, InvalidInput
from dplateau.ground.files import write_whole

# The library itself loads when a command runs, so that showing help stays quick.
if TYPE_CHECKING:
    from dplateau.algorithms import Run
    from dplateau.certificates import Certificate
    from dplateau.cli.show import Answer

app = typer.Typer()

_RIDGE = (
    "sgd --n 60_000 --batch-size 600 --epochs 50 --learning-rate 2 --l2 0.005 --lipschitz 1 "
    "--smoothness 0.25{noise} --release last --delta 1e-5"
)


# Exact adversaries of longer runs take more memory than an answer is worth.
_LONGEST = 10**6
Every = Annotated[
    bool,
    output_option("--all", help="Show every bound, or why it says nothing, and every assumption."),
]


@app.command(epilog=f"Example: `dplateau account {_RIDGE.format(noise=' --noise-multiplier 1')}`")
@takes_run
def account(
    run: Run, delta: Delta, whole: Every = False, json: Json = False, output: Certified = None
) -> None:
    """Give the smallest provable epsilon of a run, and what stands beside it."""
    from dplateau.cli import show

    answer = answer_of(run, delta, every=whole)
    if output is not None:
        write_whole(output, answer.certificate.to_json())
    if json:
        print_json(_as_dict(answer))
        return
    show.show_answer(answer, rest=None if whole else "every bound: --all; certificate: -o FILE")
    if whole:
        show.show_assumptions(answer.certificate.assumptions)
        show.show_comparison(answer.comparison, answer.certificate, every=True)
    tell_written("certificate", output)


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
        output_option("--historical", help="Also show published bounds whose proof has a gap."),
    ] = False,
    whole: Annotated[
        bool, output_option("--all", help="Also say why the others do not apply.")
    ] = False,
    json: Json = False,
) -> None:
    """Show what every bound that applies says about a run."""
    from dplateau.cli import show

    answer = answer_of(run, delta, historical=historical, every=True)
    if json:
        print_json(_as_dict(answer))
        return
    show.show_comparison(answer.comparison, answer.certificate, every=whole)


@app.command(
    name="calibrate",
    epilog=f"Example: `dplateau calibrate {_RIDGE.format(noise='')} --epsilon 1`",
)
@takes_run_without_noise
def calibrate_command(
    run: Run,
    delta: Delta,
    epsilon: Epsilon,
    vary: Annotated[
        str,
        typer.Option(
            help="noise, l2, steps, learning-rate or batch-size.", rich_help_panel=CLAIM_PANEL
        ),
    ] = "noise",
    json: Json = False,
    output: Certified = None,
) -> None:
    """Find the smallest noise or l2, or the longest run, that meets a target epsilon.

    Noise that is stated is only where a search for noise starts; none needs to be.
    """
    from dplateau.certificates import calibrate
    from dplateau.cli import show

    calibration = calibrate(run, epsilon, delta, vary=vary.replace("-", "_"))
    if output is not None:
        write_whole(output, calibration.certificate.to_json())
    answer = answer_of(calibration.run, delta, certificate=calibration.certificate)
    if json:
        varied = {
            "varied": calibration.varied,
            "value": calibration.value,
            "unlimited": calibration.unlimited,
        }
        print_json({**varied, **_as_dict(answer)})
        return
    show.show_calibration(calibration)
    show.show_answer(answer, rest="with this value: 'dplateau account'; certificate: -o FILE")
    tell_written("certificate", output)


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
        "assumptions": [a.to_dict() for a in certificate.assumptions],
        "certificate": certificate.to_dict(),
    }


# ---- what to run --------------------------------------------------------------------------------

_TASK = "The task"


@app.command(
    name="plan", epilog="Example: `dplateau plan --n 60_000 --d 784 --classes 10 --epsilon 1`"
)
def plan_command(
    n: Annotated[
        int, whole_option("--n", help="Number of records, which is public.", panel=NEEDED_PANEL)
    ],
    d: Annotated[
        int, whole_option("--d", help="Number of features, without a constant.", panel=NEEDED_PANEL)
    ],
    epsilon: Epsilon,
    delta: Annotated[
        float, real_option("--delta", help="Failure probability.", panel=CLAIM_PANEL)
    ] = 1e-5,
    neighbors: Neighbors = "add-remove",
    max_records_per_person: RecordsPerPerson = 1,
    loss: Annotated[
        str, typer.Option(help="logistic, hinge, squared or huber.", rich_help_panel=_TASK)
    ] = "logistic",
    classes: Annotated[
        int, whole_option("--classes", help="2 for one score, more for a softmax.", panel=_TASK)
    ] = 2,
    data_norm: Annotated[
        float, real_option("--data-norm", help="Rows are scaled down to this norm.", panel=_TASK)
    ] = 1.0,
    compute_budget: Annotated[
        float | None,
        real_option("--compute-budget", help="Most passes over the data.", panel=_TASK),
    ] = None,
    json: Json = False,
    output: Certified = None,
) -> None:
    """Choose algorithm, steps, learning rate and noise for a linear model, without seeing data.

    What is shown may be public: it depends on the sizes and the target alone.
    """
    from dplateau.planning import plan

    planned = plan(
        n=n,
        d=d,
        n_classes=classes,
        loss=loss,
        epsilon=epsilon,
        delta=delta,
        compute_budget=compute_budget,
        data_norm=data_norm,
        neighbors=neighbors.replace("-", "_"),
        max_records_per_person=max_records_per_person,
    )
    if output is not None:
        write_whole(output, planned.certificate.to_json())
    if json:
        claim = planned.certificate
        answer = {
            "claimed_epsilon": claim.claimed_epsilon,
            "claimed_delta": claim.claimed_delta,
            "run": planned.run.to_dict(),
            "loss": type(planned.loss).__name__,
            "rounds_of_whitening": len(planned.moments),
            "warnings": list(planned.doubts),
            "certificate": claim.to_dict(),
        }
        print_json(answer)
        return
    print_text(planned.summary)
    for doubt in planned.doubts:
        print_text(f"take note: {doubt}")
    tell_written("certificate", output)


# ---- between languages of privacy ---------------------------------------------------------------

_SOURCES = {
    "classic": "Mironov 2017, Proposition 3",
    "balle": "Balle et al. 2020, Theorem 21",
    "linearized": "Asoodeh et al. 2021, by tangents at 1",
    "optimal": "Asoodeh et al. 2021, exact for one order",
}


@app.command(name="convert", epilog="Example: `dplateau convert --alpha 10 --zeta 1 --delta 1e-5`")
def convert_command(
    alpha: Annotated[float, real_option("--alpha", help="The order of the divergence, above 1.")],
    zeta: Annotated[
        float | None, real_option("--zeta", help="A bound on the Rényi divergence of that order.")
    ] = None,
    epsilon: Annotated[
        float | None, real_option("--epsilon", help="Epsilon, if it is given.")
    ] = None,
    delta: Annotated[float | None, real_option("--delta", help="Delta, if it is given.")] = None,
    json: Json = False,
) -> None:
    """Convert one Rényi divergence: state two of --zeta, --epsilon and --delta, get the third."""
    from dplateau.curves import conversions

    stated = {"zeta": zeta, "epsilon": epsilon, "delta": delta}
    given = {name: value for name, value in stated.items() if value is not None}
    if len(given) != 2:
        raise InvalidInput(
            "convert needs two of --zeta, --epsilon and --delta and gives the third; got "
            f"{' and '.join(f'--{name}' for name in given) or 'none of them'}"
        )
    (asked,) = set(stated) - set(given)
    by_way: dict[str, float] = {}
    for way in conversions.CONVERSIONS:
        if epsilon is not None and delta is not None:
            by_way[way] = conversions.largest_zeta(alpha, epsilon, delta, way)
        elif epsilon is not None:
            by_way[way] = getattr(conversions, f"{way}_delta")(alpha, zeta, epsilon)
        else:
            by_way[way] = getattr(conversions, f"{way}_epsilon")(alpha, zeta, delta)
    if json:
        finite = {
            way: value if abs(value) < float("inf") else None for way, value in by_way.items()
        }
        answer = {"alpha": alpha, **given, "asked": asked, asked: finite}
        print_json(answer)
        return
    _show_conversions(alpha, given, asked, by_way)


def _show_conversions(
    alpha: float, given: dict[str, float], asked: str, by_way: dict[str, float]
) -> None:
    from rich import box
    from rich.table import Table

    from dplateau.cli.show import console
    from dplateau.ground.shown import rounded_down, rounded_up

    # What is claimed is rounded up, what there is room for is rounded down.
    shown = rounded_down if asked == "zeta" else rounded_up
    known = ", ".join(f"{name} = {_as_typed(value)}" for name, value in given.items())
    what = f"largest {asked}" if asked == "zeta" else asked
    title = f"{what} for alpha = {_as_typed(alpha)}, {known}"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1))
    table.add_column("conversion")
    table.add_column(what, justify="right")
    table.add_column("source")
    for way, value in by_way.items():
        style = "bold" if way == "optimal" else None
        table.add_row(way, shown(value, 7, padded=True), _SOURCES[way], style=style)
    console.print(table)


def _as_typed(value: float) -> str:
    """Return a number that was stated with all its digits: it holds for no other."""
    return repr(value).removesuffix(".0")
