"""The page inside `ubp2 train`: what it cannot be served with is told before there is a run."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from ubp2 import api
from ubp2.config.schema import Config, TeacherConfig
from ubp2.errors import UserError
from ubp2.labelling import serve


def human(**settings: object) -> Config:
    return Config(env="toy/reach", teacher=TeacherConfig(name="human", browser=False, **settings))  # type: ignore


@pytest.mark.parametrize("host", ["no such host", "a" * 70])
def test_an_address_that_is_none_leaves_no_folder(tmp_path: Path, host: str) -> None:
    with pytest.raises(UserError, match=f"{host} is no address of this machine .* --teacher.host"):
        api.train(human(host=host), out=tmp_path / "run")
    assert not (tmp_path / "run").exists(), "the command that names another can use it"


def test_a_port_that_is_taken_and_a_weak_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "FURTHER", 0)
    told = pytest.raises(UserError, match="all taken; name another with --port .ubp2 train: --teacher.port")
    with socket.create_server(("127.0.0.1", 0)) as other, told:
        api.train(human(port=other.getsockname()[1]), out=tmp_path / "run")
    monkeypatch.setenv(serve.TOKEN_VARIABLE, "weak")
    with pytest.raises(UserError, match="UBP2_LABEL_TOKEN=new"):
        api.train(human(host="0.0.0.0"), out=tmp_path / "run")
    with pytest.raises(UserError, match="teacher.port lies between 0 and 65535"):
        api.train(human(port=70_000), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
