"""Clips show what happened, come whatever becomes of the renderer, and cannot be had by guessing."""

from __future__ import annotations

import errno
import itertools
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from ubp2.config.schema import Config, EnvironmentConfig
from ubp2.envs import probes
from ubp2.envs.adapter import adapt
from ubp2.envs.base import Env
from ubp2.envs.registry import make
from ubp2.errors import UserError
from ubp2.evaluation.video import find_ffmpeg
from ubp2.labelling import clips as module
from ubp2.labelling.clips import Clips
from ubp2.labelling.drawing import draw, measure
from ubp2.labelling.render_process import simulate
from ubp2.storage.archive import EpisodeArchive
from ubp2.types import Episode

LONG = 60.0  # seconds that a clip may take on a busy machine
EPISODE = 20


class Filmed(probes.BoundedAction):
    """A square that moves with the actions, seen by two cameras, one of them with a name that is no file's."""

    cameras = ("near", "../far away")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.place = 0, self.np_random.uniform(10, 20, 2)
        return np.array([self.place, [0.0, 0.0]]), {}

    def step(self, action):
        self.steps += 1
        self.place = np.clip(self.place + (action - [5.0, -3.0]) / [5.0, 1.0], 2, 40)
        return np.array([self.place, [self.steps, 0.0]]), 0.0, False, False, {}

    def render(self, camera=None, size=None):  # type: ignore[override]
        frame = np.full((47, 63, 3), 230 if camera == "near" else 30, np.uint8)
        row, column = self.place.astype(int)
        frame[row - 2 : row + 6, column - 2 : column + 6] = (200, 40, 40)
        return frame


class Blind(Filmed):
    cameras = ()

    def render(self):  # type: ignore[override]
        raise OSError("no display")


class Fickle(Filmed):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=int.from_bytes(os.urandom(4)))


def slow(folder: Path, build=Filmed, frame: float = 0.05):
    """`build`, rendering slowly; the file `folder`/rendering is there from its first frame on."""

    class Slow(build):
        def render(self, camera=None, size=None):  # type: ignore[override]
            (folder / "rendering").touch()
            time.sleep(frame)
            return super().render(camera, size)

    return Slow


def record(path: Path, env: Env, episodes: int = 3, length: int = EPISODE) -> list[Episode]:
    """An archive of episodes in which everything moves."""
    random = np.random.default_rng(1)
    made = []
    with EpisodeArchive(path) as archive:
        for index in range(len(archive), len(archive) + episodes):
            action = random.uniform(-1, 1, (length, env.spec.action_dim)).astype(np.float32)
            obs, steps = env.reset(70 + index), [env.step(one) for one in action]
            made.append(
                Episode(
                    index=index,
                    seed=70 + index,
                    obs=np.stack([obs, *(step.obs for step in steps)]),
                    action=action,
                    true_reward=np.array([step.true_reward for step in steps]),
                    success=np.array([step.success for step in steps]),
                    terminated=False,
                )
            )
            archive.append(made[-1])
    return made


@pytest.fixture
def archive(tmp_path) -> Path:
    record(tmp_path / "episodes.sqlite", adapt(Filmed, EnvironmentConfig()), episodes=9)
    return tmp_path / "episodes.sqlite"


def open_clips(archive: Path, build=Filmed, **options) -> Clips:
    return Clips(archive, Config(), archive.parent / "clips", env=build, **options)


def probe(path: Path) -> str:
    """What ffmpeg says of a file that it has decoded to the end without a complaint."""
    command = [find_ffmpeg(), "-hide_banner", "-xerror", "-i", str(path), "-f", "null", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stderr


def decode(path: Path, height: int, width: int) -> np.ndarray:
    command = [find_ffmpeg(), "-loglevel", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    raw = subprocess.run(command, capture_output=True, check=True).stdout
    return np.frombuffer(raw, np.uint8).reshape(-1, height, width, 3)


def check_files(clips: Clips, clip: str, frames: int, height: int, width: int) -> dict[str, np.ndarray]:
    """Both files of each camera are valid; return what the MP4s show."""
    state = clips.state(clip)
    assert state.ready and state.frames == frames and state.failed is None
    shown = {}
    for camera in state.cameras:
        assert re.fullmatch(r"[A-Za-z0-9_-]+", camera)
        mp4, webm = clips.path(clip, camera, "mp4"), clips.path(clip, camera, "webm")
        assert mp4 is not None and webm is not None
        assert re.search(rf"Video: h264.*yuv420p.*{width}x{height}.*{state.fps:g} fps", probe(mp4))
        assert re.search(rf"Video: vp9.*yuv420p.*{width}x{height}.*{state.fps:g} fps", probe(webm))
        assert mp4.read_bytes().index(b"moov") < mp4.read_bytes().index(b"mdat")
        shown[camera] = decode(mp4, height, width)
        assert len(shown[camera]) == len(decode(webm, height, width)) == frames
    return shown


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


def test_meta_world_without_a_gpu(tmp_path):
    config = Config(env="metaworld/door-close")
    env = make(config.env, config.environment)
    [episode] = record(tmp_path / "episodes.sqlite", env, 1, 30)
    start, length = 20, 5
    try:
        frames, *_ = simulate(env, episode.seed, episode.action[:25], start, env.cameras[:2], 384)
    except UserError as error:
        pytest.skip(str(error))
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
def test_what_cannot_be_shown_is_drawn(archive, build, note):
    with open_clips(archive, build, size=256) as clips:
        clip = clips.want(0, 3, 4)
        state = clips.wait(clip, LONG)
        assert state.cameras == ("drawing",) and note in (state.note or "")
        check_files(clips, clip, 5, 256, 256)


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


def test_a_renderer_killed_in_the_middle_is_started_again(archive, tmp_path):
    with open_clips(archive, slow(tmp_path)) as clips:
        clip = clips.want(0, 0, 10)
        for _ in range(300):
            if (tmp_path / "rendering").exists():
                break
            time.sleep(0.1)
        first = clips.renderer_pid
        assert first is not None and not clips.state(clip).ready
        os.kill(first, signal.SIGKILL)
        assert clips.wait(clip, LONG).cameras == ("near", "far-away")
        assert clips.renderer_pid not in (None, first)
        check_files(clips, clip, 11, 48, 64)


def test_a_renderer_that_hangs_is_started_again(archive, tmp_path):
    class Hanging(Filmed):
        def render(self, camera=None, size=None):  # type: ignore[override]
            if not (tmp_path / "hung").exists():
                (tmp_path / "hung").touch()
                time.sleep(1000)
            return super().render(camera, size)

    with open_clips(archive, Hanging, seconds=8) as clips:
        began, clip = time.monotonic(), clips.want(0, 0, 10)
        state = clips.wait(clip, LONG)
        assert state.ready and state.note is None and time.monotonic() - began >= 8


def test_an_environment_that_takes_the_renderer_along_is_left_alone(archive, tmp_path, monkeypatch):
    class Deadly(Filmed):
        def render(self, camera=None, size=None):  # type: ignore[override]
            with (tmp_path / "tries").open("a") as file:
                file.write("x")
            os._exit(3)

    with open_clips(archive, Deadly) as clips:
        for start in range(3):
            state = clips.wait(clips.want(0, start, 5), LONG)
            assert state.cameras == ("drawing",) and "ended with exit code 3" in (state.note or "")
        assert (tmp_path / "tries").read_text() == "xxxx"  # two clips, two tries each; the third was drawn at once
        monkeypatch.setattr("ubp2.labelling.renderer._REST", 0.0)
        assert clips.wait(clips.want(0, 4, 5), LONG).ready
        assert (tmp_path / "tries").read_text() == "xxxxxx"


def test_a_full_disk_is_a_failed_clip_until_there_is_space(archive, tmp_path, monkeypatch):
    ffmpeg = tmp_path / "ffmpeg"
    ffmpeg.write_text(
        f'#!/bin/bash\nargs=("$@")\n[ -e {tmp_path}/full ] && args[-1]=/dev/full\nexec {find_ffmpeg()} "${{args[@]}}"\n'
    )
    ffmpeg.chmod(0o755)
    monkeypatch.setenv("FFMPEG", str(ffmpeg))
    (tmp_path / "full").touch()
    with open_clips(archive) as clips:
        clip = clips.want(0, 0, 10)
        failed = clips.wait(clip, LONG).failed or ""
        assert "the disk is full" in failed and str(tmp_path) not in failed
        assert clips.path(clip, "near", "mp4") is None
        assert not [path for path in (tmp_path / "clips").iterdir() if path.is_dir()]
        (tmp_path / "full").unlink()
        assert clips.want(0, 0, 10) == clip and clips.state(clip).failed  # not at once again
        monkeypatch.setattr(module, "_AGAIN", 0.0)
        clips.want(0, 0, 10)
        assert clips.wait(clip, LONG).ready

        def full():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(clips._shelf, "begin", full)
        failed = clips.wait(clips.want(0, 1, 10), LONG).failed
        assert failed == "the clip could not be written: the disk is full"


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


def test_ids_cannot_be_guessed_and_paths_do_not_come_from_outside(archive, tmp_path):
    with open_clips(archive) as clips, Clips(archive, Config(), tmp_path / "other", env=Filmed) as other:
        clip = clips.want(0, 0, 5)
        assert clips.wait(clip, LONG).ready and re.fullmatch(r"[0-9a-f]{32}", clip)
        assert other.want(0, 0, 5) != clip  # the same content under another secret
        assert stat.S_IMODE((tmp_path / "clips" / "secret").stat().st_mode) == 0o600
        (tmp_path / "clips" / "near.mp4").touch()
        strange = ("", ".", "..", "../clips", "secret", f"../clips/{clip}", f"{clip}/", clip[:-1], "\0", "a" * 10_000)
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


def test_close_does_not_wait_for_a_clip(archive, tmp_path):
    clips = open_clips(archive, slow(tmp_path, frame=100.0))
    clip = clips.want(0, 0, 5)
    for _ in range(300):
        if (tmp_path / "rendering").exists():
            break
        time.sleep(0.1)
    pid, began = clips.renderer_pid, time.monotonic()
    assert pid is not None
    clips.close()
    clips.close()
    assert time.monotonic() - began < 5
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert clips.wait(clip, LONG).failed
    assert not [path for path in (tmp_path / "clips").iterdir() if path.is_dir()]


def test_a_renderer_that_hangs_leaves_when_its_parent_was_killed(archive, tmp_path):
    script = tmp_path / "server.py"
    script.write_text(
        "import time\n"
        "from pathlib import Path\n"
        "from ubp2.config.schema import Config\n"
        "from ubp2.labelling.clips import Clips\n"
        "from tests.labelling.test_clips import slow\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "env = slow(folder, frame=1e3)\n"
        "clips = Clips(folder / 'episodes.sqlite', Config(), folder / 'clips', env=env, seconds=5)\n"
        "clips.want(0, 0, 5)\n"
        "while not (folder / 'rendering').exists(): time.sleep(0.05)\n"
        "print(clips.renderer_pid, flush=True)\n"
        "time.sleep(1e3)\n"
    )
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), str(root / "src"), os.environ.get("PYTHONPATH", "")])
    server = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path}
    )
    assert server.stdout is not None
    pid = int(server.stdout.readline())
    server.kill()
    server.wait()
    server.stdout.close()
    for _ in range(200):
        told = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
        if not told.strip() or told.startswith("Z"):  # gone, or not yet buried
            return
        time.sleep(0.1)
    pytest.fail("the renderer outlived its parent")


def test_large_frames_are_made_smaller_and_the_camera_count_is_a_choice(archive):
    class Large(Filmed):
        def render(self, camera=None, size=None):  # type: ignore[override]
            return np.kron(super().render(camera), np.ones((20, 20, 1), np.uint8))

    with open_clips(archive, Large, cameras=1) as clips:
        clip = clips.want(0, 0, 3)
        assert clips.wait(clip, LONG).cameras == ("near",)
        check_files(clips, clip, 4, 478, 640)


def test_the_renderer_has_no_jax(archive, tmp_path):
    class Curious(Filmed):
        def render(self, camera=None, size=None):  # type: ignore[override]
            import sys

            (tmp_path / "loaded").write_text(str("jax" in sys.modules))
            return super().render(camera, size)

    with open_clips(archive, Curious) as clips:
        assert clips.wait(clips.want(0, 0, 3), LONG).ready
    assert (tmp_path / "loaded").read_text() == "False"
