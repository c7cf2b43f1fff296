"""Who issues signed tokens: keys made for the test, published as an issuer does."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from functools import cache
from typing import Any

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

_CURVES: dict[str, tuple[ec.EllipticCurve, int]] = {
    "P-256": (ec.SECP256R1(), 32),
    "P-384": (ec.SECP384R1(), 48),
    "P-521": (ec.SECP521R1(), 66),
}
_HASHES: dict[str, hashes.HashAlgorithm] = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}


def base64url(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def part(value: Mapping[str, Any]) -> str:
    return base64url(json.dumps(value).encode())


def _number(value: int, size: int | None = None) -> str:
    return base64url(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))


@cache
def rsa_key(number: int = 0) -> rsa.RSAPrivateKey:
    """The same one for the same number: they take a while to make."""
    return rsa.generate_private_key(65537, 2048)


class Issuer:
    """Signs with one key; `published` is what the broker is given of it."""

    def __init__(self, kid: str | None = "k1", kind: str = "RSA", number: int = 0) -> None:
        self.kid = kid
        self._rsa = rsa_key(number) if kind == "RSA" else None
        self._ec = None if kind == "RSA" else ec.generate_private_key(_CURVES[kind][0])
        self._curve = kind

    def published(self, **more: Any) -> dict[str, Any]:
        own = {} if self.kid is None else {"kid": self.kid}
        if self._rsa is not None:
            public = self._rsa.public_key().public_numbers()
            return {"kty": "RSA", **own, "n": _number(public.n), "e": _number(public.e), **more}
        assert self._ec is not None
        point, size = self._ec.public_key().public_numbers(), _CURVES[self._curve][1]
        coordinates = {"x": _number(point.x, size), "y": _number(point.y, size)}
        return {"kty": "EC", **own, "crv": self._curve, **coordinates, **more}

    def token(self, claims: Mapping[str, Any], algorithm: str = "", **header: Any) -> str:
        algorithm = algorithm or {"RSA": "RS256", "P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}[self._curve]
        named = {} if self.kid is None else {"kid": self.kid}
        signed = f"{part({'alg': algorithm, **named, **header})}.{part(claims)}"
        return f"{signed}.{base64url(self._sign(signed.encode(), algorithm))}"

    def _sign(self, signed: bytes, algorithm: str) -> bytes:
        digest = _HASHES[algorithm[2:]]
        if self._rsa is None:
            assert self._ec is not None
            size = _CURVES[self._curve][1]
            r, s = decode_dss_signature(self._ec.sign(signed, ec.ECDSA(digest)))
            return r.to_bytes(size, "big") + s.to_bytes(size, "big")
        if algorithm.startswith("PS"):
            pss = padding.PSS(padding.MGF1(digest), digest.digest_size)
            return self._rsa.sign(signed, pss, digest)
        return self._rsa.sign(signed, padding.PKCS1v15(), digest)


def key_set(*rows: Mapping[str, Any]) -> str:
    return json.dumps({"keys": list(rows)})
