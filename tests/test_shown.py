"""Control characters and secrets in names of hosts, columns, pods, keys and logs never reach the user's terminal."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

import sizewright as sw
from sizewright.cli import output
from sizewright.cli.safe_console import SafeConsole
from sizewright.errors import InputError, JobError
from sizewright.redaction import shown
from sizewright.spec import Job
from tests.helpers.small_server import Reply, server

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\x08\x7f\r\u202e"
PLAIN = "]0;owned[2J31m"


def is_plain(text: str) -> bool:
    return not any(c in text for c in "\x1b\x07\x9b\x08\x7f\r\u202e")


def output_of(*args: str) -> str:
    command = [sys.executable, "-m", "sizewright.cli.main", *args]
    completed = subprocess.run(command, capture_output=True, check=False)
    return (completed.stdout + completed.stderr).decode()


def test_control_characters_go_and_text_stays() -> None:
    assert shown(f"a{EVIL}b") == f"a{PLAIN}b"
    assert shown("tab\tand\nline, ünïcödé 中文 🦀") == "tab\tand\nline, ünïcödé 中文 🦀"
    assert is_plain(str(InputError(f"x{EVIL}", EVIL)))


def test_keys_of_files_are_printed_without_them(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text('"na\\x1b[31mme": ctr\n')
    with pytest.raises(JobError) as caught:
        Job.load(path)
    assert "na[31mme" in str(caught.value)


def test_tables_on_a_terminal_have_none(tmp_path: Path, example: Path) -> None:
    rows = [
        {"workers": w, "ps": 1, "worker_cpu": 0.5, "ps_cpu": 0.5, "throughput": 1000.5 * w, "host": f"h{EVIL}"}
        for w in (1, 2, 3, 4)
    ]
    store = str(tmp_path / "trials.db")
    with sw.open_store(store, create=True) as opened:
        opened.add_all([sw.Trial.model_validate(row | {"job_hash": sw.load_job(example).hash}) for row in rows])
    for form in ("table", "json", "yaml"):
        printed = output_of("recommend", str(example), "--store", store, "-o", form)
        assert "owned" in printed, form
        assert is_plain(printed), form


@pytest.mark.parametrize("form", [output.Format.json, output.Format.yaml])
def test_secrets_in_json_and_yaml_are_hidden_before_quotes_are_escaped(
    capsys: pytest.CaptureFixture[str], form: output.Format
) -> None:
    texts = [
        'password="hunter two" x', '--password "hunter two"', 'SECRET="hunter" x', 'curl -u "u:hunter two" x',
        '{"password": "a\\"hunter"}', 'x {"a": {"api_key": "hunter two"}}', "http://u:hunter@h",
    ]  # fmt: skip
    data = {
        "texts": [{"host": text} for text in texts],
        "labels": {"api_key": 12345678, "pin": 1.25e6, "mode": "fast", "tokens": 4096, "secret": {"secretName": "x"}},
        "annotations": {"record": '{"password": "a\\"hunter", "epochs": 3}'},
        "env": [{"name": "DB_PASSWORD", "value": "hunter"}, {"name": "MODE", "value": "fast"}],
        "args": ["train", "--db-token", "hunter two", "--password=hunter two"],
        "passwords": ["hunter", "two"],
        "http://u:hunter@h": None,
    }
    output.show_data(data, form, lambda _: None)
    printed = capsys.readouterr().out
    read = json.loads(printed) if form is output.Format.json else yaml.safe_load(printed)
    assert "hunter" not in printed
    assert read["texts"][0] == {"host": 'password="***" x'}
    assert read["labels"] == data["labels"] | {"api_key": "***", "pin": "***"}  # type: ignore[operator]
    assert json.loads(read["annotations"]["record"]) == {"password": "***", "epochs": 3}
    assert read["env"] == [{"name": "DB_PASSWORD", "value": "***"}, {"name": "MODE", "value": "fast"}]
    assert read["args"] == ["train", "--db-token", "***", "--password=***"]
    assert read["passwords"] == ["***", "***"]


@pytest.mark.parametrize("width", [14, 24, 60])
def test_secrets_are_removed_before_text_is_wrapped(width: int) -> None:
    url = "http://alice:hunter22secret@prometheus:9090"
    table = Table()
    table.add_column("url", overflow="fold")
    table.add_row(url)
    console = SafeConsole(file=io.StringIO(), width=width)
    for renderable in (url, Text(url, "bold"), table, Panel(url)):
        console.print(renderable)
    printed = re.sub(r"[^\w*]", "", console.file.getvalue())  # type: ignore[attr-defined]
    assert printed.count("alice") == printed.count("***") == 4
    assert "hunter" not in printed
    assert "secret" not in printed


def test_columns_that_are_left_out_are_printed_without_them(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"workers,ps,throughput,x{EVIL}\n1,1,5.5,1\n".replace("\r", ""))
    printed = output_of("trials", "import", str(path), "--store", str(tmp_path / "s.db"))
    assert "owned" in printed
    assert is_plain(printed)


@pytest.mark.parametrize("exit_code", [0, 3])
def test_log_lines_of_a_command_are_printed_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exit_code: int
) -> None:
    monkeypatch.chdir(tmp_path)  # the folder of logs
    lines = f'{{"samples": "lots{EVIL}"}}', f"{EVIL}the end{EVIL}\x1b[1"
    program = tmp_path / "train.py"
    program.write_text("".join(f"print({line!r}, flush=True)\n" for line in lines) + f"raise SystemExit({exit_code})\n")
    job = {
        "command": {"run": f"{sys.executable} {program}", "rendezvous": "hosts", "progress": "json"},
        "training": {"samples": 1000},
        "bounds": {"worker": {"replicas": [1, 2], "cpu": [0.3, 0.6]}, "ps": {"replicas": 0}},
    }
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
    printed = output_of("profile", str(tmp_path / "job.yaml"), "--store", str(tmp_path / "trials.db"))
    assert "the end" in printed
    assert is_plain(printed)


@pytest.mark.parametrize("labels", [{"pod": f"p{EVIL}", "container": "c"}, {f"p{EVIL}": "x"}])
def test_labels_of_prometheus_are_printed_without_them(labels: dict[str, str]) -> None:
    def reply(path: str, parameters: dict[str, str], headers: dict[str, str]) -> Reply:
        series = [{"metric": labels, "values": [[float(parameters["end"]), "1e9"]]}] if "end" in parameters else []
        return Reply(
            200, json.dumps({"status": "success", "data": {"resultType": "matrix", "result": series}}).encode()
        )

    with server(reply) as url:
        printed = output_of("history", "prometheus", url)
    assert "owned" in printed
    assert is_plain(printed)
