"""The key that signs the log's heads: Ed25519, in a file that its owner alone can read, made at first start."""

from __future__ import annotations

import base64
import contextlib
import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from app.store.engines import locate
from layers.canonical import sha256_of
from layers.errors import ConfigurationError


@dataclass(frozen=True)
class SigningKey:
    """A private key. `key_id` is the hash of the public one's 32 raw bytes."""

    private: Ed25519PrivateKey
    public: bytes
    key_id: str

    def sign(self, message: bytes) -> str:
        """The signature, 64 bytes in base64."""
        return base64.b64encode(self.private.sign(message)).decode()


def key_path(database_url: str, key_file: Path | None) -> Path:
    """Where the key lies: as set, else beside the SQLite file, else in the working directory."""
    if key_file is not None:
        return key_file
    location = locate(database_url)
    if location.dialect == "sqlite":
        return Path(f"{location.url.database}.key")
    return Path("arbiter-l8.key")


def load_or_make_key(path: Path) -> SigningKey:
    """The key in the file, which is made, mode 0600, when there is none. Raises `ConfigurationError`.

    Two processes that start at once agree on one key: the file appears whole or not at all.
    """
    try:
        if not path.exists():
            _make(path)
        return _load(path)
    except OSError as exc:
        raise ConfigurationError(f"ARBITER_LOG_KEY_FILE: {str(path)!r} can't be used: {exc.strerror}") from exc


def _make(path: Path) -> None:
    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    descriptor, name = tempfile.mkstemp(prefix=".key-", dir=path.parent)  # mkstemp makes files of mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(name, path)
    finally:
        Path(name).unlink()


def _load(path: Path) -> SigningKey:
    if stat.S_IMODE(path.stat().st_mode) & (stat.S_IRWXO | stat.S_IWGRP):
        raise ConfigurationError(
            f"ARBITER_LOG_KEY_FILE: others may read or change {str(path)!r}; run `chmod 600` on it"
            " and think about a new key"
        )
    try:
        private = load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        private = None
    if not isinstance(private, Ed25519PrivateKey):
        raise ConfigurationError(f"ARBITER_LOG_KEY_FILE: {str(path)!r} holds no Ed25519 private key in PEM")
    public = private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    return SigningKey(private, public, sha256_of(public))
