"""Tests of shell completion with the scripts that the program gives to each shell."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BASH = """
eval "$(sizewright --show-completion)"
complete -p sizewright
while read -r line; do
  IFS=' ' COMP_WORDS=($line); [[ $line == *. ]] && COMP_WORDS[-1]=""
  IFS=$' \\t\\n' COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
  _sizewright_completion sizewright
  echo "$line: ${COMPREPLY[*]}"
done
"""
FISH = """
eval (_SIZEWRIGHT_COMPLETE=source_fish sizewright | string collect)
while read line
  echo $line: (complete --do-complete (string replace -r '\\.$' '' $line) | string split -f1 \\t)
end
"""
COMPLETIONS = {
    "sizewright rep": {"report"},
    "sizewright trials .": {"list", "export", "import"},
    "sizewright profile --accept": {"--accept-drift"},
    "sizewright memory job.yaml --output .": {"table", "json", "yaml"},
    "sizewright allocate c.yaml j.yaml --policy do": {"doubling"},
    "sizewright simulate t.csv --policy default,sl": {"default,slope"},
    "sizewright apply plan.yaml --executor kube": {"kubeflow", "kuberay"},
    "sizewright recommend job.yaml --objective .": {"balanced", "cost", "time", "deadline"},
    "sizewright models compare t.csv --model us": {"usl"},
    "sizewright models promote ch": {"champion", "challenger"},
    "sizewright schema rec": {"recommendation"},
}
"""The expected completions of each line; a point stands for a word that is still empty."""


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which the installed program is first in the path."""
    program = tmp_path / "sizewright"
    program.write_text(f"#!{sys.executable}\nfrom sizewright.cli.main import run\n\nrun()\n")
    program.chmod(0o755)
    return os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}


@pytest.mark.parametrize(("shell", "script"), [("bash", BASH), ("fish", FISH)])
def test_shell_completes_verbs_options_and_values(shell: str, script: str, env: dict[str, str]) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    result = subprocess.run(
        [shell, "-c", script], input="\n".join(COMPLETIONS) + "\n", env=env, text=True, capture_output=True, check=True
    )
    assert result.stderr == ""
    lines = dict(line.split(": ", 1) for line in result.stdout.splitlines() if ": " in line)
    assert {line: set(words.split()) for line, words in lines.items()} == COMPLETIONS


def test_zsh_gets_its_completion_script_and_values(env: dict[str, str]) -> None:
    def output(**variables: str) -> str:
        return subprocess.run(["sizewright"], env=env | variables, text=True, capture_output=True, check=True).stdout

    assert output(_SIZEWRIGHT_COMPLETE="source_zsh").lstrip().startswith("#compdef sizewright")
    completion = output(_SIZEWRIGHT_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS="sizewright allocate --policy do")
    assert completion == "_arguments '*: :((\"doubling\"))'\n"


def test_install_completion_writes_the_script_and_sources_it(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / ".bashrc").write_text("# mine\n")
    subprocess.run(["bash", "-c", "x=$(sizewright --install-completion); echo $x"], env=env, check=True)
    script = tmp_path / ".bash_completions" / "sizewright.sh"
    assert "complete -o default -F _sizewright_completion sizewright" in script.read_text()
    assert (tmp_path / ".bashrc").read_text().split() == ["#", "mine", "source", f"'{script}'"]
