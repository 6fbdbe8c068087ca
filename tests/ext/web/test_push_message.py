"""Messages to browsers: encrypted as RFC 8291 has it, signed as RFC 8292 has it."""

from __future__ import annotations

import json

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from push_service import SECRET, Browser

from mudroom.ext.web.push.message import (
    SIZE,
    authorization,
    encrypted,
    from_base64,
    new_key,
    padded,
    public_of,
    to_base64,
)


def test_the_example_of_the_rfc() -> None:
    """RFC 8291, 5 and appendix A."""
    body = encrypted(
        b"When I grow up, I want to be a watermelon",
        from_base64("BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"),
        from_base64("BTBZMqHH6r4Tts7J_aSIgg"),
        key="yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw",
        salt=from_base64("DGv6ra1nlYgDCS1FRnbzlw"),
    )
    assert to_base64(body) == (
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl"
        "7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
    )


def test_what_is_sent_is_read_by_another_implementation_and_always_of_one_size() -> None:
    browser = Browser()
    bodies = [encrypted(padded(json.dumps({"body": "ü" * count}).encode()), browser.point, SECRET) for count in (0, 60)]
    assert [browser.read(body) for body in bodies] == [{"body": ""}, {"body": "ü" * 60}]
    assert len({len(body) for body in bodies}) == 1 and len(bodies[0]) < 4096
    assert len(padded(b"{}")) == SIZE
    assert bodies[0][:16] != bodies[1][:16], "a salt is used once"


def test_a_key_that_is_no_point_is_refused() -> None:
    with pytest.raises(ValueError, match=r"key|point|curve"):
        encrypted(b"", b"\x04" + bytes(64), SECRET)


def test_the_signature_is_of_this_server_for_this_service_and_ends() -> None:
    key = new_key()
    token, public = (
        authorization(key, "https://push.example", "https://me.example", 1000.5).removeprefix("vapid t=").split(", k=")
    )
    head, claims, signature = token.split(".")
    assert json.loads(from_base64(head)) == {"typ": "JWT", "alg": "ES256"}
    assert json.loads(from_base64(claims)) == {
        "aud": "https://push.example",
        "exp": 1000 + 43200,
        "sub": "https://me.example",
    }
    assert from_base64(public) == public_of(key)
    raw = from_base64(signature)
    pair = encode_dss_signature(int.from_bytes(raw[:32], "big"), int.from_bytes(raw[32:], "big"))
    verifier = EllipticCurvePublicKey.from_encoded_point(SECP256R1(), from_base64(public))
    verifier.verify(pair, f"{head}.{claims}".encode(), ECDSA(SHA256()))
    with pytest.raises(InvalidSignature):
        verifier.verify(pair, b"another", ECDSA(SHA256()))
