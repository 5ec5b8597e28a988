from __future__ import annotations

from sizewright.recommender.sizing.quality import untested_workers_warning
from sizewright.spec import Bounds, Job, Training
from sizewright.spec.wording import sentence

TESTED = Job(bounds=Bounds(tested_workers=8))


def test_more_asynchronous_workers_than_tested_give_a_warning() -> None:
    assert untested_workers_warning(TESTED, 8) is None
    warning = untested_workers_warning(TESTED, 9)
    assert warning
    assert sentence(warning) == (
        "Warning: the model's quality was tested with up to 8 asynchronous workers, not with 9."
    )


def test_synchronous_and_untested_jobs_give_no_warning() -> None:
    assert untested_workers_warning(TESTED.model_copy(update={"training": Training(sync="sync")}), 9) is None
    assert untested_workers_warning(Job(), 100) is None
