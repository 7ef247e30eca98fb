"""Visual runs: trained, killed and resumed, evaluated, loaded, shown to people; and a million decisions in 4 GB."""

from __future__ import annotations

import dataclasses
import json
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from tests.training.helpers import assert_same_run, saved, tiny
from tests.training.test_resume import command
from ubp2 import api
from ubp2.config.files import save_yaml
from ubp2.config.resolving import resolve
from ubp2.config.schema import Config, PreferenceConfig, TrainingConfig
from ubp2.envs.toy import Reach
from ubp2.errors import UserError
from ubp2.labelling.clips import Clips
from ubp2.preference.store import LabelStore
from ubp2.storage import population
from ubp2.storage.archive import EpisodeArchive
from ubp2.trained import environment, run_encoder, see
from ubp2.training.records import memory
from ubp2.vision import conv, conv_training, reels

LONG = 60.0
PIXELS = 32


def config(**changes: Any) -> Config:
    """A visual run of seconds on frames that need no OpenGL."""
    visual = {"encoder": "random-conv", "pixels": PIXELS, "frames": 2, **changes.pop("visual", {})}
    return tiny(env="toy-visual/reach", visual=visual, **changes)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished visual run that has kept its frames."""
    folder = tmp_path_factory.mktemp("visual") / "run"
    assert api.train(config(visual={"keep_frames": True}), out=folder, progress=False).finished
    return folder


def test_a_run_learns_from_features(run: Path) -> None:
    spec = saved(run).meta["environment"]
    assert spec["id"] == "toy-visual/reach" and spec["pixels"] == 0 and spec["obs_dim"] % 2 == 0
    with EpisodeArchive(run / "episodes.sqlite") as archive:
        episode = archive.read(3)
    assert episode.obs.shape == (21, spec["obs_dim"])
    newest, before = episode.obs[:-1, spec["obs_dim"] // 2 :], episode.obs[1:, : spec["obs_dim"] // 2]
    np.testing.assert_array_equal(newest, before)  # what was new is the older of two at the next decision
    np.testing.assert_array_equal(episode.obs, episode.obs.astype(np.float16))
    with LabelStore(run / "labels.sqlite") as store:
        assert len(store.answers()) == 14


@pytest.mark.parametrize(("agent", "seeds"), [("ubp2", 1), pytest.param("pebble", 2, marks=pytest.mark.slow)])
def test_a_kill_and_a_resume_are_exact(tmp_path: Path, agent: str, seeds: int) -> None:
    """In worker processes, in the middle of an episode."""
    own = config(agent=agent, steps=130, environment={"in_process": False}, evaluation={"every": 0})
    whole, folder = tmp_path / "whole", tmp_path / "killed"
    assert api.train(own, seeds=seeds, out=whole, progress=False).finished
    save_yaml(own, tmp_path / "own.yaml")
    start = ["train", "--config", tmp_path / "own.yaml", "--seeds", str(seeds), "--out", folder, "--quiet"]
    ended = command(start, "decision", 95, signal.SIGKILL)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert api.resume(folder, progress=False).finished
    for one, other in zip(population.members(folder), population.members(whole), strict=True):
        assert_same_run(one, other)


def test_evaluation_and_loading(run: Path, tmp_path: Path) -> None:
    scores = api.evaluate(run, episodes=1, video=tmp_path / "clip.gif")
    assert scores["length"] == 20 and (tmp_path / "clip.gif").stat().st_size > 1000
    controller, frame = api.load(run), np.zeros((PIXELS, PIXELS, 3), np.uint8)
    first, other = controller.act(frame), controller.act(frame + np.uint8(200))
    controller.reset()
    np.testing.assert_array_equal(controller.act(frame), first)
    assert not np.array_equal(controller.act(frame + np.uint8(200)), first) and other.shape == (2,)
    with pytest.raises(UserError, match=r"expected a frame of shape \(32, 32, 3\) and type uint8, got \(4,\)"):
        controller.act(np.zeros(4))


def test_clips_are_simulated_again_or_made_of_kept_frames(run: Path, tmp_path: Path) -> None:
    own = config()
    with Clips(run / "episodes.sqlite", own, tmp_path / "kept") as clips:
        state = clips.wait(clips.want(2, 5, 6), LONG)
        assert state.ready and state.frames == 7 and state.cameras == ("view",) and state.note is None
    (tmp_path / "other").mkdir()
    alone = tmp_path / "other" / "episodes.sqlite"  # the episodes without their frames
    alone.write_bytes((run / "episodes.sqlite").read_bytes())
    with Clips(alone, own, tmp_path / "again") as clips:
        state = clips.wait(clips.want(2, 5, 6), LONG)
        assert state.ready and state.frames == 7 and state.note is None
    with Clips(alone, own, tmp_path / "none", drawn=True) as clips:
        state = clips.wait(clips.want(2, 5, 6), LONG)
        assert not state.ready and state.failed is not None and "not known here" in state.failed


def test_kept_frames_are_those_that_the_agent_saw(run: Path) -> None:
    with EpisodeArchive(run / "episodes.sqlite") as archive:
        count, episode = len(archive), archive.read(4)
    assert sorted(path.name for path in (run / reels.FOLDER).iterdir()) == [f"{i:06d}.npz" for i in range(count)]
    path = reels.find(run, 4)
    assert path is not None and reels.find(run, count) is None
    frames, fps = reels.read(path, 3, 5)
    assert frames.shape == (6, PIXELS, PIXELS, 3) and fps == 20
    stack = api.load(run)._stack
    assert stack is not None
    obs = [stack.start({0: frame})[0] for frame in frames]
    half = episode.obs.shape[1] // 2
    np.testing.assert_array_equal(np.stack(obs)[:, half:], episode.obs[3:9, half:])
    path.with_name("damaged.npz").write_bytes(path.read_bytes()[:100])
    with pytest.raises(UserError, match=r"damaged.npz cannot be read"):
        reels.read(path.with_name("damaged.npz"), 0, 1)
    path.with_name("damaged.npz").unlink()


def test_a_users_own_environment_by_its_frames(tmp_path: Path) -> None:
    """`config.env` is a name only, and says with -visual how the environment is seen."""
    own = dataclasses.replace(config(steps=80, ceiling=True), env="mine-visual/arm")
    assert api.train(own, env=Reach, out=tmp_path / "run", progress=False).finished
    assert saved(tmp_path / "run").meta["environment"]["obs_dim"] > 100


def test_other_weights_are_refused(run: Path, tmp_path: Path) -> None:
    info = json.loads((run / "info.json").read_text())
    assert info["encoder"]["name"] == "random-conv" and len(info["encoder"]["digest"]) == 64
    (run / "info.json").write_text(json.dumps({**info, "encoder": {"name": "random-conv", "digest": "0" * 64}}))
    try:
        with pytest.raises(UserError, match="began with other weights of the encoder random-conv"):
            api.resume(run, config=dataclasses.replace(config(visual={"keep_frames": True}), steps=400))
        with pytest.raises(UserError, match="began with other weights"):
            api.load(run)
    finally:
        (run / "info.json").write_text(json.dumps(info))


def test_a_million_decisions_fit_into_four_gigabytes() -> None:
    """DINOv2-S, three frames, an episode of walker-walk; with the labels of the paper's largest budget."""
    asked = Config(
        env="dmc-visual/walker-walk",
        steps=1_000_000,
        preferences=PreferenceConfig(budget=5000, segment_length=25),
        training=TrainingConfig(replay_capacity=1_000_000),
    )
    own = resolve(asked, 500)
    held = jax.eval_shape(lambda: memory(own, 3 * 384, 6, 500))
    total = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(held))
    assert held.replay.frames.obs.dtype == np.float16 and held.replay.frames.episode.shape[0] >= 1_000_000
    assert 2.3e9 < total < 4e9
    full = dataclasses.replace(own, training=dataclasses.replace(own.training, replay_type="float32"))
    assert jax.eval_shape(lambda: memory(full, 3 * 384, 6, 500)).replay.frames.obs.dtype == np.float32


def test_the_memory_gives_back_what_was_seen() -> None:
    """What `Seeing` hands over loses nothing in float16, on the way in and when a run is resumed."""
    from ubp2 import replay as replay_
    from ubp2.types import Episode

    rng = np.random.default_rng(0)
    obs = rng.normal(size=(6, 4)).astype(np.float16).astype(np.float32)
    episode = Episode(0, 1, obs, rng.normal(size=(5, 2)).astype(np.float32), np.zeros(5), np.zeros(5, bool), False)
    held = replay_.load(replay_.init(10, 4, 2, np.float16), [episode])
    segments, places = replay_.sample_segments(held, jax.random.key(0), 3, 5)
    assert places == 1 and held.frames.obs.dtype == np.float16 and segments.obs.dtype == np.float32
    np.testing.assert_array_equal(segments.obs[0], obs[:5])
    batch = replay_.sample(held, jax.random.key(0), 2, 2)
    assert batch.obs.dtype == np.float32


def test_a_run_that_cannot_begin_trains_no_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv_training, "train", lambda *_, **__: pytest.fail("an encoder was trained"))
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "file").touch()
    own = config(visual={"encoder": "conv"})
    with pytest.raises(UserError, match="taken exists and is not empty"):
        api.train(own, out=tmp_path / "taken", progress=False)
    for changed in (dataclasses.replace(own, steps=3), config(visual={"encoder": "conv", "pixels": 20})):
        with pytest.raises(UserError, match="warmup is|must be at least 32"):
            api.train(changed, out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_a_run_that_was_killed_before_it_had_its_encoder_gets_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed while it was trained; then while it was copied to the second seed."""

    def killed(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    def trained(envs: Any, path: Path, *, note: Any) -> None:
        note("trained")
        conv.save(path, conv.random(PIXELS, 8), {})

    said: list[str] = []
    own = resolve(config(visual={"encoder": "conv"}), 20)
    with environment(None, [own] * 2) as envs, ExitStack() as stack:
        configs = {f"s{seed}": dataclasses.replace(own, seed=seed) for seed in range(2)}
        runs = population.create(stack, tmp_path / "run", configs)
        for what in ("ubp2.trained.conv_training.train", "ubp2.trained.shutil.copyfile"):
            with monkeypatch.context() as patch:
                patch.setattr(conv_training, "train", trained)
                patch.setattr(what, killed)
                with pytest.raises(KeyboardInterrupt):
                    see(runs, envs, None, said.append)
        monkeypatch.setattr(conv_training, "train", trained)
        shown = see(runs, envs, None, said.append)
    assert shown.spec.obs_dim == 2 * 8 and said == ["trained"]
    digests = [conv.load(run.folder / "encoder.npz").digest for run in runs]
    assert digests == [run.info()["encoder"]["digest"] for run in runs]
    (runs[0].folder / "encoder.npz").unlink()
    with pytest.raises(UserError, match="there is no encoder"):  # an evaluation trains none
        run_encoder(own, runs[0].folder)
