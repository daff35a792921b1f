"""The command ``plan``: what to run for a target, from public sizes alone."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import Annotated

import typer

from dplateau.cli.options import (
    CLAIM_PANEL,
    NEEDED_PANEL,
    OUTPUT_PANEL,
    real_option,
    whole_option,
)
from dplateau.ground.files import write_whole

EXAMPLE = "Example: `dplateau plan --n 60_000 --d 784 --classes 10 --epsilon 1`"
_TASK = "The task"


def plan_command(
    n: Annotated[
        int, whole_option("--n", help="Number of records, which is public.", panel=NEEDED_PANEL)
    ],
    d: Annotated[
        int, whole_option("--d", help="Number of features, without a constant.", panel=NEEDED_PANEL)
    ],
    epsilon: Annotated[
        float, real_option("--epsilon", help="The epsilon to meet.", panel=NEEDED_PANEL)
    ],
    delta: Annotated[
        float, real_option("--delta", help="Failure probability.", panel=CLAIM_PANEL)
    ] = 1e-5,
    neighbors: Annotated[
        str, typer.Option(help="add-remove or replace.", rich_help_panel=CLAIM_PANEL)
    ] = "add-remove",
    max_records_per_person: Annotated[
        int,
        whole_option(
            "--max-records-per-person", help="Most records of one person.", panel=CLAIM_PANEL
        ),
    ] = 1,
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
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON, not text.", rich_help_panel=OUTPUT_PANEL)
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="Write its certificate here.", rich_help_panel=OUTPUT_PANEL
        ),
    ] = None,
) -> None:
    """Choose algorithm, steps, learning rate and noise for a linear model, without seeing data.

    What is shown may be public: it depends on the sizes and the target alone.
    """
    from dplateau.planning import plan

    found = plan(
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
        write_whole(output, found.certificate.to_json())
    if json:
        claim = found.certificate
        answer = {
            "claimed_epsilon": claim.claimed_epsilon,
            "claimed_delta": claim.claimed_delta,
            "run": found.run.to_dict(),
            "loss": type(found.loss).__name__,
            "rounds_of_whitening": len(found.moments),
            "warnings": list(found.doubts),
            "certificate": claim.to_dict(),
        }
        typer.echo(json_text.dumps(answer, indent=2, allow_nan=False))
        return
    typer.echo(found.summary)
    for doubt in found.doubts:
        typer.echo(f"take note: {doubt}")
    if output is not None:
        typer.echo(f"certificate written to {output}")
