"""The public interface is what `public_names.txt` lists. Renew it, and look at the difference:

python -m tests.test_public_api
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.public_names import MODULES, functions, listing, public

LISTED = Path(__file__).with_name("public_names.txt")
NOT_LAZY = {
    "sizewright.cluster.allocators.registry",
    "sizewright.cluster.problem.problem",
    "sizewright.plots",
    "sizewright.skypilot",
}
HEAVY = {"numpy", "pandas", "torch", "ray", "mlflow", "sklearn", "scipy", "sqlalchemy", "matplotlib", "pytest"}


def test_the_public_face_is_the_listed_one() -> None:
    assert listing() == LISTED.read_text(encoding="utf-8"), "renew it: python -m tests.test_public_api"


@pytest.mark.parametrize("name", MODULES)
def test_names_are_sorted_and_exist(name: str) -> None:
    module = importlib.import_module(name)
    names = module.__all__
    assert list(names) == sorted(names, key=lambda each: (not each.isupper(), each[0].islower(), each))
    assert len(set(names)) == len(names)
    assert set(names) <= set(dir(module))
    for each in names:
        assert getattr(module, each) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        module.no_such_name  # noqa: B018


def test_everything_public_has_a_docstring() -> None:
    bare = [name for name in MODULES if not importlib.import_module(name).__doc__]
    bare += [name for name, thing in public() if (inspect.isclass(thing) and not vars(thing).get("__doc__"))]
    bare += [name for name, made, _ in functions() if not made.__doc__ and "__" not in name]
    assert not bare


def test_no_name_is_hidden_by_a_module_of_the_same_name() -> None:
    """A module with the same name would hide a lazily loaded name once it is imported."""
    for name in MODULES:
        module = importlib.import_module(name)
        if "_HOMES" in vars(module):
            within = {each.name for each in pkgutil.iter_modules(module.__path__)}
            modules = {each for each in module.__all__ if module._HOMES[each] == f"{name}.{each}"}
            assert not within & set(module.__all__) - modules, name


def test_public_packages_load_nothing_heavy_until_something_is_used() -> None:
    code = f"import sys, {', '.join(set(MODULES) - NOT_LAZY)}; print(*{{m.partition('.')[0] for m in sys.modules}})"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "sizewright" in completed.stdout.split()
    assert not HEAVY & set(completed.stdout.split())


if __name__ == "__main__":
    LISTED.write_text(listing(), encoding="utf-8")
    print(f"{LISTED}: {len(listing().splitlines())} lines")
