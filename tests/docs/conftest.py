"""A finished run that stands for RUN on the pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.staging import SMALL
from tests.training.helpers import keep_compilations
from ubp2.terminal import cli

keep_compilations()  # commands that differ in their words only share what they compile


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Learned toy/reach from two labels; never changed, tests get copies of it."""
    folder = tmp_path_factory.mktemp("pages") / "run"
    arguments = ["train", *SMALL, "--environment.in-process", "--quiet", "--out", str(folder)]
    assert cli.main(arguments) == 0
    return folder
