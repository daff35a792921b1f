"""Detached signatures: known answers, and everything that must not pass."""

from __future__ import annotations

import json

import pytest
from cryptography.hazmat.primitives import serialization as forms
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

from dplateau.errors import InvalidInput
from dplateau.ground.signatures import key_name, new_key, signature_fault, signature_of

DATA = b'{"claimed_epsilon": 1.0}\r\n'


def texts(key: ed25519.Ed25519PrivateKey, *, ssh: bool = False) -> tuple[bytes, bytes]:
    style = forms.PrivateFormat.OpenSSH if ssh else forms.PrivateFormat.PKCS8
    open_style = forms.PublicFormat.OpenSSH if ssh else forms.PublicFormat.SubjectPublicKeyInfo
    encoding = forms.Encoding.OpenSSH if ssh else forms.Encoding.PEM
    secret = key.private_bytes(forms.Encoding.PEM, style, forms.NoEncryption())
    return secret, key.public_key().public_bytes(encoding, open_style)


def test_the_signature_is_that_of_rfc_8032() -> None:
    # RFC 8032, section 7.1, test 3: the message af82.
    seed = "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7"
    known = (
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
        "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a"
    )
    secret, public = texts(ed25519.Ed25519PrivateKey.from_private_bytes(bytes.fromhex(seed)))
    text = signature_of(bytes.fromhex("af82"), secret)
    assert json.loads(text)["signature"] == known
    assert signature_fault(bytes.fromhex("af82"), text, public) is None


@pytest.mark.parametrize("ssh", [False, True])
def test_either_form_of_a_key_serves(ssh: bool) -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    secret, public = texts(key, ssh=ssh)
    assert signature_fault(DATA, signature_of(DATA, secret), public) is None
    assert key_name(public) == key_name(texts(key)[1])


def test_what_was_altered_or_signed_by_others_does_not_pass() -> None:
    secret, public = new_key()
    text = signature_of(DATA, secret)
    assert signature_fault(DATA, text, public) is None
    for data in (DATA[:-1], DATA.replace(b"1.0", b"0.1"), DATA.replace(b"\r\n", b"\n"), b""):
        assert "altered" in (signature_fault(data, text, public) or "")
    assert "another key" in (signature_fault(DATA, text, new_key()[1]) or "")
    # The signature of another key under this key's name.
    forged = json.loads(signature_of(DATA, new_key()[0])) | {"key": key_name(public)}
    assert "forged" in (signature_fault(DATA, json.dumps(forged), public) or "")


@pytest.mark.parametrize(
    "change",
    [
        {"signature": "00" * 64},
        {"signature": ""},
        {"signature": "zz"},
        {"signature": None},
        {"key": 7},
        {"schema": "dplateau/certificate"},
        {"schema_version": 2},
    ],
    ids=str,
)
def test_a_signature_that_is_none_is_named(change: dict[str, object]) -> None:
    secret, public = new_key()
    found = json.loads(signature_of(DATA, secret)) | change
    assert signature_fault(DATA, json.dumps(found), public) is not None


@pytest.mark.parametrize("text", ["", "[]", "null", "{}", '{"key": "a"}', "[" * 100000])
def test_text_that_is_no_signature_is_named(text: str) -> None:
    assert "not the text of a signature" in (signature_fault(DATA, text, new_key()[1]) or "")


def test_keys_that_are_none_are_refused() -> None:
    secret, public = new_key()
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    rsa_secret = other.private_bytes(
        forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption()
    )
    locked = ed25519.Ed25519PrivateKey.generate().private_bytes(
        forms.Encoding.PEM,
        forms.PrivateFormat.PKCS8,
        forms.BestAvailableEncryption(b"secret"),
    )
    for key in (public, rsa_secret, b"", b"nonsense", b"-----BEGIN OPENSSH PRIVATE KEY-----"):
        with pytest.raises(InvalidInput, match="not a private Ed25519 key"):
            signature_of(DATA, key)
    with pytest.raises(InvalidInput, match="has a passphrase"):
        signature_of(DATA, locked)
    with pytest.raises(InvalidInput, match="that is a private key"):
        signature_fault(DATA, signature_of(DATA, secret), secret)
    for key in (b"", b"ssh-ed25519 AAAA", b"nonsense"):
        with pytest.raises(InvalidInput, match="not a public Ed25519 key"):
            key_name(key)
