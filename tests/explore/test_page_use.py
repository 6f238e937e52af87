r"""The explorer's page in use: mouse, keyboard, files, hostile names, and unusual browsers."""

import csv
import io
import math
from dataclasses import replace

import numpy as np
import pytest
from browser import pixel
from contents import NODES, plain_content

from phgcn.explore import Column, write_page

HOSTILE = [
    "<script>window.hacked = 1</script>",
    "\"><img src=x onerror='window.hacked = 1'>",
    "</script><script>window.hacked = 1</script>",
    "\u202egnp.exe\u2066\u0000\u001b[31m",
    "x" * 10_000,
    "=HYPERLINK(1)",
    "{{DATA}} <!-- ${window.hacked = 1}",
]
NO_WEBGL = """
const get = HTMLCanvasElement.prototype.getContext;
HTMLCanvasElement.prototype.getContext = function (kind, ...rest) {
  return kind.startsWith("webgl") ? null : get.call(this, kind, ...rest);
};
"""


def test_a_box_drawn_around_nodes_selects_them(one):
    shown = one
    shown.find(".modebar-btn[data-title='Box Select']").click()
    box = shown.find(".plot").bounding_box()
    frame = shown.evaluate("explorer.sides[0].plot.frame()")
    left, top = box["x"] + frame["left"], box["y"] + frame["top"]
    shown.page.mouse.move(left + 2, top + 2)
    shown.page.mouse.down()
    shown.page.mouse.move(left + frame["width"] / 2, top + frame["height"] - 2, steps=4)
    shown.page.mouse.up()
    shown.find(".selection table").wait_for()
    inside = shown.evaluate("""() => {
      const { plot } = explorer.sides[0], [x] = plot.ranges();
      return [...plot.x.keys()].filter((node) => plot.x[node] < (x[0] + x[1]) / 2);
    }""")
    chosen = shown.evaluate("[...explorer.selection.nodes]")
    assert 0 < len(chosen) < NODES and set(chosen) == set(inside)


def test_pan_and_zoom_move_the_dots(one):
    shown = one
    box = shown.find(".plot").bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    read = "explorer.sides[0].plot.placer()(7)"
    before, dots = shown.evaluate(read), pixel(shown, 7)
    shown.page.mouse.move(*middle)
    shown.page.mouse.down()
    shown.page.mouse.move(middle[0] + 60, middle[1] + 40, steps=4)
    shown.settle()
    during = shown.evaluate(read)
    shown.page.mouse.up()
    shown.settle()
    after = shown.evaluate(read)
    assert during == pytest.approx([before[0] + 60, before[1] + 40], abs=2)
    assert after == pytest.approx(during, abs=2)
    assert pixel(shown, 7) == dots, "the dot has moved with its place"
    assert shown.evaluate("explorer.node") is None, "a drag is no click"
    read = "explorer.sides[0].plot.ranges()[0].reduce((low, high) => high - low)"
    width = shown.evaluate(read)
    shown.page.mouse.wheel(0, -300)
    shown.until(f"width => {read} < 0.95 * width", width)


def test_while_a_large_picture_is_dragged_some_nodes_are_drawn(one):
    read = """most => {
      const { plot } = explorer.sides[0];
      const drawn = [];
      const { drawElements } = plot.dots.gl;
      plot.dots.gl.drawElements = (kind, count, type, start) => drawn.push([count, start]);
      plot.drawDots(most);
      plot.dots.gl.drawElements = drawElements;
      return drawn;
    }"""
    assert one.evaluate(read, 10) == [[10, 4 * (NODES - 10)]]
    assert one.evaluate(read, 10**6) == [[NODES, 0]]


def test_the_page_is_used_by_keyboard_alone(one):
    shown = one
    press = shown.page.keyboard.press
    press("]")
    assert shown.find("select.head").input_value() == "1"
    press(".")
    assert shown.find("select.view").input_value() == "layer 1"
    assert shown.find("select.head").input_value() == "0"
    shown.page.wait_for_selector(".side[data-shown='layer 1, head 0']")
    shown.find(".plot").focus()
    before = shown.evaluate("explorer.sides[0].plot.ranges()")
    for key in ("ArrowRight", "+"):
        press(key)
        shown.settle()
    moved = shown.evaluate("explorer.sides[0].plot.ranges()")
    assert moved[0][0] > before[0][0]
    assert moved[0][1] - moved[0][0] == pytest.approx(0.8 * (before[0][1] - before[0][0]))
    press("0")
    shown.settle()
    assert shown.evaluate("explorer.sides[0].plot.ranges()")[0] == pytest.approx(before[0])
    press("Enter")
    name = shown.text(".node .big")
    shown.find(".global tbody tr button").nth(1).focus()
    other = shown.find(".global tbody tr button").nth(1).inner_text()
    press("Enter")
    assert shown.text(".node .big") == other != name
    press("Escape")
    assert "Click a node" in shown.text(".node")


def downloaded(shown, button):
    with shown.page.expect_download() as waiting:
        button.click()
    return waiting.value.suggested_filename, open(waiting.value.path(), "rb").read()


def test_picture_and_selection_are_saved(one):
    shown = one
    shown.page.locator("#save-csv").click()
    assert "Nothing is selected" in shown.page.locator("#message").inner_text()
    shown.click_node(7)
    name, text = downloaded(shown, shown.page.locator("#save-csv"))
    rows = list(csv.DictReader(io.StringIO(text.decode())))
    assert name == "selection.csv" and len(rows) == NODES and rows[0]["id"] == "n7"
    assert sum(float(row["weight"]) for row in rows) == pytest.approx(1, abs=1e-4)
    assert {"class", "prediction", "confidence", "split", "degree", "feature 4"} <= set(rows[0])
    name, picture = downloaded(shown, shown.find(".save-png"))
    pixels = pytest.importorskip("matplotlib.image").imread(io.BytesIO(picture))[..., :3]
    assert name == "picture.png"
    assert pixels.shape[1] > 1000
    assert (pixels != pixels[0, 0]).any(axis=-1).mean() > 0.002
    # the ring of the node in focus
    assert (np.abs(pixels - [0xDD / 255, 0, 0]).sum(axis=-1) < 0.1).any()


def test_hostile_names_are_text(tmp_path, show):
    columns = [Column(HOSTILE[0], np.zeros(len(HOSTILE), np.int32), [HOSTILE[1]])]
    title = HOSTILE[0] + HOSTILE[2]
    labels = list(range(len(HOSTILE)))
    page = plain_content(HOSTILE, HOSTILE[::-1], labels, title=title, columns=columns)
    write_page(page, tmp_path / "page.html")
    shown = show(tmp_path / "page.html")
    for node, name in enumerate(HOSTILE):
        shown.evaluate("node => explorer.focusOn(node)", node)
        for said, wanted in (
            (shown.text(".node .big"), name),
            (shown.text(".node tr:first-child td:last-child"), HOSTILE[-1 - node]),
        ):
            letters = [letter if letter.isprintable() else "?" for letter in wanted[:20]]
            assert said[:20] == "".join(letters)
    shown.find("select.colour").select_option(HOSTILE[0])
    assert shown.evaluate("window.hacked") is None
    assert shown.page.locator("img, iframe, object").count() == 0 and shown.page.title() == title
    root = "document.documentElement"
    assert shown.evaluate(f"{root}.scrollWidth <= {root}.clientWidth")
    assert "'=HYPERLINK" in shown.evaluate("toCSV([explorer.ids])")


def test_what_slips_in_cannot_run_or_reach_out(one):
    attempts = """async () => {
      const script = document.createElement("script");
      script.textContent = "window.hacked = 1";
      const link = document.createElement("div");
      link.innerHTML = "<button onclick='window.hacked = 1'>x</button>";
      document.body.append(script, link);
      link.firstChild.click();
      setTimeout("window.hacked = 1", 0);
      const sent = await fetch("https://example.com/").then(() => true, () => false);
      await new Promise((resume) => setTimeout(resume, 50));
      script.remove();
      link.remove();
      return [window.hacked || null, sent];
    }"""
    assert one.evaluate(attempts) == [None, False]
    assert len([text for text in one.complaints if "Content Security Policy" in text]) >= 3
    one.complaints.clear()


def test_attention_stays_within_its_graph_and_an_empty_class_keeps_its_place(tmp_path, show):
    line = plain_content(list("abcdef"), ["one", "nobody", "two"], [0, 2, -1, 0, 0, 0])
    write_page(replace(line, batch=np.array([0, 0, 0, 1, 1, 1])), tmp_path / "page.html")
    shown = show(tmp_path / "page.html")
    legend = shown.find(".legend label").all_inner_texts()
    assert legend == ["unlabelled (1)", "one (4)", "nobody (0)", "two (1)"]
    shown.find(".reach table", 0).first.wait_for()
    (far, *_) = shown.find(".reach table", 0).all()
    # Node a gives 0.67 of its attention to its own class: of that to labelled nodes, as c has no
    # label.
    own = 1 / (1 + math.exp(-1))
    assert shown.evaluate("explorer.sides[0].look(0).reach.own") == pytest.approx(own, abs=1e-6)
    assert far.locator("th").last.inner_text() == "own class"
    assert set(shown.find(".reach tbody tr").nth(1).locator("td").all_inner_texts()[1:]) == {"–"}
    assert shown.find(".confusion", 0).is_hidden(), "nothing is predicted"
    shown.click_node(2)
    total = sum(math.exp(-away) for away in range(3))
    expected = {name: math.exp(-away) / total for away, name in enumerate("cba")}
    assert dict(shown.listed()) == pytest.approx(expected, abs=1e-6)


def test_a_graph_of_one_node(tmp_path, show):
    write_page(plain_content(["alone"], ["one"], [0]), tmp_path / "page.html")
    shown = show(tmp_path / "page.html")
    shown.click_node(0)
    assert shown.listed() == [("alone", 1.0)] and dict(shown.listed("neighbours")) == {"alone": 1.0}


def test_without_webgl_nodes_are_drawn_all_the_same(pages, show):
    shown = show(pages / "one.html", NO_WEBGL)
    assert "no WebGL" in shown.page.locator("#message").inner_text()
    assert pixel(shown, 0)[3] > 150
    shown.click_node(7)
    assert shown.text(".node .big") == "n7" and shown.listed()[0][0] == "n7"


def test_a_narrow_screen_in_the_dark(pages, show):
    phone = {"viewport": {"width": 360, "height": 640}, "has_touch": True, "color_scheme": "dark"}
    shown = show(pages / "two.html", **phone)
    assert shown.evaluate("document.documentElement.scrollWidth") <= 360
    left = [shown.find(".plot", side).bounding_box() for side in range(2)]
    assert left[0]["x"] == left[1]["x"] and left[0]["y"] < left[1]["y"], "one below the other"
    background = "getComputedStyle(document.body).backgroundColor"
    assert shown.evaluate(background) == "rgb(21, 23, 26)"
    shown.click_node(7)
    assert shown.text(".node .big") == "n7"
    shown.page.locator("#theme").click()
    assert shown.evaluate(background) == "rgb(255, 255, 255)"
    shown.page.emulate_media(media="print", color_scheme="dark")
    assert shown.evaluate(background) == "rgb(255, 255, 255)"
    assert shown.find(".bar", 0).first.is_hidden()
