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
    result = call(*(arg.format(example=example, file=file) for arg in args))
    code, _, error = result
    assert code != 0
    assert "Traceback" not in error
    assert len([line for line in error.splitlines() if line.startswith("Error: ")]) == 1
