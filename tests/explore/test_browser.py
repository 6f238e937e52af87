r"""The explorer's page in a real browser."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from browser import pixel
from contents import NODES, model, plain_content
from run_folders import new_run
from small_graphs import small_graph

from phgcn.explore import Column, write_page
from phgcn.explore.content import EdgeAttention
from phgcn.nn.graph_input import record_calls
from phgcn.report.embeddings import hops
from phgcn.report.layers import view_layers
from phgcn.train.yardsticks import describe_yardsticks


def strongest(network, data, layer, head, node, count=50):
    """What the layer itself says that a node attends to."""
    convs = network.convs
    calls = record_calls([convs[layer]], network, (data.x, data.edge_index))
    hidden = calls[convs[layer]][0][0]
    targets, weights = convs[layer].top_attention(hidden, k=count, nodes=torch.tensor([node]))
    return by_name(targets[0, head], weights[0, head])


def by_name(nodes, weights):
    names = [f"n{node}" for node in nodes.tolist()]
    return dict(zip(names, weights.tolist(), strict=True))


def close(listed, expected):
    assert len(listed) == min(50, len(expected)) > 3
    for name, weight in listed:
        assert weight == pytest.approx(expected[name], abs=1e-4)
    weights = [weight for _, weight in listed]
    assert weights == sorted(weights, reverse=True)


def test_a_click_shows_the_exact_attention_of_every_layer_and_head(data, one):
    shown, network = one, model()
    assert shown.text("h2") == "model 0"
    assert shown.page.title() == "small: what the network attends to"
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
    expected = by_name(edges[0, into], weights[into, 0])
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
    targets, weights = view.strongest(50, torch.tensor([7]))
    close(shown.listed(side=1), by_name(targets[0, 0], weights[0, 0]))
    assert "Gate 0" in shown.text(".about", side=1)
    assert "no attention to neighbours" in shown.text(".neighbours", side=1)
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
    # the first colour of the palette
    assert drawn == NODES and before[3] > 150 and abs(before[2] - 0xB2) < 30
    shown.find(".legend label", 0).nth(0).locator("input").uncheck()
    assert shown.evaluate("explorer.sides[0].plot.dots.count") == 40 and pixel(shown, 0) != before
    shown.click_node(0, answered=False)
    assert shown.find(".node .big").or_(shown.find(".node .note")).inner_text() != "n0"
    shown.find(".legend button", 0).nth(0).click()
    assert shown.evaluate("explorer.sides[0].plot.dots.count") == NODES


def test_nodes_are_coloured_by_every_column(data, one):
    shown = one
    names = shown.find("select.colour option").all_inner_texts()
    first = ["class", "prediction", "correctness", "confidence", "split", "degree"]
    assert names == [*first, "entropy of attention", *(f"feature {number}" for number in range(5))]
    seen = set()
    for name in names:
        shown.find("select.colour").select_option(name)
        shown.find(".legend legend", 0).filter(has_text=name).wait_for()
        count = "explorer.sides[0].groups.reduce((sum, group) => sum + group.nodes.length, 0)"
        assert shown.evaluate(count) == NODES
        seen.add(tuple(pixel(shown, node)[0] for node in (0, 1, 2, 50)))
    assert len(seen) > 5
    groups = shown.find(".legend label").all_inner_texts()
    assert all(" to " in text for text in groups)


def test_colours_and_legend_mean_the_same_after_a_click(one):
    shown = one
    shown.click_node(7)
    assert shown.text(".legend legend") == "attention of n7"
    assert shown.find(".legend input", 0).count() == 0
    chosen = "select.colour option:checked"
    assert shown.text(chosen) == "attention of the node"
    assert shown.text(".scale").startswith(
        "Colour and size: attention of n7 to each node, from grey ("
    )
    shown.find(".legend button", 0).click()
    assert shown.text(".legend legend") == "class" and shown.find(".legend input", 0).count() == 3
    assert shown.text(chosen) == "class"
    shown.click_node(7)
    shown.find("select.colour").select_option("degree")
    shown.find(".legend legend", 0).filter(has_text="degree").wait_for()
    assert shown.text(chosen) == "degree", "another colour ends the focus"


def test_a_saved_picture_has_the_legend_of_its_colours(one):
    shown = one
    shown.evaluate("""() => { explorer.sides[0].overlay.picture = async (caption, marks) => {
      window.saved = [caption, ...marks.map(({ label }) => label)]; return new Blob(); } }""")
    shown.click_node(7)
    shown.find("button.save-png").click()
    caption, *labels = shown.evaluate("window.saved")
    assert caption.endswith("head 0, attention of n7") and all(x.endswith(" %") for x in labels)
    shown.find(".legend button", 0).click()
    shown.find("button.save-png").click()
    caption, *labels = shown.evaluate("window.saved")
    assert caption.endswith("head 0, by class") and len(labels) == 3
    shown.evaluate("() => { delete explorer.sides[0].overlay.picture; }")


def test_attention_that_is_stored_is_shown_beside_numbers_and_labels(tmp_path, show):
    plain = plain_content(list("abc"), ["x"], [0, 0, 0])
    starts, sources = np.array([0, 2, 3, 3], np.int32), np.array([1, 2, 0], np.int32)
    far = EdgeAttention(starts, sources, np.array([[0.25], [0.5], [0.75]], np.float32))
    view = replace(plain.sides[0].views[0], decay_global=None, decay_local=None, far_attention=far)
    numbers = [Column("label", np.array([1.5, 2, np.nan], np.float32))]
    several = [
        Column(f"label {name}", np.array(values, np.int32), ["no", "yes"])
        for name, values in (("red", [1, 1, -1]), ("blue", [1, 0, -1]))
    ]
    for number, (columns, label) in enumerate(((numbers, "2"), (several, "red"))):
        sides = [replace(plain.sides[0], views=[view])]
        path = tmp_path / f"page-{number}.html"
        write_page(replace(plain, columns=columns, sides=sides), path)
        shown = show(path)
        shown.click_node(0)
        assert shown.listed() == [("c", 0.5), ("b", 0.25)]
        cells = shown.find(".panels .global tr").all_inner_texts()
        assert [row.split("\t")[1] for row in cells] == ["label", "unlabelled", label]
        assert shown.text(".legend legend") == "attention of a"


def test_clear_puts_slider_and_search_back(one):
    shown = one
    shown.page.locator("#search").fill("n1")
    shown.page.locator("#sharpness").fill("4")
    assert shown.evaluate("explorer.sharpness") == 16
    shown.page.locator("#clear").click()
    assert shown.evaluate("explorer.sharpness") == 1
    assert shown.page.locator("#sharpness").input_value() == "0"
    assert shown.page.locator("#search").input_value() == ""
    assert shown.page.locator("#matches").is_hidden()
    assert shown.page.locator("#sharpness-value").inner_text() == "1"


def test_test_nodes_are_shown_alone(one):
    shown = one
    names = shown.find("select.only option").all_inner_texts()
    assert names == ["all nodes", "train nodes", "validation nodes", "test nodes"]
    shown.find("select.only").select_option("test nodes")
    assert shown.evaluate("explorer.sides[0].plot.dots.count") == 12
    shown.find("select.only").select_option("all nodes")
    assert shown.evaluate("explorer.sides[0].plot.dots.count") == NODES


def test_a_network_without_attention_has_no_slider_and_one_sentence_says_what_is_seen(
    tmp_path, show
):
    from phgcn.explore import explore_runs

    data = small_graph(NODES)
    pages = {}
    for kind in ("mlp", "phgcn"):
        run = new_run(tmp_path / kind, data, kind, {}, splits=1, yardsticks="all")
        result = run.train(data)
        score, others = result["test"]["mean"], describe_yardsticks(result)
        said_beside = "; ".join(line for line in others if not line.startswith("warning"))
        run.data = lambda source=None: data
        explore_runs([run], tmp_path / f"{kind}.html")
        pages[kind] = show(tmp_path / f"{kind}.html")
        said = pages[kind].text(".summary")
        where = f"placed where {kind} puts it"
        assert said.startswith(f"Every dot is one of the 60 nodes of small, {where}")
        assert said.endswith(f"12 test nodes: accuracy {100 * score:.4g} % ({said_beside}).")
        assert "always answering '" in said and ("without global" in said) == (kind == "phgcn")
    assert pages["mlp"].page.locator("#sharpness").is_hidden()
    assert pages["phgcn"].page.locator("#sharpness").is_visible()


def test_tables_fit_at_1400_pixels_and_attention_comes_before_the_columns(pages, show):
    shown = show(pages / "one.html", viewport={"width": 1400, "height": 900})
    shown.click_node(7)
    body = ".reach .body"
    scroll, width = (f"document.querySelector('{body}').{key}Width" for key in ("scroll", "client"))
    assert shown.evaluate(f"{scroll} <= {width}")
    panels = [shown.find(f".panels .{name}", 0) for name in ("node", "global", "columns")]
    top = [panel.bounding_box()["y"] for panel in panels]
    assert top == sorted(top) and shown.find(".node td", 0).all_inner_texts()[0] == "class"
    assert "feature 0" in shown.text(".panels .columns")
    assert "feature 0" not in shown.text(".panels .node")


def test_entropy_and_reach_are_those_of_the_dense_matrix(data, one):
    shown, network = one, model()
    positions, _ = network.convs[0].project(data.x)
    points = positions[:, 0].double().detach()
    weights = torch.softmax(-2.0 * torch.cdist(points, points), dim=1)
    expected = torch.special.entr(weights).sum(dim=1)
    read = "async () => [...await entropies(explorer.sides[0].points, null, explorer.sides[0].decay(), () => false, () => {})]"  # noqa: E501
    assert shown.evaluate(read) == pytest.approx(expected.tolist(), abs=1e-4)
    shown.find(".reach table", 0).first.wait_for()
    rows = [shown.find(f".reach table:nth-of-type({number}) tbody tr").all() for number in (1, 2)]
    tables = [[row.locator("td").all_inner_texts() for row in table] for table in rows]
    cells = [[*far, *classes[1:]] for far, classes in zip(*tables, strict=True)]
    distances = torch.from_numpy(hops(data.edge_index, NODES, np.arange(NODES)))
    for kind, row in enumerate(cells):
        own = data.y == kind
        within = [(weights * (distances <= hop)).sum(dim=1) for hop in (1, 2, 3)]
        shares = [part[own].mean() for part in (weights.diagonal(), *within)]
        classes = [weights[own][:, data.y == other].sum(dim=1).mean() for other in range(3)]
        wanted = [float(share) for share in (*shares, classes[kind], *classes)]
        assert row[0] == data.classes[kind]
        percents = [float(cell.rstrip(" %").replace("< ", "")) for cell in row[1:]]
        assert percents == pytest.approx([100 * share for share in wanted], abs=0.51)


def test_a_cell_of_the_confusion_table_selects_its_nodes_on_both_sides(data, two):
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
        line = f"{len(nodes)} nodes: {data.classes[0]} predicted as {data.classes[said]}"
        assert line in shown.text(".selection", side)
        assert shown.evaluate("side => [...explorer.sides[side].overlay.selected]", side) == nodes
        rows = shown.find(".selection tbody tr", side).all_inner_texts()
        assert [row.split()[0] for row in rows] == [f"n{node}" for node in nodes[:50]]
