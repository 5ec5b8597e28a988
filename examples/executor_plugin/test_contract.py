"""Run the contract of executors: pytest test_contract.py"""

from __future__ import annotations

import sys

import pytest
from sizewright_processes import ProcessesExecutor

from sizewright.spec import Allocation, Command, Job, Plan
from sizewright.testing import ExecutorContract

TRAIN = """
import os, time, sizewright
while True:
    time.sleep(0.01)
    if os.environ["SIZEWRIGHT_ROLE"] == "worker":
        sizewright.log_samples(64)
"""
JOB = Job(name="ctr", command=Command(run=(sys.executable, "-c", TRAIN), rendezvous="hosts"))
ONE, TWO = Allocation.of(1, 1, 0.5, 0.5, 64), Allocation.of(2, 2, 0.5, 0.5, 64)


class TestProcesses(ExecutorContract):
    @pytest.fixture
    def executor(self) -> ProcessesExecutor:
        return ProcessesExecutor()

    @pytest.fixture
    def launch_plan(self) -> Plan:
        return Plan(id="p-1", kind="launch", job=JOB, target=ONE, reason="first")

    @pytest.fixture
    def adjust_plan(self) -> Plan:
        return Plan(id="p-2", kind="adjust", job=JOB, current=ONE, target=TWO, reason="more")
