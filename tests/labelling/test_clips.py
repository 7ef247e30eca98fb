"""Clips show what happened, come whatever becomes of the renderer, and cannot be had by guessing."""

from __future__ import annotations

import itertools
import re
import stat
import threading

import numpy as np
import pytest

from tests.envs.opengl import needs_opengl
from tests.labelling.filmed import EPISODE, LONG, Blind, Fickle, Filmed, check_files, open_clips, record, slow
from ubp2.config.schema import Config, EnvironmentConfig
from ubp2.envs.adapter import adapt
from ubp2.envs.registry import make
from ubp2.labelling.clips import Clips
from ubp2.labelling.drawing import draw, measure
from ubp2.labelling.render_process import not_written, simulate
from ubp2.storage.archive import EpisodeArchive


def test_frames_are_those_of_the_episode(archive):
    with EpisodeArchive(archive) as opened:
        episode = opened.read(1)
    env, start, length = adapt(Filmed, EnvironmentConfig()), 5, 10
    frames, obs, _ = simulate(env, episode.seed, episode.action[: start + length], start, env.cameras, None)
    np.testing.assert_array_equal(obs, episode.obs[start : start + length + 1])
    env.reset(episode.seed)
    original: dict[str, list[np.ndarray]] = {camera: [] for camera in env.cameras}
    for decision in range(EPISODE):
        for camera in env.cameras:
            original[camera].append(env.render(camera))
        env.step(episode.action[decision])
    for camera in env.cameras:
        np.testing.assert_array_equal(frames[camera], np.stack(original[camera][start : start + length + 1]))

    with open_clips(archive) as clips:
        assert clips.cameras == ()
        clip = clips.want(1, start, length)
        assert clips.wait(clip, LONG).cameras == clips.cameras == ("near", "far-away")
        shown = check_files(clips, clip, length + 1, 48, 64)
        for (camera, frames_), video in zip(frames.items(), shown.values(), strict=True):
            assert np.abs(video[:, :47, :63].astype(int) - frames_).mean() < 6, camera
        assert np.abs(shown["near"].astype(int) - shown["far-away"]).mean() > 100
        other = clips.want(2, 0, length)
        state = clips.wait(other, LONG)
        assert state == clips.state(clip) and state.note is None  # equal in size, number and rate
        check_files(clips, other, length + 1, 48, 64)
        # ten frames a second are the probe's real time: 11 of them would be over in a second
        assert state.fps == 6 and state.speed == 0.6


@needs_opengl
def test_meta_world_without_a_gpu(tmp_path):
    config = Config(env="metaworld/door-close")
    env = make(config.env, config.environment)
    [episode] = record(tmp_path / "episodes.sqlite", env, 1, 30)
    start, length = 20, 5
    frames, *_ = simulate(env, episode.seed, episode.action[:25], start, env.cameras[:2], 384)
    env.close()
    with Clips(tmp_path / "episodes.sqlite", config, tmp_path / "clips") as clips:
        clip = clips.want(0, start, length)
        assert clips.wait(clip, LONG).cameras == ("corner4", "corner")
        for camera, video in check_files(clips, clip, length + 1, 384, 384).items():
            assert np.abs(video.astype(int) - frames[camera]).mean() < 6
            assert np.abs(video.astype(int) - frames["corner" if camera == "corner4" else "corner4"]).mean() > 20


def test_without_opengl_the_state_is_drawn(tmp_path, monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "disable")
    config = Config(env="metaworld/door-close", environment=EnvironmentConfig(episode_decisions=8))
    record(tmp_path / "episodes.sqlite", make(config.env, config.environment), 1, 8)
    with Clips(tmp_path / "episodes.sqlite", config, tmp_path / "clips") as clips:
        clip = clips.want(0, 0, 8)
        state = clips.wait(clip, LONG)
        assert state.cameras == ("drawing",) and "metaworld/door-close cannot be rendered" in (state.note or "")
        check_files(clips, clip, 9, 384, 384)


def test_an_id_of_the_toy(tmp_path):
    record(tmp_path / "episodes.sqlite", make("toy/reach", EnvironmentConfig()), 1)
    with Clips(tmp_path / "episodes.sqlite", Config(), tmp_path / "clips") as clips:
        clip = clips.want(0, 0, 6)
        assert clips.wait(clip, LONG).cameras == ("view",)
        check_files(clips, clip, 7, 256, 256)


@pytest.mark.parametrize(
    ("build", "note"),
    [
        (Blind, "custom cannot be rendered: OSError: no display"),
        (Fickle, "the episode comes out differently"),
        (lambda: 1 / 0, "the environment could not be built: ZeroDivisionError"),  # type: ignore[arg-type,return-value]
        (threading.Lock(), "cannot be sent to a worker process"),
    ],
    ids=["blind", "fickle", "broken", "unpicklable"],
)
def test_what_cannot_be_shown_is_drawn(archive, build, note, caplog):
    with open_clips(archive, build, size=256) as clips:
        clip = clips.want(0, 3, 4)
        state = clips.wait(clip, LONG)
        assert state.cameras == ("drawing",) and note in (state.note or "")
        check_files(clips, clip, 5, 256, 256)
        clips.wait(clips.want(0, 2, 4), LONG)
    told = [record.message for record in caplog.records if "people see drawings" in record.message]
    assert len(told) == 1 and note in told[0]  # once, where the page was started


def test_a_drawing_of_an_earlier_process_is_tried_again(archive):
    with open_clips(archive, Blind) as clips:
        clip = clips.want(0, 3, 4)
        assert clips.wait(clip, LONG).cameras == ("drawing",)
    with open_clips(archive, Filmed) as clips:
        assert clips.want(0, 3, 4) == clip
        assert clips.wait(clip, LONG).cameras == ("near", "far-away")
    with open_clips(archive, Filmed, drawn=True) as clips:
        assert clips.wait(clips.want(0, 3, 4), LONG).note == "the environment is not known here"


def test_a_drawing_shows_what_moves_on_axes_of_the_run():
    time_, still = np.linspace(0, 1, 30), np.ones(30)
    obs = np.stack([np.sin(9 * time_), still, 2 * np.sin(9 * time_) + 3, time_], axis=1).astype(np.float32)
    scale = measure([obs, obs])
    assert scale.entries == (0, 3) and scale.obs_dim == 4  # one stands still, one repeats the first
    assert scale.low[0] < -1 and scale.high[0] > 1
    frames = draw(obs[5:15], scale, 200)
    assert frames.shape == (10, 200, 200, 3)
    assert all((one != two).any() for one, two in itertools.pairwise(frames))
    far = draw(obs[5:15] * 100, scale, 200)  # beyond the axes: at their edge
    assert far.shape == frames.shape and (far != frames).any()
    assert measure([np.zeros((5, 3), np.float32)]).entries == (0, 1, 2)
    assert len(measure([np.random.default_rng(0).normal(size=(50, 400)).astype(np.float32)]).entries) == 12


def test_clips_that_do_not_exist(archive, tmp_path):
    with open_clips(archive) as clips:
        for episode, start, length, reason in (
            (99, 0, 5, "episode 99 is not among the 9"),
            (0, 15, 6, "has 20 decisions, asked for [15, 21)"),
            (0, -1, 5, "asked for [-1, 4)"),
            (0, 0, 0, "asked for [0, 0)"),
        ):
            assert reason in (clips.state(clips.want(episode, start, length)).failed or "")
    with Clips(tmp_path / "none.sqlite", Config(), tmp_path / "clips") as clips:
        assert "does not exist (yet)" in (clips.state(clips.want(0, 0, 5)).failed or "")
    assert not (tmp_path / "none.sqlite").exists()


def test_annotators_are_told_of_no_files_of_the_server(archive, tmp_path, caplog):
    archive.write_bytes(b"not a database at all" * 100)
    with open_clips(archive) as clips:
        failed = clips.state(clips.want(0, 0, 5)).failed
    assert failed == "the recorded episodes cannot be read; the terminal of the server says why"
    assert str(archive) in caplog.text
    assert not_written(PermissionError(13, "Permission denied", "/home/me/clips")).endswith(": Permission denied")


def test_ids_cannot_be_guessed_and_paths_do_not_come_from_outside(archive, tmp_path):
    with open_clips(archive) as clips, Clips(archive, Config(), tmp_path / "other", env=Filmed) as other:
        clip = clips.want(0, 0, 5)
        assert clips.wait(clip, LONG).ready and re.fullmatch(r"[0-9a-f]{32}", clip)
        assert other.want(0, 0, 5) != clip  # the same content under another secret
        assert stat.S_IMODE((tmp_path / "clips" / "clips.key").stat().st_mode) == 0o600
        (tmp_path / "clips" / "near.mp4").touch()
        strange = (
            "",
            ".",
            "..",
            "../clips",
            "clips.key",
            f"../clips/{clip}",
            f"{clip}/",
            clip[:-1],
            "\0",
            "a" * 10_000,
        )
        for name in strange:
            assert clips.path(name, "near", "mp4") is None
            assert clips.path(clip, name, "mp4") is None
            assert clips.path(clip, "near", name) is None
            assert clips.state(name).failed == "there is no clip with this id"
        path = clips.path(clip, "far-away", "webm")
        assert path is not None and path.parent == tmp_path / "clips" / clip


def test_a_clip_is_made_once(archive, tmp_path):
    with open_clips(archive) as clips:
        clip = clips.want(0, 0, 5)
        state = clips.wait(clip, LONG)
        pid, path = clips.renderer_pid, clips.path(clip, "near", "mp4")
        assert path is not None
        made = path.stat().st_mtime_ns
        assert clips.want(0, 0, 5) == clip and clips.state(clip) == state and clips.renderer_pid == pid
    with open_clips(archive) as clips:  # after a restart too
        assert clips.state(clip) == state and clips.want(0, 0, 5) == clip and clips.state(clip).ready
        assert clips.renderer_pid is None and path.stat().st_mtime_ns == made
        path.unlink()
        assert clips.path(clip, "near", "mp4") is None and not clips.state(clip).ready
        assert clips.want(0, 0, 5) == clip and clips.wait(clip, LONG).ready and path.is_file()
    (path.parent / "clip.json").unlink()
    with open_clips(archive) as clips:  # half of it deleted while nobody looked
        assert clips.want(0, 0, 5) == clip and clips.wait(clip, LONG).ready and path.is_file()
    with EpisodeArchive(archive) as opened:
        opened.truncate(0)
    record(archive, adapt(Filmed, EnvironmentConfig(action_repeat=2)), 1)
    with open_clips(archive) as clips:  # another episode under the old number is another clip
        assert clips.want(0, 0, 5) != clip


def test_old_clips_make_room(archive, tmp_path, monkeypatch):
    monkeypatch.setattr("ubp2.labelling.shelf._IN_USE", 0.0)
    with open_clips(archive, limit=1) as clips:
        old = clips.want(0, 0, 5)
        clips.wait(old, LONG)
        for start in range(1, 3):
            clips.wait(clips.want(0, start, 5), LONG)
        assert not clips.state(old).ready
        assert len([path for path in (tmp_path / "clips").iterdir() if path.is_dir()]) <= 1


def test_two_servers_of_one_run(archive):
    with open_clips(archive) as one, open_clips(archive) as two:
        assert one.want(0, 0, 5) == two.want(0, 0, 5) == (clip := one.want(0, 0, 5))
        assert one.wait(clip, LONG) == two.wait(clip, LONG) and one.state(clip).ready
        assert one.path(clip, "near", "mp4") == two.path(clip, "near", "mp4")
        other = one.want(0, 1, 5)
        assert one.wait(other, LONG).ready and two.want(0, 1, 5) == other and two.state(other).ready


def test_threads(archive):
    seen: dict[int, list[str]] = {}
    with open_clips(archive) as clips:

        def ask(number: int) -> None:
            wanted = [clips.want(number % 3, start, 6, soon=bool(number % 2)) for start in range(3)]
            assert all(clips.wait(clip, LONG).ready for clip in wanted)
            seen[number] = wanted

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(seen) == 9 and all(seen[number] == seen[number % 3] for number in seen)
        assert len({clip for wanted in seen.values() for clip in wanted}) == 9


def test_soon_comes_first(archive, tmp_path):
    with open_clips(archive, slow(tmp_path, frame=0.02)) as clips:
        later = [clips.want(0, start, 5) for start in range(6)]
        soon, bumped = clips.want(1, 0, 5, soon=True), clips.want(0, 5, 5, soon=True)
        assert bumped == later[5]
        assert clips.wait(soon, LONG).ready and clips.wait(bumped, LONG).ready
        assert not clips.state(later[4]).ready and clips.state(later[4]).frames == 6


def test_large_frames_are_made_smaller_and_the_camera_count_is_a_choice(archive):
    class Large(Filmed):
        def render(self, camera=None, size=None):  # type: ignore[override]
            return np.kron(super().render(camera), np.ones((20, 20, 1), np.uint8))

    with open_clips(archive, Large, cameras=1) as clips:
        clip = clips.want(0, 0, 3)
        assert clips.wait(clip, LONG).cameras == ("near",)
        check_files(clips, clip, 4, 478, 640)
