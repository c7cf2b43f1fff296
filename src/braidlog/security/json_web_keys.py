"""The keys that an issuer of tokens publishes (JWKS, RFC 7517), and what they say of a signature (RFC 7518).

    {"keys": [{"kty": "RSA", "kid": "…", "use": "sig", "alg": "RS256", "n": "…", "e": "AQAB"},
              {"kty": "EC",  "kid": "…", "crv": "P-256", "x": "…", "y": "…"}, …]}

RS256, RS384, RS512, PS256, PS384, PS512 with RSA keys of 2048 bits or more; ES256, ES384, ES512 each with its curve.
Everything else, secrets (HS256) above all, is refused: a key that is published is no secret.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple

from braidlog.core.errors import UserError

_LEAST_RSA_BITS: Final = 2048
_HASHES: Final = {"256": "SHA256", "384": "SHA384", "512": "SHA512"}
# The curve and the bytes of each of a signature's two numbers.
_CURVES: Final = {"ES256": ("P-256", 32), "ES384": ("P-384", 48), "ES512": ("P-521", 66)}
_CURVE_CLASSES: Final = {"P-256": "SECP256R1", "P-384": "SECP384R1", "P-521": "SECP521R1"}
ALGORITHMS: Final = tuple(f"{family}{size}" for family in ("RS", "PS", "ES") for size in _HASHES)


class BadKeySetError(ValueError):
    """The text is no key set, or none of its keys can be used."""


class JsonWebKey(NamedTuple):
    kid: str | None
    kind: str
    # The one algorithm that it is for; none where it does not say.
    algorithm: str | None
    curve: str | None
    # A public key of the package cryptography.
    key: Any

    def is_for(self, algorithm: str) -> bool:
        if self.algorithm is not None and self.algorithm != algorithm:
            return False
        if algorithm in _CURVES:
            return self.kind == "EC" and self.curve == _CURVES[algorithm][0]
        return self.kind == "RSA"


class JsonWebKeySet:
    """Verifies signatures; what it holds does not change."""

    def __init__(self, keys: tuple[JsonWebKey, ...] = (), skipped: tuple[str, ...] = ()) -> None:
        self.keys = keys
        # What was published and cannot be used, with the reason.
        self.skipped = skipped

    def __len__(self) -> int:
        return len(self.keys)

    def candidates(self, kid: str | None, algorithm: str) -> list[JsonWebKey]:
        """The keys that may have signed a token; all that fit where it does not name one."""
        return [key for key in self.keys if (kid is None or key.kid == kid) and key.is_for(algorithm)]

    def __repr__(self) -> str:
        return f"JsonWebKeySet({', '.join(str(key.kid) for key in self.keys)})"


def require_cryptography() -> None:
    """Raises UserError where the package that verifies signatures is missing."""
    try:
        import_module("cryptography.hazmat.primitives.asymmetric.rsa")
    except ImportError as missing:
        raise UserError(
            "OAUTHBEARER with signed tokens verifies signatures with the package cryptography, which is not "
            "installed: pip install 'braidlog[oauth]'"
        ) from missing


def parse_key_set(text: str | bytes) -> JsonWebKeySet:
    """Raises BadKeySetError where the text holds no key that can be used."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        raise BadKeySetError("it is not JSON") from None
    rows = content.get("keys") if isinstance(content, dict) else None
    if not isinstance(rows, list):
        raise BadKeySetError('it is not of the form {"keys": […]}')
    keys: list[JsonWebKey] = []
    skipped: list[str] = []
    for number, row in enumerate(rows, 1):
        try:
            keys.append(_parse_key(row))
        except (ValueError, TypeError) as problem:
            skipped.append(f"key {number}: {problem}")
    if not keys:
        raise BadKeySetError("; ".join(["it has no key that can be used", *skipped]))
    return JsonWebKeySet(tuple(keys), tuple(skipped))


def _parse_key(row: object) -> JsonWebKey:
    if not isinstance(row, dict):
        raise ValueError("it is not an object")
    if row.get("use", "sig") != "sig" or "verify" not in row.get("key_ops", ["verify"]):
        raise ValueError("it is not for signatures")
    algorithm = row.get("alg")
    if algorithm is not None and algorithm not in ALGORITHMS:
        raise ValueError(f"its algorithm is none of {', '.join(ALGORITHMS)}")
    kind, kid = row.get("kty"), row.get("kid")
    if kid is not None and not isinstance(kid, str):
        raise ValueError("its kid is not text")
    if kind == "RSA":
        return JsonWebKey(kid, "RSA", algorithm, None, _rsa_key(row))
    if kind == "EC":
        curve = row.get("crv")
        if curve not in _CURVE_CLASSES:
            raise ValueError(f"its curve is none of {', '.join(_CURVE_CLASSES)}")
        return JsonWebKey(kid, "EC", algorithm, curve, _ec_key(row, curve))
    raise ValueError("its type is neither RSA nor EC")


def _rsa_key(row: Mapping[str, Any]) -> Any:
    rsa: Any = import_module("cryptography.hazmat.primitives.asymmetric.rsa")
    key = rsa.RSAPublicNumbers(_number(row, "e"), _number(row, "n")).public_key()
    if key.key_size < _LEAST_RSA_BITS:
        raise ValueError(f"an RSA key has {_LEAST_RSA_BITS} bits or more")
    return key


def _ec_key(row: Mapping[str, Any], curve: str) -> Any:
    ec: Any = import_module("cryptography.hazmat.primitives.asymmetric.ec")
    x, y = _number(row, "x"), _number(row, "y")
    return ec.EllipticCurvePublicNumbers(x, y, getattr(ec, _CURVE_CLASSES[curve])()).public_key()


def _number(row: Mapping[str, Any], name: str) -> int:
    text = row.get(name)
    if not isinstance(text, str) or not text:
        raise ValueError(f"it has no {name}")
    return int.from_bytes(from_base64url(text), "big")


def from_base64url(text: str) -> bytes:
    """As RFC 7515 writes it: no padding, no other signs; raises ValueError."""
    if not text.isascii() or not text.replace("-", "a").replace("_", "a").isalnum():
        raise ValueError("it is not base64url")
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def is_signed_by(key: JsonWebKey, algorithm: str, signed: bytes, signature: bytes) -> bool:
    """Whether the key made the signature; `key.is_for(algorithm)` holds."""
    hashes: Any = import_module("cryptography.hazmat.primitives.hashes")
    invalid: Any = import_module("cryptography.exceptions").InvalidSignature
    digest = getattr(hashes, _HASHES[algorithm[2:]])()
    try:
        if algorithm in _CURVES:
            ec: Any = import_module("cryptography.hazmat.primitives.asymmetric.ec")
            size = _CURVES[algorithm][1]
            if len(signature) != 2 * size:
                return False
            key.key.verify(_der(signature[:size], signature[size:]), signed, ec.ECDSA(digest))
        else:
            padding: Any = import_module("cryptography.hazmat.primitives.asymmetric.padding")
            scheme = (
                padding.PKCS1v15()
                if algorithm.startswith("RS")
                else padding.PSS(mgf=padding.MGF1(digest), salt_length=digest.digest_size)
            )
            key.key.verify(signature, signed, scheme, digest)
    except invalid:
        return False
    return True


def _der(r: bytes, s: bytes) -> bytes:
    """The two numbers as OpenSSL wants them; RFC 7518 has them side by side."""
    utils: Any = import_module("cryptography.hazmat.primitives.asymmetric.utils")
    encoded = utils.encode_dss_signature(int.from_bytes(r, "big"), int.from_bytes(s, "big"))
    assert isinstance(encoded, bytes)
    return encoded
