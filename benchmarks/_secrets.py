"""Secrets in every place where a user may put one, commands that store or print, and a search for the secrets."""

from __future__ import annotations

import json
import os
import random
import string
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

NAMES = (
    "DB_PASSWORD", "DB_PASS", "PGPASSWORD", "MYSQL_PWD", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "HF_TOKEN",
    "GITHUB_PAT", "GITLAB_TOKEN", "WANDB_API_KEY", "WANDB_KEY", "OPENAI_APIKEY", "SLACK_WEBHOOK", "SENTRY_DSN",
    "DATABASE_URL", "REDIS_URL", "JWT", "SESSION_COOKIE", "SSH_KEY", "SSH_PRIVATE_KEY", "ENCRYPTION_KEY", "SIGNING_KEY",
    "AZURE_STORAGE_KEY", "AZURE_SAS", "STORAGE_CONNECTION_STRING", "CONN_STR", "AUTH", "BASIC_AUTH", "BEARER",
    "clientSecret", "apiKey", "KEY_PASSPHRASE", "TLS_CERT", "LICENSE_KEY", "SALT", "PIN", "GOOGLE_CREDENTIALS",
    "SERVICE_ACCOUNT_KEY", "KERBEROS_PASSCODE", "MLFLOW_TRACKING_TOKEN", "OAUTH2", "REQUEST_SIGNATURE", "OPENAI_KEY",
    "STRIPE_KEY", "FERNET_KEY", "SESSION_KEY", "DD_APP_KEY", "S3_KEY", "PRIVKEY", "OTP", "TOKEN_PROD", "TOKEN1",
    "API_KEYS", "APIKEYS", "OPENAI_API_KEYS", "ACCESS_KEYS", "AUTH_KEYS", "SSHPASS", "NGROK_AUTHTOKEN", "AUTHTOKEN",
    "DBPASS", "DBPW", "SMTPPASS", "USERPASS", "GHTOKEN", "HFTOKEN", "PASSES",
)  # fmt: skip
"""Variables with the names of secrets."""
FORMS = ("AKIA{upper}", "ghp_{mixed}", "glpat-{mixed}", "sk-{mixed}", "hf_{mixed}", "xoxb-{mixed}", "eyJ{mixed}.e30.x",
         "postgresql://me:{mixed}@db/x", "Bearer {mixed}", "{mixed}{mixed}", "https://{mixed}@git.example/x",
         "https://hooks.slack.com/services/T0/B0/{mixed}")  # fmt: skip
"""Values in the form of a key, in variables with neutral names."""
FLAGS = ("--password={mixed}", "--db-token {mixed}", "--url=s3://me:{mixed}@bucket/x", "API_KEY={mixed}",
         "'Authorization: Bearer {mixed}'", "'curl -u me:{mixed} host'", "--openai-key {mixed}",
         "'PRIVATE-TOKEN: {mixed}'", "--env=API_KEY={mixed}", "-Dtoken={mixed}",
         "'--password=a {mixed}'", "--db-pass 'a {mixed}'", "--password -{mixed}", "--password '$x/{mixed}'",
         "'SECRET=\"a {mixed}\" train'", "'SECRET=\"a \\\"{mixed}\" train'", "'curl -u \"me:a {mixed}\" host'",
         "me:{mixed}@prom:9090", "//me:{mixed}@prom", "me:p/{mixed}@prom", "http://me:12/{mixed}@127.0.0.1:1",
         "'http://me:a {mixed}@127.0.0.1:1'", "http%3A%2F%2Fme%3A{mixed}%40host", "'mysql -p{mixed} db'",
         "'sshpass -p {mixed} ssh host'", "'redis-cli -a {mixed}'", "'docker login -u me -p {mixed}'",
         "SEED_PHRASE={mixed}", "mysql -p{mixed}", "sshpass -p {mixed}", "redis-cli -a {mixed}",
         "--api-keys={mixed}", "--dbpass={mixed}", "--authtoken {mixed}", "'SSHPASS={mixed} ssh host'",
         "https://{mixed}:x-oauth-basic@github.com/o/r")  # fmt: skip
"""Words of a command that contain a secret."""
TRAINS = """
import json, time
samples = 0
for _ in range(2_000):
    time.sleep(0.005)
    samples += 64
    print(json.dumps({"samples": samples}), flush=True)
"""
RENDERERS = ("kubeflow", "volcano", "slurm", "file", "local")
SIZEWRIGHT = str(Path(sys.executable).with_name("sizewright"))


class Hunt:
    """Puts secrets into the files of a folder, runs commands there, and searches files and output for the secrets."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self._folder, self._rng = folder, random.Random(seed)
        self.secrets: list[str] = []
        self.outputs: dict[str, str] = {}

    def run(self, trials: int, executors: Sequence[str] = RENDERERS) -> tuple[int, list[str]]:
        """Render plans for the executors; return how many secrets were tried, and where each leaked one was found."""
        env = {name: self._secret("{mixed}") for name in NAMES}
        env |= {f"SETTING_{chr(65 + i)}": self._secret(form) for i, form in enumerate(FORMS)}
        words = " ".join(self._secret(flag) for flag in FLAGS)
        (self._folder / "train.py").write_text(TRAINS)
        self._job("own.yaml", f"{sys.executable} train.py", env)
        self._job("flags.yaml", f"{sys.executable} train.py {words}", {})
        self._sizewright("profile", "own.yaml", "--trials", str(trials), "--accept-drift")
        self._sizewright("profile", "flags.yaml", "--trials", str(trials), "--accept-drift")
        for form in ("table", "json", "yaml"):
            self._sizewright("recommend", "own.yaml", "-o", form)
        for executor in executors:
            self._sizewright("recommend", "own.yaml", "--executor", executor, "--out", f"{executor}.out")
            self._sizewright("recommend", "flags.yaml", "--executor", executor, fails="what looks like a secret")
        run = ("--no-tune", "--workers", "1", "--worker-cpu", "0.5", "--samples", "6400", "--decisions", "made.jsonl")
        for job in ("own.yaml", "flags.yaml"):
            self._sizewright("run", job, *run, "--metrics", "seen.jsonl", "--ledger", "ledger.jsonl")
        self._sizewright("run", "file.out", env=env)  # no plan holds the values
        for table, file in (("history", "runs.json"), ("trials", "trials.csv")):
            self._sizewright(table, "list")
            self._sizewright(table, "export", file)
        self._sizewright("report", "own.yaml")
        for url in ("postgresql://me:{mixed}@localhost:1/x", "postgresql://localhost:1/x?user=me&password={mixed}"):
            self._sizewright("recommend", "own.yaml", "--store", self._secret(url), fails="cannot be used")
        for verb in (("models", "list", "--tracking-uri"), ("history", "prometheus")):
            self._sizewright(*verb, self._secret("http://me:{mixed}@localhost:1"), fails="localhost:1")
        (self._folder / "wrong.yaml").write_text(
            f"command: {{run: x, env: {{API_KEY: [{self._secret('{mixed}')}]}}}}\n"
        )
        self._sizewright("recommend", "wrong.yaml", fails="must be text")
        return len(self.secrets), list(self._leaks())

    def _secret(self, form: str) -> str:
        mixed = "".join(self._rng.choices(string.ascii_letters, k=22)) + "7aB"
        upper = "".join(self._rng.choices(string.ascii_uppercase + string.digits, k=16))
        self.secrets.append(upper if "{upper}" in form else mixed)
        return form.format(mixed=mixed, upper=upper)

    def _job(self, name: str, run: str, env: dict[str, str]) -> None:
        command = {"run": run, "rendezvous": "hosts", "env": env, "progress": "json"}
        bounds = {"worker": {"replicas": [1, 2], "cpu": [0.3, 0.6]}, "ps": {"replicas": 0}}
        job = {"name": name.partition(".")[0], "command": command, "training": {"samples": 200_000}, "bounds": bounds}
        (self._folder / name).write_text(json.dumps(job))

    def _sizewright(self, *words: str, fails: str = "", env: Mapping[str, str] | None = None) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SIZEWRIGHT")}
        done = subprocess.run(
            [SIZEWRIGHT, *words],
            cwd=self._folder,
            env=inherited | dict(env or {}),
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        self.outputs[" ".join(words)] = done.stdout + done.stderr
        if bool(done.returncode) != bool(fails) or fails not in done.stderr or "Traceback" in done.stderr:
            raise RuntimeError(f"exit {done.returncode} of {words}: {done.stderr[-2000:]}")

    def _leaks(self) -> Iterator[str]:
        """Yield each secret that is found outside of the job files, which their user wrote."""
        job_files = {"own.yaml", "flags.yaml", "wrong.yaml"}
        files = [path for path in self._folder.rglob("*") if path.is_file() and path.name not in job_files]
        texts = {str(path.relative_to(self._folder)): path.read_text("latin-1") for path in files}
        for secret in self.secrets:
            for where, text in (texts | self.outputs).items():
                if secret in text:
                    yield f"{secret} in {where}"[:200]
