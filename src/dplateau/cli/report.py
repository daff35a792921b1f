"""The commands that read a certificate for somebody: ``verify``, ``explain`` and ``report``."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dplateau.cli.options import OUTPUT_PANEL
from dplateau.cli.sign import signature_check
from dplateau.errors import InvalidInput
from dplateau.ground.files import read_text, write_whole
from dplateau.ground.sealed import AUDIT, COMPOSITION, MIXING, from_text

# The library itself loads when a command runs, so that showing help stays quick.
if TYPE_CHECKING:
    from dplateau.certificates import Certificate, Composition
    from dplateau.sampling import MixingCertificate

VERIFY_EXAMPLE = "Example: `dplateau verify certificate.json`"
EXPLAIN_EXAMPLE = "Example: `dplateau explain certificate.json`"
REPORT_EXAMPLE = "Example: `dplateau report certificate.json -o report.html`"

File = Annotated[
    Path, typer.Argument(help="A certificate or composition, as JSON.", show_default=False)
]


def verify_command(
    file: File,
    key: Annotated[
        Path | None, typer.Option(help="Public key whose owner must have signed the file.")
    ] = None,
    every_check: Annotated[
        bool,
        typer.Option("--all", help="List every check that was made.", rich_help_panel=OUTPUT_PANEL),
    ] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON, not a page.", rich_help_panel=OUTPUT_PANEL)
    ] = False,
) -> None:
    """Sign a claim off: the verdict first, then all that it rests on.

    The claim is re-derived by code that shares nothing with the code that made it. Files that the
    claim names are compared if they lie beside it. The exit code is 0 only if everything holds.
    """
    from dplateau.report import sign_off
    from dplateau.verify import read_certificate

    page = sign_off(read_certificate(read_text(file)), file.parent)
    if key is not None:
        page = page.with_check(signature_check(file, key))
    if json:
        typer.echo(json_text.dumps(page.to_dict(), indent=2, allow_nan=False))
    else:
        typer.echo(page.page(every_check=every_check))
    if not page.ok:
        raise typer.Exit(1)


def explain_command(file: File) -> None:
    """Explain a claim: whom it protects, what it rests on, its theorem, how to check it by hand."""
    from dplateau.report import explain

    typer.echo(explain(_paper(file)), nl=False)


def report_command(
    file: File,
    output: Annotated[
        Path, typer.Option("-o", "--output", help="The page to write, in HTML.")
    ] = Path("report.html"),
    audit: Annotated[
        Path | None, typer.Option(help="What `dplateau audit -o` wrote about the same claim.")
    ] = None,
) -> None:
    """Write one page about a claim for a privacy officer: self-contained, for screen and print."""
    from dplateau.report import report_page
    from dplateau.sampling import MixingCertificate

    paper = _paper(file)
    if isinstance(paper, MixingCertificate):
        raise InvalidInput(f"{file} is about mixing, not about privacy; use 'dplateau explain'")
    found: Any = None if audit is None else from_text(read_text(audit), AUDIT)
    write_whole(output, report_page(paper, audit=found, name=file.name))
    typer.echo(f"written to {output}")


def _paper(file: Path) -> Certificate | Composition | MixingCertificate:
    from dplateau.certificates import Certificate, Composition
    from dplateau.sampling import MixingCertificate
    from dplateau.verify import read_certificate

    found = read_certificate(read_text(file))
    if found["kind"] == MIXING.name:
        return MixingCertificate.from_dict(found)
    if found["kind"] == COMPOSITION.name:
        return Composition.from_dict(found)
    return Certificate.from_dict(found)
