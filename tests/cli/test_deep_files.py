"""Files and answers that are nested too deeply are refused in one sentence by every reader."""

from __future__ import annotations

from pathlib import Path

import pytest

DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("prior.json", ("recommend", "{example}", "--prior", "{file}")),
        ("runs.jsonl", ("history", "import", "{file}")),
        ("trials.jsonl", ("recommend", "{example}", "--trials", "{file}")),
        ("trials.json", ("trials", "import", "{file}")),
        ("trace.json", ("simulate", "{file}")),
        ("job.json", ("recommend", "{file}")),
    ],
)
def test_deeply_nested_file_is_refused_in_one_sentence(
    call, example: Path, tmp_path: Path, name: str, args: tuple[str, ...]
) -> None:
    file = tmp_path / name
    file.write_text(DEEP + "\n")
    check_refusal(call(*(arg.format(example=example, file=file) for arg in args)))


@pytest.mark.parametrize("args", [("recommend", "{example}", "--store", "{store}", "--base"), ("apply",)])
def test_deep_document_below_a_wrong_value_is_refused_in_one_sentence(
    call, example: Path, store: str, tmp_path: Path, args: tuple[str, ...]
) -> None:
    file = tmp_path / "base.yaml"
    file.write_text("kind: TFJob\nmetadata: {annotations: {n: !!int 1:2}}\n---\n" + "[" * 40_000)
    words = [arg.format(example=example, store=store) for arg in args]
    result = call(*words, str(file), "--executor", "kubeflow")
    check_refusal(result)
    assert "nested more than 100 levels deep" in result[2]


def check_refusal(result: tuple[int, str, str]) -> None:
    code, _, error = result
    assert code != 0
    assert "Traceback" not in error
    assert len([line for line in error.splitlines() if line.startswith("Error: ")]) == 1
