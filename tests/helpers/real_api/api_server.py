"""A real API server with custom resources and its etcd, built once from Debian's Go packages.

Only Debian's unstable suite has these packages. They are downloaded with apt into a separate folder and compiled there;
nothing is installed. This takes some minutes and 2 GB; only the two programs stay in the cache.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import ssl
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml

from tests.helpers.real_servers import free_port, started

SOURCE = Path(__file__).with_name("main.go")
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
SUITE = f"deb [signed-by={KEYS}] http://deb.debian.org/debian sid main\n"
PACKAGES = ("golang-k8s-apiextensions-apiserver-dev", "golang-go", "golang-src", "etcd-server")
USED = re.compile(r"(golang-.*-dev|golang-[\d.]+-(go|src)|etcd-server)$")
BULKY = re.compile(r"aws-sdk|cloudflare-circl|google-api-|google-cloud-dev|gonum|mongo|pierrec-lz4")
LONGEST_S = 900.0


class ApiServer(NamedTuple):
    """A running API server."""

    kubeconfig: str
    """Path of a kubeconfig with the contexts `owner` (all rights) and `reader`."""
    pid: int


@contextmanager
def api_server(folder: Path) -> Iterator[ApiServer]:
    """Run an empty server on its own ports and folder; skip the test if it cannot be built."""
    programs, store, port = built(), f"http://127.0.0.1:{free_port()}", free_port()
    etcd = [
        programs / "etcd", "--data-dir", folder / "etcd", "--listen-client-urls", store,
        "--advertise-client-urls", store, "--listen-peer-urls", "http://127.0.0.1:0", "--unsafe-no-fsync",
    ]  # fmt: skip
    url, certificate, pid_file = f"https://127.0.0.1:{port}", folder / "apiserver.crt", folder / "api.pid"
    # The shell writes its process id, and then becomes the server.
    write_pid = ["sh", "-c", f'echo $$ > "{pid_file}"; exec "$@"', "sh"]
    with (
        started(etcd, lambda: _answers(f"{store}/health"), folder / "etcd.log"),
        started(
            [*write_pid, programs / "apiserver", store, port, folder],
            lambda: certificate.exists() and _answers(f"{url}/readyz", certificate),
            folder / "api.log",
        ),
    ):
        yield ApiServer(_kubeconfig(folder, url, certificate), int(pid_file.read_text()))


def built() -> Path:
    """Return the folder of the programs, which are built if necessary."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sizewright-tests"
    programs = cache / f"api-server-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]}"
    if not all(map(shutil.which, ("apt-get", "apt-cache", "dpkg-deb"))) or not KEYS.is_file():
        pytest.skip("An API server is built from Debian's packages, and this is no Debian")
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not programs.is_dir():
            with tempfile.TemporaryDirectory(dir=cache) as workspace:
                try:
                    _build(Path(workspace))
                except (subprocess.SubprocessError, OSError, IndexError) as error:
                    reason = getattr(error, "stderr", None) or str(error)
                    pytest.skip(f"An API server cannot be built here: {reason[-500:]}")
                (Path(workspace) / "programs").rename(programs)
    return programs


def _build(at: Path) -> None:
    root, programs, debs = at / "root", at / "programs", at / "debs"
    for folder in ("lists/partial", "cache/archives/partial", "root", "programs", "debs"):
        (at / folder).mkdir(parents=True)
    (at / "status").touch()
    (at / "sources").write_text(SUITE)
    (at / "apt.conf").write_text(
        f'Dir::State "{at}"; Dir::State::status "{at}/status"; Dir::Cache "{at}/cache"; Dir::Etc::SourceList '
        f'"{at}/sources"; Dir::Etc::SourceParts "/dev/null"; Dir::Etc::PreferencesParts "/dev/null"; '
        f'APT::Sandbox::User ""; APT::Get::List-Cleanup "false";\n'
    )
    apt = {"APT_CONFIG": str(at / "apt.conf")}
    _run(["apt-get", "update", "-q", "--error-on=any"], at, apt)
    needs = ["apt-cache", "depends", "--recurse", "--no-recommends", "--no-suggests", "--no-conflicts", "--no-breaks"]
    dependencies = _run([*needs, "--no-replaces", "--no-enhances", *PACKAGES], at, apt)
    names = {line for line in dependencies.splitlines() if USED.fullmatch(line) and not BULKY.search(line)}
    _run(["apt-get", "download", "-q", *sorted(names)], debs, apt)
    for deb in sorted(debs.iterdir()):
        _run(["dpkg-deb", "-x", deb, root], at)
        deb.unlink()
    (programs / "src").mkdir()
    shutil.copy(SOURCE, programs / "src")
    go = next((root / "usr/lib").glob("go-*"))
    settings = {
        "GOROOT": str(go), "GOPATH": str(root / "usr/share/gocode"), "GO111MODULE": "off", "GOTOOLCHAIN": "local",
        "CGO_ENABLED": "0", "GOCACHE": str(at / "compiled"), "GOTELEMETRY": "off", "GOENV": "off",
    }  # fmt: skip
    program = ["-ldflags=-s -w", "-o", programs / "apiserver", "."]
    _run(["nice", go / "bin/go", "build", "-p", "2", *program], programs / "src", settings)
    shutil.rmtree(programs / "src")
    shutil.copy(root / "usr/bin/etcd", programs)


def _run(command: list[object], folder: Path, settings: dict[str, str] | None = None) -> str:
    environment = {**os.environ, **(settings or {})}
    done = subprocess.run(
        [str(word) for word in command], cwd=folder, env=environment, check=True, capture_output=True, text=True,
        timeout=LONGEST_S,
    )  # fmt: skip
    return done.stdout


def _kubeconfig(folder: Path, url: str, certificate: Path) -> str:
    users = ("owner", "reader")
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": "owner",
        "clusters": [{"name": "here", "cluster": {"server": url, "certificate-authority": str(certificate)}}],
        "users": [{"name": user, "user": {"token": user}} for user in users],
        "contexts": [{"name": user, "context": {"cluster": "here", "user": user}} for user in users],
    }  # fmt: skip
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return str(path)


def _answers(url: str, certificate: Path | None = None) -> bool:
    trusts = ssl.create_default_context(cafile=str(certificate)) if certificate else None
    try:
        with urllib.request.urlopen(url, timeout=2, context=trusts) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
