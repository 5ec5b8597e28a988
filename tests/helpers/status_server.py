"""A status server of Kubeflow Trainer: HTTPS with a certificate of its own CA, and answers that a test defines."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, NamedTuple

import pytest

PATH = "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs/ctr/status"


class Push(NamedTuple):
    path: str
    token: str
    body: Any


class StatusServer(NamedTuple):
    """The server's address and files, as pods get them, and what was pushed so far."""

    url: str
    ca: Path
    token: Path
    pushes: list[Push]

    def environment(self, **more: str) -> dict[str, str]:
        """Return the variables that Trainer gives the containers."""
        return {
            "KUBEFLOW_TRAINER_SERVER_URL": self.url + PATH,
            "KUBEFLOW_TRAINER_SERVER_CA_CERT": str(self.ca),
            "KUBEFLOW_TRAINER_SERVER_TOKEN": str(self.token),
            **more,
        }


@contextmanager
def status_server(folder: Path, answer: Callable[[Push], int] = lambda _: 200) -> Iterator[StatusServer]:
    """Serve; `answer` returns the status of each answer, or raises to drop the connection."""
    pushes: list[Push] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            push = Push(self.path, self.headers["Authorization"].removeprefix("Bearer "), body)
            pushes.append(push)
            try:
                status = answer(push)
            except ConnectionError:
                return
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    ca, chain = certificates(folder)
    token = folder / "token"
    token.write_text("first\n")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield StatusServer(f"https://127.0.0.1:{server.server_port}", ca, token, pushes)
    finally:
        server.shutdown()
        server.server_close()


def certificates(folder: Path) -> tuple[Path, Path]:
    """Write the certificate of a new CA, and a key with a certificate for 127.0.0.1 by it; return both files."""
    pytest.importorskip("cryptography")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.x509.oid import NameOID

    now = datetime.now(timezone.utc)
    ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca_name, name = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in ("ca", "status"))
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    identity = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())

    def certificate(subject: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder(ca_name, subject, public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
        )

    of_ca = (
        certificate(ca_name, ca_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(identity, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    of_server = (
        certificate(name, key.public_key())
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identity), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    ca, chain = folder / "ca.crt", folder / "server.pem"
    ca.write_bytes(of_ca.public_bytes(Encoding.PEM))
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain.write_bytes(private + of_server.public_bytes(Encoding.PEM))
    return ca, chain
