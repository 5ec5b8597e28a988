"""Protocols of what an executor may have besides the Executor protocol; callers look for it by these protocols."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from sizewright.executors.change_costs import ChangeCosts
from sizewright.spec import Plan, Role


@runtime_checkable
class ParsesManifests(Protocol):
    """An executor that reads the plan of a manifest."""

    def parse(self, text: str) -> Plan:
        """Return the plan from which a manifest was rendered, or one that launches it at its sizes.

        Raises InputError if the text is not a manifest of the executor.
        """
        ...


@runtime_checkable
class AdoptsManifests(ParsesManifests, Protocol):
    """An executor that applies a manifest of the user's as it is."""

    def adopt(self, path: str | Path) -> Plan:
        """Return the plan of a manifest file, which becomes the base if it has more than that plan."""
        ...


@runtime_checkable
class RemarksOnManifests(Protocol):
    """An executor that says what a person has to check in a manifest."""

    def remarks(self, plan: Plan) -> list[str]:
        """Return sentences on what a person has to check in the manifest of a plan."""
        ...


@runtime_checkable
class AdaptsPlans(Protocol):
    """An executor whose manifests may ask for other sizes than the plan: rounded, or with what a base adds."""

    def as_rendered(self, plan: Plan) -> Plan:
        """Return the plan as its manifest asks for it."""
        ...


@runtime_checkable
class KnowsUnsizedRoles(Protocol):
    """An executor whose manifests may have roles without sizes."""

    def unsized(self, plan: Plan) -> Sequence[Role]:
        """Return the roles with replicas that do not state their cores."""
        ...


@runtime_checkable
class MeasuresChanges(Protocol):
    """An executor that learns how long its changes take."""

    change_costs: ChangeCosts
    """The seconds of its changes, and those who want to know of each."""


@runtime_checkable
class RestartsJobs(Protocol):
    """An executor that restarts a job for changes that its platform cannot make while the job runs."""

    may_restart: bool
    """If False, such a change is refused."""


@runtime_checkable
class NamesPlatform(Protocol):
    """An executor that can use several platforms of its kind, such as clusters."""

    @property
    def where(self) -> str:
        """The platform that it uses, for the audit log."""
        ...
