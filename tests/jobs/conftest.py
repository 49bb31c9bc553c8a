"""What the tests of jobs share."""

import pytest

from tests.jobs.simulated import write_job


@pytest.fixture(scope="session")
def job_folder(tmp_path_factory):
    return write_job(tmp_path_factory.mktemp("job") / "a")
