"""Claims in files: ``verify``, ``explain``, ``report``, ``sign`` and ``compose`` read them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dplateau.cli.options import (
    CLAIM_PANEL,
    Json,
    output_option,
    print_json,
    print_text,
    real_option,
    tell,
    tell_written,
)
from dplateau.errors import InvalidInput
from dplateau.ground.files import read_bytes, read_text, write_whole
from dplateau.ground.sealed import (
    AUDIT,
    CERTIFICATE,
    COMPOSITION,
    FOREIGN,
    MIXING,
    from_text,
    open_sealed,
)

# The library itself loads when a command runs, so that showing help stays quick.
if TYPE_CHECKING:
    from dplateau.certificates import Certificate, Composition
    from dplateau.certificates.composition import ForeignPart, Part
    from dplateau.sampling import MixingCertificate
    from dplateau.verify import Check

app = typer.Typer()

File = Annotated[
    Path, typer.Argument(help="A certificate or composition, as JSON.", show_default=False)
]


def claim_in(file: Path) -> dict[str, Any]:
    """Return the fields of a claim; what is none is refused by its name."""
    from dplateau.verify import read_certificate

    text = _text_of(file)
    try:
        return read_certificate(text)
    except InvalidInput as refused:
        from dplateau.tables.model import FORMAT

        beside = "; it is a model, and its claim is in certificate.json beside it"
        hint = beside if f'"{FORMAT}"' in text[:100] else ""
        raise InvalidInput(f"{file}: {refused}{hint}") from None


def _text_of(file: Path) -> str:
    """Return what a file says; of a release's folder, name the file that states its claim."""
    inside = file / "certificate.json"
    if inside.is_file():
        raise InvalidInput(f"cannot read {file}: it is a folder, and its claim is in {inside}")
    return read_text(file)


def paper_in(file: Path) -> Certificate | Composition | MixingCertificate:
    """Return what a file claims."""
    from dplateau.certificates import Certificate, Composition
    from dplateau.sampling import MixingCertificate

    fields = claim_in(file)
    kinds: dict[str, type[Certificate | Composition | MixingCertificate]]
    kinds = {MIXING.name: MixingCertificate, COMPOSITION.name: Composition}
    try:
        return kinds.get(fields["kind"], Certificate).from_dict(fields)
    except InvalidInput as refused:
        raise InvalidInput(f"{file}: {refused}") from None


def part_in(file: Path) -> Certificate | Composition:
    """Return the claim about privacy in a file."""
    from dplateau.certificates import Certificate, Composition

    paper = paper_in(file)
    if not isinstance(paper, Certificate | Composition):
        raise InvalidInput(f"{file} certifies how fast a chain mixes, which costs no privacy")
    return paper


def payable_in(file: Path) -> Part:
    """Return what a ledger can pay for: the claim in a file, or the part that it declares."""
    from dplateau.certificates.composition import ForeignPart

    text = _text_of(file)
    try:
        fields = from_text(text, CERTIFICATE)
        if isinstance(fields, dict) and fields.get("kind") == FOREIGN.name:
            return ForeignPart.from_dict(fields)
    except InvalidInput as refused:
        raise InvalidInput(f"{file}: {refused}") from None
    return part_in(file)


@app.command(name="verify", epilog="Example: `dplateau verify certificate.json`")
def verify_command(
    file: File,
    key: Annotated[
        Path | None, typer.Option(help="Public key whose owner must have signed the file.")
    ] = None,
    every_check: Annotated[
        bool, output_option("--all", help="List every check that was made.")
    ] = False,
    seconds: Annotated[
        float | None,
        real_option("--seconds", help="Processor time after which verifying is given up (10)."),
    ] = None,
    json: Json = False,
) -> None:
    """Sign a claim off: the verdict first, then all that it rests on.

    The claim is re-derived by code that shares nothing with the code that made it. Files that the
    claim names are compared if they lie beside it. The exit code is 0 only if everything holds.
    """
    from dplateau.report import sign_off
    from dplateau.verify import SECONDS

    limit = SECONDS if seconds is None else seconds
    page = sign_off(claim_in(file), file.parent, seconds=limit)
    if key is not None:
        page = page.with_check(signature_check(file, key))
    if json:
        print_json(page.to_dict())
    else:
        tell(page.page(every_check=every_check))
    if not page.ok:
        raise typer.Exit(1)


@app.command(name="explain", epilog="Example: `dplateau explain certificate.json`")
def explain_command(file: File) -> None:
    """Explain a claim: whom it protects, what it rests on, its theorem, how to check it by hand."""
    from dplateau.report import explain

    tell(explain(paper_in(file)), nl=False)


@app.command(name="report", epilog="Example: `dplateau report certificate.json -o report.html`")
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

    paper = paper_in(file)
    if isinstance(paper, MixingCertificate):
        raise InvalidInput(f"{file} is about mixing, not about privacy; use 'dplateau explain'")
    attack: Any = None
    if audit is not None:
        try:
            attack = from_text(read_text(audit), AUDIT)
            open_sealed(attack, AUDIT)
        except InvalidInput as refused:
            raise InvalidInput(f"--audit {audit}: {refused}") from None
    write_whole(output, report_page(paper, audit=attack, name=file.name))
    tell_written("report", output)


# ---- several releases ---------------------------------------------------------------------------


@app.command(
    name="compose",
    epilog="Example: `dplateau compose certificate.json certificate.json --declare count=0.1`",
)
def compose_command(
    files: Annotated[
        list[Path],
        typer.Argument(help="Certificates or compositions, as JSON; one may stand twice."),
    ],
    declare: Annotated[
        list[str] | None,
        typer.Option(
            help="A release of other software, NAME=EPSILON or NAME=EPSILON:DELTA: its numbers "
            "are your word (repeatable).",
            rich_help_panel=CLAIM_PANEL,
        ),
    ] = None,
    delta: Annotated[
        float | None,
        real_option(
            "--delta", help="Failure probability (default: the largest stated).", panel=CLAIM_PANEL
        ),
    ] = None,
    disjoint: Annotated[
        bool,
        typer.Option(
            "--disjoint",
            help="Every record is used by one of the releases only: the worst counts.",
            rich_help_panel=CLAIM_PANEL,
        ),
    ] = False,
    json: Json = False,
    output: Annotated[
        Path | None, output_option("-o", "--output", help="Write the composition here.")
    ] = None,
) -> None:
    """Give the smallest epsilon of several releases, all of them fixed in advance.

    If results decide what comes next, use `dplateau ledger` instead.
    """
    from dplateau.certificates import compose

    papers = [part_in(file) for file in files]
    level = max(paper.claimed_delta for paper in papers) if delta is None else delta
    parts: list[Part] = [*papers, *(_declared(text, papers[0]) for text in declare or [])]
    composition = compose(parts, level, records="disjoint" if disjoint else "same")
    if output is not None:
        write_whole(output, composition.to_json())
    if json:
        print_json(composition.to_dict())
        return
    print_text(str(composition))
    tell_written("composition", output)


def _declared(text: str, beside: Part) -> ForeignPart:
    """Return what ``NAME=EPSILON:DELTA`` declares, about the neighbors of the files."""
    from dplateau.certificates import foreign
    from dplateau.certificates.compose import relations_of

    name, _, numbers = text.rpartition("=")
    epsilon, _, delta = numbers.partition(":")
    neighbors, unit = next(relations_of(beside))
    try:
        stated = {"epsilon": float(epsilon), "delta": float(delta or 0.0)}
    except ValueError:
        stated = {}
    if not name or not stated:
        raise InvalidInput(f"--declare takes NAME=EPSILON or NAME=EPSILON:DELTA; got {text!r}")
    try:
        return foreign(neighbors=neighbors, unit=unit, name=name, **stated)
    except InvalidInput as refused:
        raise InvalidInput(f"--declare {text}: {refused}") from None


# ---- signatures ---------------------------------------------------------------------------------


@app.command(
    name="sign", epilog="Example: `dplateau sign certificate.json --key officer.pem --new-key`"
)
def sign_command(
    file: Annotated[Path, typer.Argument(help="A certificate (or any file).", show_default=False)],
    key: Annotated[Path, typer.Option(help="Private Ed25519 key, PEM or OpenSSH.")],
    new_key: Annotated[
        bool, typer.Option("--new-key", help="Make the key first: KEY, and KEY.pub to give away.")
    ] = False,
) -> None:
    """Sign a file; the signature goes beside it, and `verify --key` checks it."""
    from dplateau.ground.signatures import signature_of

    data = read_bytes(file)
    if new_key:
        _make_key(key)
    target, secret = signature_beside(file), read_bytes(key)
    try:
        signature = signature_of(data, secret)
    except InvalidInput as refused:
        raise InvalidInput(f"{key}: {refused}") from None
    write_whole(target, signature)
    typer.echo(f"signature written to {target}")


def signature_beside(file: Path) -> Path:
    """Return where the signature of a file is."""
    from dplateau.ground.signatures import SUFFIX

    return file.with_name(file.name + SUFFIX)


def signature_check(file: Path, key: Path) -> Check:
    """Return whether the owner of a public key signed a file, in the file beside it."""
    from dplateau.ground.signatures import key_name, signature_fault
    from dplateau.verify import Check

    public, beside = read_bytes(key), signature_beside(file)
    name = key_name(public)
    if not beside.exists():
        return Check("signature", False, f"there is no {beside}")
    fault = signature_fault(read_bytes(file), read_text(beside), public)
    return Check("signature", fault is None, fault or f"by the owner of the key {name[:16]}...")


def _make_key(path: Path) -> None:
    """Write a new key, readable by its owner alone, and its public key; neither over a file."""
    from dplateau.ground.signatures import new_key

    public = path.with_name(path.name + ".pub")
    for there in (path, public):
        if there.exists():
            raise InvalidInput(f"{there} exists already; leave --new-key out to use it")
    secret, open_key = new_key()
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(secret)
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror}") from None
    write_whole(public, open_key)
    typer.echo(f"key written to {path} (keep it secret) and {public} (give it away)")
