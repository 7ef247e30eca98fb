"""What the page shows: clips on one clock, clips that fail, waiting in words, the dashboard, every width and scheme."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.labelling.browser import Person, Server, until
from tests.labelling.pictures import FPS, FRAMES

People = Callable[..., Person]

DASHBOARD = {
    "curves": {"points": [{"decision": 100 * n, "labels": 4 * n, "success": n / 10} for n in range(10)]},
    "reward": {"clips": [{"left": [0.1, 0.4, 0.9], "right": [0.2, 0.1, 0.0], "choice": "left"}]},
    "lambda": {"points": [{"decision": 100 * n, "lambda": 1 / (1 + n), "bonus": 0.5 / (1 + n)} for n in range(10)]},
    "agreement": {
        "alpha": 0.712,
        "pairs": [{"a": "Ann", "b": "<b>Bo</b>", "both": 24, "agree": 20, "kappa": 0.68}],
        "annotators": [{"name": "Ann", "answers": 31, "seconds": 4.2, "repeated": 8, "consistent": 7}],
    },
}


def test_both_clips_run_on_one_clock(person: People) -> None:
    ann = person().come()
    ann.see_pair()
    apart = []
    for _ in range(25):
        left, right = ann.videos()
        apart.append(abs(left["time"] - right["time"]) * FPS)
        ann.page.wait_for_timeout(100)  # longer than one round of the clip in all
    assert sorted(apart)[-3] <= 1, apart  # frames; while both jump to the start one may be read before it does
    left, right = (video["box"] for video in ann.videos())
    for name in ("width", "height", "y"):
        assert left[name] == pytest.approx(right[name], abs=0.1)


def test_pause_step_scrub_speed_and_camera(person: People, server: Server) -> None:
    ann = person().come()
    ann.see_pair()
    ann.page.keyboard.press(" ")
    until(lambda: all(video["paused"] for video in ann.videos()), "both stand still")
    ann.page.evaluate("s = document.getElementById('scrub'); s.value = 10; s.dispatchEvent(new Event('input'))")
    at_frame(ann, 10)
    for key, frame in ((".", 11), ("ArrowRight", 12), (",", 11), ("ArrowLeft", 10)):
        ann.page.keyboard.press(key)
        at_frame(ann, frame)
    ann.page.click("#forward")
    at_frame(ann, 11)
    ann.page.keyboard.press("v")
    until(lambda: all("topview" in video["src"] for video in ann.videos()), "the other camera")
    at_frame(ann, 11)
    ann.page.keyboard.press("+")
    assert ann.page.input_value("#speed") == "1.5"
    ann.page.select_option("#speed", "0.25")
    ann.page.keyboard.press("r")
    until(lambda: all(0.15 < video["rate"] < 0.4 and not video["paused"] for video in ann.videos()), "both run slowly")
    pair = ann.answer("left")
    until(lambda: ann.see_pair() != pair, "the next pair")
    assert all("topview" in video["src"] for video in ann.videos())
    assert len(server.answers) == 1


def at_frame(ann: Person, frame: int) -> None:
    ann.wait_text("#frame", f"{frame + 1} / {FRAMES}")
    until(lambda: all(int(video["time"] * FPS) == frame for video in ann.videos()), f"both show frame {frame}")


def test_the_next_pair_is_loaded_while_this_one_is_seen(person: People) -> None:
    ann = person()
    asked: list[str] = []
    ann.page.on("request", lambda request: asked.append(request.url))
    ann.come()
    ann.see_pair()
    until(lambda: sum("/clips/" in url for url in asked) >= 4, "four clips are asked for")
    ann.page.wait_for_timeout(500)
    before = len([url for url in asked if "/clips/" in url])
    ann.page.route("**/clips/**", lambda route: route.abort())  # what comes next has to be here already
    ann.answer("left")
    ann.see_pair()
    assert before >= 4


def test_clips_that_fail_while_they_are_waited_for_are_told_at_once(person: People) -> None:
    ann, held = person(), []
    ann.page.route(re.compile(r"/clips/[23]/"), lambda route: held.append(route))  # those of the second pair
    ann.come()
    until(lambda: ann.see_pair() and len(held) >= 2, "the second pair is asked for")
    ann.answer("left")
    ann.wait_text("#waiting", "Loading the clips")
    ann.page.route("**/clips/**", lambda route: route.abort())
    for route in held:
        route.abort()
    ann.wait_text("#waiting", "The clips do not come", seconds=8)


def test_clips_that_fail_are_skipped_with_their_reason(person: People, server: Server) -> None:
    server.behave(failed=[0], broken=[1])
    ann = person().come()
    ann.wait_text("#waiting", "does not work No space left on the disk.")
    ann.page.keyboard.press("f")
    ann.page.click("#waiting-act")
    ann.wait_text("#waiting", "The browser could not play this clip.")
    ann.page.click("#waiting-act")
    ann.see_pair()
    ann.page.click("#problem")
    ann.page.check("text=The view hides what matters")
    ann.page.fill("#problem-text", "arm in front")
    ann.page.click("#problem-form .primary")
    until(lambda: len(server.acts) == 3, "three skips are stored", shown=lambda: server.acts)
    assert [act["act"] for act in server.acts] == ["broken"] * 3
    assert "no space left on the disk" in server.acts[0]["reason"]
    assert "could not play" in server.acts[1]["reason"]
    assert server.acts[2]["reason"] == "the view hides what matters: arm in front"
    ann.answer("left")
    ann.wait_text("#budget-text", "1 of 40 answered")


def test_clips_that_the_server_has_lost_come_when_they_are_back(person: People, server: Server) -> None:
    server.behave(lost=True)
    ann = person().come()
    ann.wait_text("#waiting", "The server has lost this clip. Trying again.")
    server.behave()
    ann.answer("left")
    ann.wait_saved()
    assert len(server.answers) == 1


def test_waiting_is_told_in_words(person: People, server: Server) -> None:
    server.behave(slow=[0], pairs=1)
    ann = person().come()
    ann.wait_text("#waiting", "Drawing the next pair")
    ann.answer("left")
    ann.wait_text("#waiting", "The agent is practising")
    server.behave(pairs=1, why="the budget is spent")
    ann.wait_text("#waiting", "All done, thank you")
    server.behave(pairs=1, why="everything is answered")
    ann.page.reload()
    ann.wait_text("#waiting", "Everything is answered")
    server.behave(pairs=2)
    ann.see_pair()


def test_a_page_that_is_closed_gives_its_pair_to_who_waits(person: People, server: Server) -> None:
    server.behave(pairs=1, why="the last pairs are with others")
    ann, bob = person().come(), person()
    pair = ann.see_pair()
    bob.come("Bob").wait_text("#waiting", "You get one if they close their page")
    ann.page.goto("about:blank")
    assert bob.see_pair().split("-")[0] == pair.split("-")[0]
    ann.come(None).wait_text("#waiting", "with others")


def test_the_pace_of_clips_and_why_they_are_drawings_is_told(person: People, server: Server) -> None:
    server.behave(speed=0.325, note="this machine has no OpenGL")
    ann = person().come()
    ann.see_pair()
    note = "This is a drawing: this machine has no OpenGL."
    assert ann.text("#about-clips") == f"Slowed down: 1× is 0.33 of the real pace. {note}"  # noqa: RUF001


def test_an_instruction_that_asks_needs_no_second_question(person: People, server: Server) -> None:
    ann = person().come()
    ann.see_pair()
    assert ann.page.locator("#question").bounding_box()["width"] > 100
    server.behave(instruction="Which one is smoother?")
    ann.page.reload()
    ann.see_pair()
    assert ann.page.locator("#question").bounding_box()["width"] <= 1


def test_a_script_in_the_instruction_is_text(person: People, server: Server) -> None:
    text = "<img src=x onerror=document.title='bad'><script>document.title='bad'</script>"
    server.behave(instruction=text)
    ann = person().come("<i>Ann</i>")
    ann.see_pair()
    assert ann.text("#instruction") == text
    assert ann.text("#who-name") == "<i>Ann</i>"
    assert ann.page.title() != "bad"


def test_the_dashboard_draws_and_tells(person: People, server: Server) -> None:
    server.behave(dashboard=DASHBOARD)
    ann = person().come(where="/#dashboard")
    label = "Success while learning. Success 90 % at decision 900 with 36 labels."
    ann.page.wait_for_selector(f'svg[role="img"][aria-label="{label}"]')
    assert ann.page.locator("#dash svg[role=img]").count() == 5
    said = ann.text("#dash")
    assert "over all annotators: 0.71" in said
    assert "Ann and <b>Bo</b>" in said
    assert "7 of 8" in said and "83 % of 24" in said, "of a few, the numbers alone"
    ann.page.locator("#dash details summary").first.click()
    assert ann.text("#dash details table tbody tr:last-child") == "900 0.9"
    server.behave(dashboard={})
    ann.page.click("#dash-refresh")
    ann.wait_text("#dash", "Nobody has answered yet.")


def test_the_dashboard_of_a_run_that_has_just_begun(person: People, server: Server) -> None:
    points = [{"decision": 50 * n, "labels": 0, "success": 0.0, "return": 0.0} for n in (1, 2)]
    server.behave(dashboard={"curves": {"points": points}, "agreement": {"model": {"agree": 0, "of": 2}}})
    ann = person().come(where="/#dashboard")
    ann.wait_text("#dash", "The reward model agreed with 0 of 2 answers.")
    assert "Always 0 so far: the environment gives no reward" in ann.text("#dash")
    for chart, last in ((0, "100"), (1, "10")):
        ticks = ann.page.locator("#dash svg[role=img]").nth(chart).locator(".tick[text-anchor=middle]")
        ticks.last.wait_for()
        shown = ticks.all_text_contents()
        assert (shown[0], shown[-1]) == ("0", last), "decisions and labels are counted from 0"


def test_a_chart_of_values_that_differ_in_their_last_digit_has_ticks(person: People, server: Server) -> None:
    points = [{"decision": n, "lambda": 0.3 + n % 2 * 5e-17, "bonus": 0.3} for n in range(10)]
    assert points[0]["lambda"] < points[1]["lambda"]
    server.behave(dashboard={"lambda": {"points": points}})
    ann = person().come(where="/#dashboard")
    ann.page.wait_for_selector("#dash svg[role=img] .tick", timeout=10_000)
    assert ann.page.locator("#dash svg[role=img] .grid").count() < 30


def test_the_focus_of_the_keyboard_stays_where_it_is(person: People, server: Server) -> None:
    server.behave(pairs=1)
    ann = person().come()
    ann.see_pair()
    for name, key in (("speed", "ArrowDown"), ("camera", "ArrowDown"), ("forward", "f")):
        ann.page.focus(f"#{name}")
        before = ann.page.input_value(f"#{name}") if name != "forward" else None
        ann.page.keyboard.press(key)
        if before:
            until(lambda name=name, before=before: ann.page.input_value(f"#{name}") != before, f"another {name}")
        assert ann.page.evaluate("document.activeElement.id") == name
    ann.wait_text("#waiting", "The agent is practising")
    ann.page.keyboard.press("Enter")  # nothing to play, and nothing goes wrong
    server.behave(pairs=2)
    ann.see_pair()
    assert ann.page.evaluate("document.activeElement.id") == "forward"
    ann.page.focus("#speed")
    ann.page.dispatch_event("#speed", "pointerdown")
    ann.page.select_option("#speed", "2")
    assert ann.page.evaluate("document.activeElement.id") != "speed", "after the mouse, keys are for the clips"


def test_help_and_tabs_by_keyboard(person: People, server: Server) -> None:
    ann = person().come()
    ann.see_pair()
    ann.page.keyboard.press("?")
    ann.page.wait_for_selector("#help-dialog[open]")
    assert "Equal E or 3 or =" in ann.text("#keys")
    ann.page.keyboard.press("f")  # no answer from behind a dialog
    ann.page.uncheck("#keys-on")
    ann.page.keyboard.press("Escape")
    assert ann.page.get_attribute("#undo", "aria-keyshortcuts") == "Backspace"
    ann.page.keyboard.press("f")
    ann.page.keyboard.press("1")
    ann.page.reload()
    ann.see_pair()
    ann.page.keyboard.press("?")
    ann.page.click("#help")
    assert not ann.page.is_checked("#keys-on")
    ann.page.check("#keys-on")
    ann.page.keyboard.press("?")
    ann.page.wait_for_selector("#help-dialog", state="hidden")
    ann.page.focus("#tab-label")
    ann.page.keyboard.press("ArrowRight")
    assert ann.page.get_attribute("#tab-dashboard", "aria-selected") == "true"
    ann.page.keyboard.press("Home")
    ann.page.wait_for_selector("#view-label", state="visible")
    assert server.answers == []
    ann.page.focus('.answer[data-choice="equal"]')
    ann.page.keyboard.press(" ")  # the focused button's own key
    ann.wait_text("#mine", "1 by you")
    assert server.answers[0]["choice"] == "equal"


@pytest.mark.parametrize(
    ("width", "height", "scheme"),
    [
        (320, 780, "dark"),
        (390, 780, "light"),
        (844, 390, "light"),
        (1280, 700, "dark"),
        (820, 780, "light"),
        (1600, 780, "dark"),
    ],
)
def test_everything_fits_at_every_size(person: People, width: int, height: int, scheme: str) -> None:
    phone = {"is_mobile": True, "has_touch": True} if min(width, height) < 700 else {}
    ann = person(viewport={"width": width, "height": height}, color_scheme=scheme, **phone).come(
        "Annemarie of the Long Name"
    )
    ann.see_pair()
    assert ann.page.evaluate("document.documentElement.scrollWidth") <= width
    for choice in ("left", "right", "equal", "cant-tell"):  # in sight without scrolling, and large enough to hit
        box = ann.page.locator(f'.answer[data-choice="{choice}"]').bounding_box()
        assert box["y"] + box["height"] <= height
        assert box["height"] >= 44
    assert not covered(ann)
    if width < 700:
        ann.page.click("#larger")
        assert not covered(ann)
        left, right = (video["box"] for video in ann.videos())
        assert left["y"] + left["height"] <= right["y"]
        assert left["width"] == pytest.approx(right["width"], abs=0.1)
        assert left["width"] > 0.9 * width
        assert ann.page.evaluate("[innerWidth, innerHeight]") == [width, height]  # nothing made the browser zoom out
    ann.page.click("#tab-dashboard")
    ann.page.wait_for_selector("#dash h3")
    assert ann.page.evaluate("document.documentElement.scrollWidth") <= width


def covered(ann: Person) -> bool:
    """Whether a sentence that passes lies over the answers."""
    ann.page.keyboard.press("u")
    ann.page.wait_for_selector("#toast:has-text('no answer of yours')")
    ann.see_pair()
    said, answers = (ann.page.locator(part).bounding_box() for part in ("#toast", "#answers"))
    return said["y"] < answers["y"] + answers["height"] and answers["y"] < said["y"] + said["height"]


def test_who_wants_little_motion_starts_the_clips_by_hand(person: People) -> None:
    ann = person(reduced_motion="reduce").come()
    ann.see_pair()
    ann.page.wait_for_timeout(300)
    assert all(video["paused"] for video in ann.videos())
    ann.page.keyboard.press(" ")
    until(lambda: not any(video["paused"] for video in ann.videos()), "both run")
