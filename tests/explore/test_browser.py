r"""The explorer's page in a real browser."""

import csv
import io
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from browser import Shown
from contents import NODES, content, model, plain_content
from small_graphs import small_graph

from phgcn.explore import Column, write_page
from phgcn.nn.attention_statistics import first_inputs
from phgcn.report.embeddings import hops
from phgcn.report.layers import view_layers

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


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """The pages of one model and of two."""
    folder = tmp_path_factory.mktemp("pages")
    write_page(content(), folder / "one.html")
    write_page(content(model(), model("global-gnn")), folder / "two.html")
    return folder


@pytest.fixture(scope="module")
def opened(browser, pages):
    """Opens a page once for all tests."""
    shown = {}

    def open_once(name):
        if name not in shown:
            shown[name] = Shown(browser, pages / f"{name}.html", accept_downloads=True)
        return shown[name]

    yield open_once
    for page in shown.values():
        page.close()


def at_its_beginning(opened, name):
    page = opened(name)
    page.reset()
    yield page
    assert page.complaints == []


@pytest.fixture
def one(opened):
    """The page of one model, as it was when it was opened; the test fails if the page complains on its console."""
    yield from at_its_beginning(opened, "one")


@pytest.fixture
def two(opened):
    """The page of two models."""
    yield from at_its_beginning(opened, "two")


@pytest.fixture(scope="module")
def data():
    return small_graph(NODES)


def pixel(shown, node, side=0):
    """The colour of the dots where a node is drawn: red, green, blue, opacity."""
    read = """([side, node]) => {
      const { plot } = explorer.sides[side];
      const [x, y] = plot.placer()(node);
      const copy = document.createElement("canvas");
      [copy.width, copy.height] = [plot.dots.canvas.width, plot.dots.canvas.height];
      const pen = copy.getContext("2d");
      pen.drawImage(plot.dots.canvas, 0, 0);
      return [...pen.getImageData(Math.round(x), Math.round(y), 1, 1).data];
    }"""
    return shown.evaluate(read, [side, node])


def strongest(network, data, layer, head, node, count=50):
    """What the layer itself says that a node attends to."""
    convs = network.convs
    (hidden,) = first_inputs([convs[layer]], network, (data.x, data.edge_index))
    targets, weights = convs[layer].top_attention(hidden, k=count, nodes=torch.tensor([node]))
    return {f"n{target}": weight for target, weight in zip(targets[0, head].tolist(), weights[0, head].tolist(), strict=True)}


def close(listed, expected):
    assert len(listed) == min(50, len(expected)) > 3
    for name, weight in listed:
        assert weight == pytest.approx(expected[name], abs=1e-4)
    weights = [weight for _, weight in listed]
    assert weights == sorted(weights, reverse=True)


def test_a_click_shows_the_exact_attention_of_every_layer_and_head(data, one):
    shown, network = one, model()
    assert shown.text("h2") == "model 0" and shown.page.title() == "small: what the network attends to"
    shown.click_node(7)
    assert shown.text(".node .big") == "n7"
    for layer in range(2):
        for head in range(2):
            shown.find("select.view").select_option(f"layer {layer}")
            shown.find("select.head").select_option(str(head))
            shown.page.wait_for_selector(f".side[data-shown='layer {layer}, head {head}']")
            close(shown.listed(), strongest(network, data, layer, head, 7))
    edges = hops(data.edge_index, NODES, np.array([7]))[0]
    for row in shown.find(".global tbody tr").all()[:5]:
        name, _, _, away = (cell.inner_text() for cell in row.locator("td").all())
        assert int(away) == edges[int(name[1:])]


def test_neighbours_have_the_local_attention_of_the_layer(data, one):
    shown, network = one, model()
    shown.click_node(7)
    _, (edges, weights) = network.convs[0](data.x, data.edge_index, return_attention_weights=True)
    into = edges[1] == 7
    expected = {f"n{source}": weight for source, weight in zip(edges[0, into].tolist(), weights[into, 0].tolist(), strict=True)}
    listed = dict(shown.listed("neighbours"))
    assert set(listed) == set(expected) and "n7" in listed
    assert all(listed[name] == pytest.approx(weight, abs=1e-4) for name, weight in expected.items())


def test_attention_that_is_stored_by_edge_is_read(one):
    edges = "{ starts: [0, 1, 4], sources: [1, 0, 1, 0], weights: [1, 0.25, 0.5, 0.25] }"
    assert one.evaluate(f"[...readNeighbours({edges}, 1)]") == [[0, 0.5], [1, 0.5]]


def test_a_block_of_global_attention_is_shown_as_it_is(data, two):
    shown = two
    shown.click_node(7, side=1)
    (view,) = view_layers(model("global-gnn"), (data.x, data.edge_index))
    targets, weights = (part[0, 0].tolist() for part in view.strongest(50, torch.tensor([7])))
    expected = {f"n{target}": weight for target, weight in zip(targets, weights, strict=True)}
    close(shown.listed(side=1), expected)
    assert "Gate 0" in shown.text(".about", side=1) and "no attention to neighbours" in shown.text(".neighbours", side=1)
    assert shown.text(".node .big") == "n7", "the same node on the other side"


def test_the_slider_changes_the_decay(data, one):
    shown, network = one, model()
    shown.page.locator("#search").fill("n7")
    shown.page.locator("#search").press("Enter")
    shown.page.locator("#sharpness").fill("2")
    assert shown.page.locator("#sharpness-value").inner_text() == "4"
    for conv in network.convs:
        conv.decay_global.value *= 4
    close(shown.listed(), strongest(network, data, 0, 0, 7))


def test_a_node_is_found_by_id(one):
    shown = one
    shown.page.keyboard.press("/")
    shown.page.keyboard.type("n1")
    names = shown.page.locator("#matches button").all_inner_texts()
    assert names[0] == "n1" and set(names[1:]) == {f"n1{digit}" for digit in range(10)}
    shown.page.locator("#matches button", has_text="n14").click()
    assert shown.text(".node .big") == "n14"
    shown.page.locator("#search").fill("moon")
    shown.page.locator("#search").press("Enter")
    assert "No node has moon in its id" in shown.page.locator("#message").inner_text()
    shown.page.locator("#clear").click()
    assert "Click a node" in shown.text(".node")


def test_the_legend_hides_a_class(one):
    shown = one
    before, drawn = pixel(shown, 0), shown.evaluate("explorer.sides[0].plot.dots.count")
    assert drawn == NODES and before[3] > 150 and abs(before[2] - 0xB2) < 30, "the first colour of the palette"
    shown.find(".legend label", 0).nth(0).locator("input").uncheck()
    assert shown.evaluate("explorer.sides[0].plot.dots.count") == 40 and pixel(shown, 0) != before
    shown.click_node(0, answered=False)
    assert shown.find(".node .big").or_(shown.find(".node .note")).inner_text() != "n0"
    shown.find(".legend button", 0).nth(0).click()
    assert shown.evaluate("explorer.sides[0].plot.dots.count") == NODES


def test_nodes_are_coloured_by_every_column(data, one):
    shown = one
    names = shown.find("select.colour option").all_inner_texts()
    first = ["class", "prediction", "correctness", "confidence", "split", "degree", "entropy of attention"]
    assert names == [*first, *(f"feature {number}" for number in range(5))]
    seen = set()
    for name in names:
        shown.find("select.colour").select_option(name)
        shown.find(".legend legend", 0).filter(has_text=name).wait_for()
        counts = shown.evaluate("explorer.sides[0].groups.reduce((sum, group) => sum + group.nodes.length, 0)")
        assert counts == NODES
        seen.add(tuple(pixel(shown, node)[0] for node in (0, 1, 2, 50)))
    assert len(seen) > 5
    groups = shown.find(".legend label").all_inner_texts()
    assert all(" to " in text for text in groups)


def test_colours_and_legend_mean_the_same_after_a_click(one):
    shown = one
    shown.click_node(7)
    assert shown.text(".legend legend") == "attention of n7" and shown.find(".legend input", 0).count() == 0
    assert shown.text(".scale").startswith("Colour and size: attention of n7 to each node, from dark (")
    shown.find(".legend button", 0).click()
    assert shown.text(".legend legend") == "class" and shown.find(".legend input", 0).count() == 3


def test_clear_puts_slider_and_search_back(one):
    shown = one
    shown.page.locator("#search").fill("n1")
    shown.page.locator("#sharpness").fill("4")
    assert shown.evaluate("explorer.sharpness") == 16
    shown.page.locator("#clear").click()
    assert shown.evaluate("explorer.sharpness") == 1 and shown.page.locator("#sharpness").input_value() == "0"
    assert shown.page.locator("#search").input_value() == "" and shown.page.locator("#matches").is_hidden()
    assert shown.page.locator("#sharpness-value").inner_text() == "1"


def test_test_nodes_are_shown_alone(one):
    shown = one
    names = shown.find("select.only option").all_inner_texts()
    assert names == ["all nodes", "train nodes", "validation nodes", "test nodes"]
    shown.find("select.only").select_option("test nodes")
    assert shown.evaluate("explorer.sides[0].plot.dots.count") == 12
    shown.find("select.only").select_option("all nodes")
    assert shown.evaluate("explorer.sides[0].plot.dots.count") == NODES


def test_a_network_without_attention_has_no_slider_and_one_sentence_says_what_is_seen(tmp_path, show):
    from phgcn.explore import explore_runs
    from phgcn.train import Plan, Run, Settings

    data = small_graph(NODES)
    pages = {}
    for kind in ("mlp", "phgcn"):
        plan = Plan("small", kind, splits=1, settings=Settings(hidden_channels=4, heads=2, epochs=2))
        run = Run.create(tmp_path / kind, plan, data)
        score = run.train(data)["test"]["mean"]
        run.data = lambda source=None: data
        explore_runs([run], tmp_path / f"{kind}.html")
        pages[kind] = show(tmp_path / f"{kind}.html")
        said = pages[kind].text(".summary")
        assert said.startswith(f"Every dot is one of the 60 nodes of small, placed where {kind} puts it")
        assert said.endswith(f"Score on 12 test nodes: accuracy {100 * score:.4g} %.")
    assert pages["mlp"].page.locator("#sharpness").is_hidden() and pages["phgcn"].page.locator("#sharpness").is_visible()


def test_tables_fit_at_1400_pixels_and_attention_comes_before_the_columns(pages, show):
    shown = show(pages / "one.html", viewport={"width": 1400, "height": 900})
    shown.click_node(7)
    body = ".reach .body"
    assert shown.evaluate(f"document.querySelector('{body}').scrollWidth <= document.querySelector('{body}').clientWidth")
    top = [shown.find(f".panels .{name}", 0).bounding_box()["y"] for name in ("node", "global", "columns")]
    assert top == sorted(top) and shown.find(".node td", 0).all_inner_texts()[0] == "class"
    assert "feature 0" in shown.text(".panels .columns") and "feature 0" not in shown.text(".panels .node")


def test_entropy_and_reach_are_those_of_the_dense_matrix(data, one):
    shown, network = one, model()
    positions, _ = network.convs[0].project(data.x)
    weights = torch.softmax(-2.0 * torch.cdist(positions[:, 0].double(), positions[:, 0].double()), dim=1).detach()
    expected = torch.special.entr(weights).sum(dim=1)
    read = "async () => [...await entropies(explorer.sides[0].points, null, explorer.sides[0].decay(), () => false, () => {})]"
    assert shown.evaluate(read) == pytest.approx(expected.tolist(), abs=1e-4)
    shown.find(".reach table", 0).first.wait_for()
    tables = [[row.locator("td").all_inner_texts() for row in shown.find(f".reach table:nth-of-type({number}) tbody tr").all()]
              for number in (1, 2)]  # fmt: skip
    cells = [[*far, *classes[1:]] for far, classes in zip(*tables, strict=True)]
    distances = torch.from_numpy(hops(data.edge_index, NODES, np.arange(NODES)))
    for kind, row in enumerate(cells):
        own = data.y == kind
        shares = [weights.diagonal()[own].mean(), *((weights * (distances <= hop)).sum(dim=1)[own].mean() for hop in (1, 2, 3))]
        classes = [weights[own][:, data.y == other].sum(dim=1).mean() for other in range(3)]
        wanted = [float(share) for share in (*shares, classes[kind], *classes)]
        assert row[0] == data.classes[kind]
        assert [float(cell.rstrip(" %").replace("< ", "")) for cell in row[1:]] == pytest.approx(
            [100 * share for share in wanted], abs=0.51
        )


def test_a_cell_of_the_confusion_table_selects_its_nodes_on_both_sides(data, two, photograph):
    shown = two
    shown.find("select.set", 1).select_option("all")
    with torch.no_grad():
        predicted = model("global-gnn")(data.x, data.edge_index).argmax(dim=1)
    said = int(predicted.mode().values)
    cell = shown.find(".confusion tbody tr", 1).nth(0).locator("button").nth(said)
    nodes = ((data.y == 0) & (predicted == said)).nonzero().flatten().tolist()
    assert cell.inner_text() == str(len(nodes)) and nodes
    cell.click()
    for side in range(2):
        assert f"{len(nodes)} nodes: {data.classes[0]} predicted as {data.classes[said]}" in shown.text(".selection", side)
        assert shown.evaluate("side => [...explorer.sides[side].overlay.selected]", side) == nodes
        rows = shown.find(".selection tbody tr", side).all_inner_texts()
        assert [row.split()[0] for row in rows] == [f"n{node}" for node in nodes[:50]]
    shown.click_node(nodes[0])
    shown.page.mouse.move(0, 0)
    photograph(shown, "explorer-two")


def test_a_box_drawn_around_nodes_selects_them(one):
    shown = one
    shown.find(".modebar-btn[data-title='Box Select']").click()
    box = shown.find(".plot").bounding_box()
    frame = shown.evaluate("explorer.sides[0].plot.frame()")
    shown.page.mouse.move(box["x"] + frame["left"] + 2, box["y"] + frame["top"] + 2)
    shown.page.mouse.down()
    shown.page.mouse.move(box["x"] + frame["left"] + frame["width"] / 2, box["y"] + frame["top"] + frame["height"] - 2, steps=4)
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
    assert during == pytest.approx([before[0] + 60, before[1] + 40], abs=2) and after == pytest.approx(during, abs=2)
    assert pixel(shown, 7) == dots, "the dot has moved with its place"
    assert shown.evaluate("explorer.node") is None, "a drag is no click"
    width = shown.evaluate("explorer.sides[0].plot.ranges()[0].reduce((low, high) => high - low)")
    shown.page.mouse.wheel(0, -300)
    shown.until("width => explorer.sides[0].plot.ranges()[0].reduce((low, high) => high - low) < 0.95 * width", width)


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
    assert one.evaluate(read, 10) == [[10, 4 * (NODES - 10)]] and one.evaluate(read, 10**6) == [[NODES, 0]]


def test_the_page_is_used_by_keyboard_alone(one):
    shown = one
    press = shown.page.keyboard.press
    press("]")
    assert shown.find("select.head").input_value() == "1"
    press(".")
    assert shown.find("select.view").input_value() == "layer 1" and shown.find("select.head").input_value() == "0"
    shown.page.wait_for_selector(".side[data-shown='layer 1, head 0']")
    shown.find(".plot").focus()
    before = shown.evaluate("explorer.sides[0].plot.ranges()")
    for key in ("ArrowRight", "+"):
        press(key)
        shown.settle()
    moved = shown.evaluate("explorer.sides[0].plot.ranges()")
    assert moved[0][0] > before[0][0] and moved[0][1] - moved[0][0] == pytest.approx(0.8 * (before[0][1] - before[0][0]))
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
    assert name == "picture.png" and pixels.shape[1] > 1000 and (pixels != pixels[0, 0]).any(axis=-1).mean() > 0.002
    assert (np.abs(pixels - [0xDD / 255, 0, 0]).sum(axis=-1) < 0.1).any(), "the ring of the node in focus"


def test_hostile_names_are_text(tmp_path, show):
    columns = [Column(HOSTILE[0], np.zeros(len(HOSTILE), np.int32), [HOSTILE[1]])]
    title = HOSTILE[0] + HOSTILE[2]
    page = plain_content(HOSTILE, HOSTILE[::-1], list(range(len(HOSTILE))), title=title, columns=columns)
    write_page(page, tmp_path / "page.html")
    shown = show(tmp_path / "page.html")
    for node, name in enumerate(HOSTILE):
        shown.evaluate("node => explorer.focusOn(node)", node)
        for said, wanted in (
            (shown.text(".node .big"), name),
            (shown.text(".node tr:first-child td:last-child"), HOSTILE[-1 - node]),
        ):
            assert said[:20] == "".join(letter if letter.isprintable() else "?" for letter in wanted[:20])
    shown.find("select.colour").select_option(HOSTILE[0])
    assert shown.evaluate("window.hacked") is None
    assert shown.page.locator("img, iframe, object").count() == 0 and shown.page.title() == title
    assert shown.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
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
    assert shown.find(".legend label").all_inner_texts() == ["unlabelled (1)", "one (4)", "nobody (0)", "two (1)"]
    shown.find(".reach table", 0).first.wait_for()
    (far, *_) = shown.find(".reach table", 0).all()
    # Node a gives 0.67 of its attention to its own class: of that to labelled nodes, as c has no label.
    own = sum(math.exp(-away) for away in (0,)) / sum(math.exp(-away) for away in (0, 1))
    assert shown.evaluate("explorer.sides[0].look(0).reach.own") == pytest.approx(own, abs=1e-6)
    assert far.locator("th").last.inner_text() == "own class"
    assert set(shown.find(".reach tbody tr").nth(1).locator("td").all_inner_texts()[1:]) == {"–"}
    assert shown.find(".confusion", 0).is_hidden(), "nothing is predicted"
    shown.click_node(2)
    total = sum(math.exp(-away) for away in range(3))
    assert dict(shown.listed()) == pytest.approx({name: math.exp(-away) / total for away, name in enumerate("cba")}, abs=1e-6)


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


def test_a_narrow_screen_in_the_dark(pages, show, photograph):
    phone = {"viewport": {"width": 360, "height": 640}, "has_touch": True, "color_scheme": "dark"}
    shown = show(pages / "two.html", **phone)
    assert shown.evaluate("document.documentElement.scrollWidth") <= 360
    left = [shown.find(".plot", side).bounding_box() for side in range(2)]
    assert left[0]["x"] == left[1]["x"] and left[0]["y"] < left[1]["y"], "one below the other"
    background = "getComputedStyle(document.body).backgroundColor"
    assert shown.evaluate(background) == "rgb(21, 23, 26)"
    shown.click_node(7)
    assert shown.text(".node .big") == "n7"
    photograph(shown, "explorer-phone")
    shown.page.locator("#theme").click()
    assert shown.evaluate(background) == "rgb(255, 255, 255)"
    shown.page.emulate_media(media="print", color_scheme="dark")
    assert shown.evaluate(background) == "rgb(255, 255, 255)" and shown.find(".bar", 0).first.is_hidden()
