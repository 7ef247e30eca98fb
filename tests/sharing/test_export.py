"""An exported policy acts as the run does, in a process that has neither ubp2 nor jax."""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import ubp2
from tests.conftest import numpy_mlp
from tests.sharing.made import KINDS, PENDULUM, trained, untrained
from ubp2.agents import pebble
from ubp2.agents.registry import register
from ubp2.errors import UserError
from ubp2.sharing import numpy_policy
from ubp2.sharing.numpy_policy import load_policy
from ubp2.storage.runs import Run, write_json
from ubp2.terminal import cli

PARTS, PARTS_OF_MLP = ("weight", "bias", "scale", "offset"), ("weights", "biases", "scales", "offsets")
CLOSE = 1e-6  # float32: sums in another order
WITHOUT = """
import importlib.abc, sys
import numpy as np

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"jax", "jaxlib", "ubp2", "equinox", "gymnasium", "scipy"}:
            raise ImportError(name)

sys.meta_path.insert(0, Refuse())
from numpy_policy import load_policy

policy = load_policy("policy.npz")
obs = np.load("obs.npy")
np.save("actions.npy", np.stack([policy.act(one) for one in obs]))
np.save("together.npy", policy.act_many(obs))
assert not {"jax", "ubp2"} & set(sys.modules)
"""


def kinds() -> list[Any]:
    """Each kind of policy, with parameters that are random everywhere; slow: as training leaves them."""
    made = [pytest.param((untrained, kind), id=kind) for kind in KINDS]
    return made + [pytest.param((trained, kind), id=f"trained-{kind}", marks=pytest.mark.slow) for kind in KINDS]


@pytest.fixture(scope="module", params=kinds())
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    make, kind = request.param
    return make(kind, tmp_path_factory.mktemp("export") / kind)


@pytest.fixture(scope="module")
def seen(run: Path) -> tuple[np.ndarray, np.ndarray]:
    """A thousand observations, common and strange, and what the run does there."""
    rng = np.random.default_rng(0)
    obs = np.concatenate([rng.normal(size=(900, 3)), 100 * rng.normal(size=(100, 3))]).astype(np.float32)
    original = ubp2.load(run)
    return obs, np.stack([original.act(one) for one in obs])


def test_numpy_alone_gives_the_same_actions(run: Path, seen: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    obs, expected = seen
    assert ubp2.export(run, tmp_path / "policy.npz") == tmp_path / "policy.npz"
    np.save(tmp_path / "obs.npy", obs)
    (tmp_path / "use.py").write_text(WITHOUT, encoding="utf-8")
    subprocess.run([sys.executable, "use.py"], cwd=tmp_path, check=True, env={"PATH": os.environ["PATH"]})
    assert np.ptp(expected) > 0.05  # the policy does something
    for name in ("actions", "together"):
        np.testing.assert_allclose(np.load(tmp_path / f"{name}.npy"), expected, rtol=0, atol=2 * CLOSE)


def test_onnx_gives_the_same_actions(run: Path, seen: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    path = ubp2.export(run, tmp_path / "policy.onnx")
    session = onnxruntime.InferenceSession(path)
    (actions,) = session.run(["action"], {"obs": seen[0]})
    np.testing.assert_allclose(actions, seen[1], rtol=0, atol=2 * CLOSE)
    kept = json.loads(session.get_modelmeta().custom_metadata_map["metadata"])
    assert kept["env"] == PENDULUM and kept["action_high"] == [2.0]


def test_a_file_of_the_first_format_acts_as_it_did(tmp_path: Path) -> None:
    """It has a clip without a tail, and what an encoder says goes to SimNorm as it is."""
    rng = np.random.default_rng(3)
    sizes = {"encoder": (3, 5, 16), "policy": (16, 5, 2)}
    arrays = {"mean": rng.normal(size=3), "scale": np.full(3, 0.5)}
    for name, (inputs, hidden, outputs) in sizes.items():
        arrays |= {f"{name}.weight.0": rng.normal(size=(inputs, hidden)), f"{name}.bias.0": rng.normal(size=hidden)}
        arrays |= {f"{name}.weight.1": rng.normal(size=(hidden, outputs)), f"{name}.bias.1": rng.normal(size=outputs)}
        arrays |= {f"{name}.scale.0": rng.normal(size=hidden), f"{name}.offset.0": rng.normal(size=hidden)}
    constants = {"clip": 10.0, "layer_norm_epsilon": 1e-5, "simnorm_group": 8}
    bounds = {"obs_dim": 3, "action_dim": 1, "action_low": [-2.0], "action_high": [2.0]}
    metadata = {"format": 1, **bounds, **constants}
    np.savez(tmp_path / "old.npz", metadata=np.array(json.dumps(metadata)), **arrays)  # type: ignore[arg-type]

    def network(name: str, x: np.ndarray) -> np.ndarray:
        parts = ([arrays[f"{name}.{part}.{i}"] for i in range(n)] for part, n in zip(PARTS, (2, 2, 1, 1), strict=True))
        return numpy_mlp(SimpleNamespace(**dict(zip(PARTS_OF_MLP, parts, strict=True))), x)  # type: ignore[arg-type]

    obs = rng.normal(size=(20, 3)) * np.array([1.0, 10.0, 100.0])
    groups = np.exp(network("encoder", np.clip((obs - arrays["mean"]) / 0.5, -10, 10)).reshape(20, 2, 8))
    z = (groups / groups.sum(-1, keepdims=True)).reshape(20, 16)
    expected = 2 * np.tanh(network("policy", z)[:, :1])
    np.testing.assert_allclose(load_policy(tmp_path / "old.npz").act_many(obs), expected, atol=1e-5)


def test_the_file_says_what_it_is(finished: Path, tmp_path: Path) -> None:
    metadata = load_policy(ubp2.export(finished, tmp_path / "policy.npz")).metadata
    assert metadata["env"] == "toy/reach" and metadata["decisions"] == 170 and metadata["labels"] == 14
    assert metadata["action_low"] == [-1.0, -1.0] and metadata["action_repeat"] == 1
    again = ubp2.export(finished, tmp_path / "again.npz")
    assert again.read_bytes() == (tmp_path / "policy.npz").read_bytes()


def test_the_loader_needs_numpy_alone_and_is_short() -> None:
    text = Path(numpy_policy.__file__).read_text(encoding="utf-8")
    tree = ast.parse(text)
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {name for name in names if name not in sys.stdlib_module_names} == {"numpy"}
    assert len(text.splitlines()) < 120


def test_the_loader_refuses_what_it_cannot_read(run: Path, tmp_path: Path) -> None:
    policy = load_policy(ubp2.export(run, tmp_path / "policy.npz"))
    with pytest.raises(ValueError, match="expected observations of 3 numbers, got 4"):
        policy.act(np.zeros(4))
    with pytest.raises(ValueError, match="finite"):
        policy.act(np.array([0.0, np.nan, 0.0]))
    np.savez(tmp_path / "other.npz", weights=np.zeros(3))
    with pytest.raises(ValueError, match="no policy that ubp2 export wrote"):
        load_policy(tmp_path / "other.npz")
    for name, content in (("cut.npz", (tmp_path / "policy.npz").read_bytes()[:-100]), ("notes.npz", b"mine")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=f"{name} is no .npz file, or a damaged one"):
            load_policy(tmp_path / name)
    newer = np.array(json.dumps({**policy.metadata, "format": 3}))
    np.savez(tmp_path / "newer.npz", metadata=newer)
    with pytest.raises(ValueError, match="has format 3 and this loader reads up to 2"):
        load_policy(tmp_path / "newer.npz")


def test_the_command(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["export", str(finished)]) == 0
    said = capfd.readouterr().out
    assert "numpy_policy.py, which needs NumPy alone" in said and "not finished" not in said
    assert {path.name for path in tmp_path.iterdir()} == {"policy.npz", "numpy_policy.py"}
    assert cli.main(["export", str(finished), "--format", "onnx", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["out"] == "policy.onnx"


def test_the_policy_of_a_run_that_goes_on_is_called_that(finished: Path, tmp_path: Path, capfd: Any) -> None:
    folder = shutil.copytree(finished, tmp_path / "run")
    steps = Run.open(folder).config.steps
    text = (folder / "config.yaml").read_text(encoding="utf-8").replace(f"steps: {steps}", f"steps: {steps + 50}", 1)
    (folder / "config.yaml").write_text(text, encoding="utf-8")
    assert cli.main(["export", str(folder), "--out", str(tmp_path / "policy.npz")]) == 0
    assert f"not finished; this is its policy after {steps} of {steps + 50} decisions" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["RUN", "--out", "policy.txt"], "must end in .npz (numpy) or .onnx (onnx), got policy.txt"),
        (["RUN", "--out", "policy.npz", "--format", "onnx"], "must end in .onnx (onnx), got policy.npz"),
        (["elsewhere"], "elsewhere is not a run folder"),
        (["seeds"], "seeds holds 2 runs; export the policy of one of them, such as seeds/s0"),
        (["empty"], "empty has no checkpoint yet"),
    ],
)
def test_mistakes_are_told(
    arguments: list[str], sentence: str, finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in (Path("seeds/s0"), Path("seeds/s1"), Path("empty")):
        shutil.copytree(finished, folder, ignore=shutil.ignore_patterns("0*"))
    write_json(Path("seeds/population.json"), {"seeds": [0, 1]})
    assert cli.main(["export", *(str(finished) if word == "RUN" else word for word in arguments)]) == 2
    assert sentence in capsys.readouterr().err


def test_a_visual_run_is_refused(finished: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(finished, tmp_path / "visual")
    text = (folder / "config.yaml").read_text(encoding="utf-8")
    (folder / "config.yaml").write_text(text.replace("toy/reach", "toy-visual/reach"), encoding="utf-8")
    with pytest.raises(UserError, match="acts on features of frames, and the encoder dinov2-small that makes them"):
        ubp2.export(folder, tmp_path / "policy.npz")


@pytest.mark.usefixtures("registry")
def test_an_agent_that_does_not_say_what_its_policy_is_made_of(tmp_path: Path) -> None:
    folder = untrained("pebble", tmp_path / "run")
    text = (folder / "config.yaml").read_text(encoding="utf-8")
    (folder / "config.yaml").write_text(text.replace("agent: pebble", "agent: mute"), encoding="utf-8")
    with pytest.raises(UserError, match="unknown agent 'mute'"):
        ubp2.export(folder, tmp_path / "policy.npz")
    register("mute", lambda *sizes: pebble.make_agent(*sizes)._replace(reflex=None), model_free=True)
    with pytest.raises(UserError, match="the agent mute of .* does not say what its policy is made of"):
        ubp2.export(folder, tmp_path / "policy.npz")


def test_onnx_is_named_where_it_is_missing(finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(UserError, match=r"needs the package onnx: pip install 'ubp2\[onnx\]'"):
        ubp2.export(finished, tmp_path / "policy.onnx")
