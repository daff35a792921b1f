"""The command ``sign``, and what ``verify --key`` says about a signature."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dplateau.errors import InvalidInput
from dplateau.ground.files import read_bytes, read_text, write_whole

if TYPE_CHECKING:
    from dplateau.verify import Check

EXAMPLE = "Example: `dplateau sign certificate.json --key officer.pem --new-key`"


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
    target = signature_beside(file)
    write_whole(target, signature_of(data, read_bytes(key)))
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
