"""The process that renders clips: killed, hung, out of space, or told to stop."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.evaluation.disk import disk_of_ffmpeg, needs_dev_full
from tests.labelling.filmed import LONG, Filmed, check_files, open_clips, slow
from tests.waiting import gone, until
from ubp2.labelling import clips as module
from ubp2.labelling.renderer import Renderer


def test_a_renderer_killed_in_the_middle_is_started_again(archive, tmp_path):
    with open_clips(archive, slow(tmp_path)) as clips:
        clip = clips.want(0, 0, 10)
        until((tmp_path / "rendering").exists)
        first = clips.renderer_pid
        assert first is not None and not clips.state(clip).ready
        os.kill(first, signal.SIGKILL)
        assert clips.wait(clip, LONG).cameras == ("near", "far-away")
        assert clips.renderer_pid not in (None, first)
        check_files(clips, clip, 11, 48, 64)


def test_a_renderer_that_hangs_is_started_again(archive, tmp_path, monkeypatch):
    """Nothing is waited for as briefly as the frame that never comes."""

    class Hanging(Filmed):
        def render(self, camera=None, size=None):  # type: ignore[override]
            if not (tmp_path / "hung").exists():
                (tmp_path / "hung").touch()
                time.sleep(1000)
            return super().render(camera, size)

    ask = Renderer._ask

    def asked(self, blocks):
        self._seconds = LONG if blocks is self._opening or (tmp_path / "hung").exists() else 5.0
        return ask(self, blocks)

    monkeypatch.setattr(Renderer, "_ask", asked)
    with open_clips(archive, Hanging) as clips:
        state = clips.wait(clips.want(0, 0, 10), 2 * LONG)
        assert state.ready and state.note is None and (tmp_path / "hung").exists()


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


@needs_dev_full
def test_a_full_disk_is_a_failed_clip_until_there_is_space(archive, tmp_path, monkeypatch):
    full = disk_of_ffmpeg(tmp_path, monkeypatch)
    full.touch()
    with open_clips(archive) as clips:
        clip = clips.want(0, 0, 10)
        failed = clips.wait(clip, LONG).failed or ""
        assert "the disk is full" in failed and str(tmp_path) not in failed
        assert clips.path(clip, "near", "mp4") is None
        assert not [path for path in (tmp_path / "clips").iterdir() if path.is_dir()]
        full.unlink()
        assert clips.want(0, 0, 10) == clip and clips.state(clip).failed  # not at once again
        monkeypatch.setattr(module, "_AGAIN", 0.0)
        clips.want(0, 0, 10)
        assert clips.wait(clip, LONG).ready

        def no_room():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(clips._shelf, "begin", no_room)
        failed = clips.wait(clips.want(0, 1, 10), LONG).failed
        assert failed == "the clip could not be written: the disk is full"


def test_close_does_not_wait_for_a_clip(archive, tmp_path):
    clips = open_clips(archive, slow(tmp_path, frame=100.0))
    clip = clips.want(0, 0, 5)
    until((tmp_path / "rendering").exists)
    pid = clips.renderer_pid
    assert pid is not None
    clips.close()
    clips.close()
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
        "from tests.labelling.filmed import slow\n"
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
    until(lambda: gone(pid))


def test_the_renderer_has_no_jax(archive, tmp_path):
    class Curious(Filmed):
        def render(self, camera=None, size=None):  # type: ignore[override]
            import sys

            (tmp_path / "loaded").write_text(str("jax" in sys.modules))
            return super().render(camera, size)

    with open_clips(archive, Curious) as clips:
        assert clips.wait(clips.want(0, 0, 3), LONG).ready
    assert (tmp_path / "loaded").read_text() == "False"
