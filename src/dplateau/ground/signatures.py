"""Detached signatures: who stands behind a file, in a small file beside it.

A digest detects accidents; a signature detects whoever lacks the signer's key. It is an Ed25519
signature (RFC 8032) of the file's bytes as they are, so other software can check it too. The name
of a key is the SHA-256 of its 32 public bytes. What is signed is the file, not the truth of its
claim: that is for the verifier.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from dplateau.errors import InvalidInput

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

SCHEMA, VERSION = "dplateau/signature", 1
SUFFIX = ".sig"


def new_key() -> tuple[bytes, bytes]:
    """Return a new private key and its public key, as PEM texts."""
    _require_cryptography()
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    secret = key.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    return secret, key.public_key().public_bytes(
        forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo
    )


def signature_of(data: bytes, private_key: bytes) -> str:
    """Return the text of a signature of ``data``; the key is PEM or OpenSSH, without a passphrase.

    Raises
    ------
    InvalidInput
        If the key is none for Ed25519, or cryptography is not installed.
    """
    key = _private(private_key)
    content = {
        "schema": SCHEMA,
        "schema_version": VERSION,
        "algorithm": "Ed25519",
        "key": _name(key.public_key()),
        "signature": key.sign(data).hex(),
    }
    return json.dumps(content, indent=2) + "\n"


def signature_fault(data: bytes, signature: str, public_key: bytes) -> str | None:
    """Return why ``signature`` is none of ``data`` by the owner of the key; None if it is one.

    Raises
    ------
    InvalidInput
        If the key is none for Ed25519, or cryptography is not installed.
    """
    key = _public(public_key)
    from cryptography.exceptions import InvalidSignature

    try:
        document = json.loads(signature)
        stated, value = document["key"], bytes.fromhex(document["signature"])
        if (document["schema"], document["schema_version"]) != (SCHEMA, VERSION):
            return f"it is no {SCHEMA} of version {VERSION}"
    except (ValueError, KeyError, TypeError, RecursionError):
        return "it is not the text of a signature"
    if stated != _name(key):
        return (
            f"it was made with another key ({str(stated)[:16]}...), not with {_name(key)[:16]}..."
        )
    try:
        key.verify(value, data)
    except InvalidSignature:
        return "the file was altered after it was signed, or the signature is forged"
    return None


def key_name(public_key: bytes) -> str:
    """Return the name of a public key: the SHA-256 of its bytes."""
    return _name(_public(public_key))


def _name(key: Ed25519PublicKey) -> str:
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()


def _private(text: bytes) -> Ed25519PrivateKey:
    _require_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    ssh = b"OPENSSH" in text
    try:
        load = forms.load_ssh_private_key if ssh else forms.load_pem_private_key
        key = load(text, password=None)
    except TypeError:
        raise InvalidInput(
            "the private key has a passphrase; take it off a copy, or make a key with --new-key"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidInput(
            "not a private Ed25519 key in PEM or OpenSSH form; --new-key makes one, or "
            "'openssl genpkey -algorithm ed25519'"
        )
    return key


def _public(text: bytes) -> Ed25519PublicKey:
    _require_cryptography()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization as forms
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if b"PRIVATE KEY" in text:
        raise InvalidInput("that is a private key; a signature is checked with the public one")
    try:
        ssh = text.startswith(b"ssh-")
        load = forms.load_ssh_public_key if ssh else forms.load_pem_public_key
        key = load(text)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise InvalidInput("not a public Ed25519 key in PEM or OpenSSH form")
    return key


def _require_cryptography() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise InvalidInput("signatures need the extra sign: pip install 'dplateau[sign]'") from None
