"""Files and answers that are nested deeper than can be read are one sentence, whoever reads them."""

from __future__ import annotations

from pathlib import Path

import pytest

DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("prior.json", ("recommend", "{example}", "--prior", "{file}")),
        ("runs.jsonl", ("history", "import", "{file}")),
        ("trials.jsonl", ("recommend", "{example}", "--trials", "{file}")),
        ("trials.json", ("trials", "import", "{file}")),
        ("trace.json", ("simulate", "{file}")),
        ("job.json", ("recommend", "{file}")),
    ],
)
def test_a_deep_file_is_one_sentence(call, example: Path, tmp_path: Path, name: str, words: tuple[str, ...]) -> None:
    file = tmp_path / name
    file.write_text(DEEP + "\n")
    result = call(*(word.format(example=example, file=file) for word in words))
    code, _, error = result
    assert code != 0
    assert "Traceback" not in error
    assert len([line for line in error.splitlines() if line.startswith("Error: ")]) == 1
