"""Certificate of this installation, for a console that other computers reach: made here, once.

A key that is shipped would be everybody's. The page's visitors compare the printed fingerprint with
the one that their browser shows.
"""

import hashlib
import ipaddress
import logging
import os
import shutil
import ssl
import subprocess
from pathlib import Path

from robot_rl.core.errors import ConfigError

_logger = logging.getLogger(__name__)
_DAYS = 825
"""Longest time that browsers accept for a certificate."""
_LEFT_SECONDS = 30 * 86400
"""Validity [s] below which its end is told."""


def installation_folder() -> Path:
    """Folder of this user's keys."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "robot_rl" / "console"


def ensure_certificate(folder: Path, address: str) -> tuple[Path, Path]:
    """Certificate and key of an address; made where there are none yet.

    Args:
        folder: Where they lie, for this user only.
        address: IP address or name that browsers go to.

    Raises:
        ConfigError: They cannot be made here.
    """
    name = "".join(c if c.isalnum() or c in ".-" else "_" for c in address)
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    openssl = shutil.which("openssl")
    if certificate.is_file() and key.is_file():
        if openssl is not None and _ends_soon(certificate, openssl):
            _logger.warning(
                "the certificate %s has ended, or does in less than 30 days; browsers refuse it "
                "then. Delete it and %s, and the next start makes a new pair",
                certificate, key.name,
            )  # fmt: skip
        return certificate, key
    if openssl is None:
        raise ConfigError(
            "a console for other computers needs a certificate, and 'openssl', which makes it, is "
            f"not installed; install it, or put {certificate} and {key} there"
        )
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    kind = "IP" if _is_ip(address) else "DNS"
    before = os.umask(0o077)
    try:
        done = subprocess.run(
            [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-nodes", "-days", str(_DAYS), "-subj", "/CN=robot_rl console", "-addext",
             f"subjectAltName={kind}:{address}", "-keyout", str(key), "-out", str(certificate)],
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
    finally:
        os.umask(before)
    if done.returncode:
        certificate.unlink(missing_ok=True)
        key.unlink(missing_ok=True)
        raise ConfigError(f"no certificate for '{address}': {done.stderr.strip()[-200:]}")
    return certificate, key


def _ends_soon(certificate: Path, openssl: str) -> bool:
    ends = [openssl, "x509", "-noout", "-checkend", str(_LEFT_SECONDS), "-in", str(certificate)]
    try:
        done = subprocess.run(ends, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return "will expire" in done.stdout


def fingerprint(certificate: Path) -> str:
    """SHA-256 of a certificate as browsers show it."""
    der = ssl.PEM_cert_to_DER_cert(certificate.read_text())
    digest = hashlib.sha256(der).hexdigest().upper()
    return ":".join(digest[i : i + 2] for i in range(0, len(digest), 2))


def _is_ip(address: str) -> bool:
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return False
    return True
