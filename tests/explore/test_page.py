import base64
import hashlib
import re
import shutil
import subprocess
import zlib
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from contents import plain_content

from phgcn.explore import page_bytes
from phgcn.explore.pack import Packed, pack_array
from phgcn.explore.page import SCRIPTS

pytest.importorskip("plotly")
FOLDER = Path(str(resources.files("phgcn.explore") / "page"))


class Reader(HTMLParser):
    """What a page is made of."""

    def __init__(self, text):
        super().__init__()
        self.scripts = []
        self.styles = []
        self.data = {}
        self.policy = ""
        self.tags = []
        self.into = None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.tags.append((tag, named))
        self.into = None
        if tag == "meta" and named.get("http-equiv") == "Content-Security-Policy":
            self.policy = named["content"]
        if tag == "script":
            self.into = self.data.setdefault(named["id"], []) if "type" in named else self.scripts
        if tag == "style":
            self.into = self.styles

    def handle_data(self, text):
        if self.into is not None:
            self.into.append(text)

    def handle_endtag(self, tag):
        self.into = None


def allowed(policy, kind):
    (sources,) = re.findall(rf"{kind} ([^;]*)", policy)
    return set(sources.split())


def hashed(text):
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_policy_names_every_script_and_allows_nothing_else():
    read = Reader(page_bytes(plain_content(["a", "b"], ["one"], [0, 0])).decode())
    assert "default-src 'none'" in read.policy
    assert "unsafe" not in read.policy
    assert "http" not in read.policy
    library = zlib.decompress(base64.b64decode("".join(read.data["data-library"]))).decode()
    assert allowed(read.policy, "script-src") == {hashed(text) for text in (library, *read.scripts)}
    assert len(read.scripts) == len(SCRIPTS)
    assert {hashed(text) for text in read.styles} <= allowed(read.policy, "style-src")
    names = {name for _, named in read.tags for name in named}
    assert not names & {"src", "style"} and not any(name.startswith("on") for name in names)


def test_no_name_is_in_the_markup_but_the_title_which_is_escaped():
    text = page_bytes(plain_content(["<b>id"], ["<b>class"], [0], title="<b>title</b>")).decode()
    assert "<b>" not in text and "&lt;b&gt;title&lt;/b&gt;" in text


@pytest.mark.parametrize(
    "values",
    [
        np.array([1.5, -2.25, 1e-30], np.float32),
        np.array([3, -1, 2**30]),
        np.zeros((2, 3), np.float32),
    ],
)
def test_numbers_are_packed_without_loss(values):
    kind, text = pack_array(values)
    planes = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8).reshape(4, -1)
    packed = np.ascontiguousarray(planes.T).view(f"<{kind}")
    assert packed.ravel().tolist() == values.ravel().tolist()


def test_ids_that_are_numbers_in_order_are_not_stored():
    assert Packed(plain_content(["0", "1"], ["one"], [0, 0])).header["numbered"]
    packed = Packed(plain_content(["1", "0"], ["one"], [0, 0]))
    assert not packed.header["numbered"] and "ids" in packed.parts


def test_scripts_are_typed_parse_and_are_all_used():
    files = sorted(path.name for path in FOLDER.glob("*.js"))
    assert files == sorted(SCRIPTS)
    for name in SCRIPTS:
        text = (FOLDER / name).read_text()
        assert text.startswith('// @ts-check\n"use strict";') and len(text.splitlines()) <= 400
        assert max(map(len, text.splitlines())) <= 128, name
        assert "</script" not in text and "\r" not in text
        unsafe = r"innerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function"
        assert not re.search(unsafe, text), name


@pytest.mark.skipif(shutil.which("node") is None, reason="no node; the browser parses them too")
def test_scripts_pass_nodes_syntax_check():
    text = "\n".join((FOLDER / name).read_text() for name in SCRIPTS)
    checked = subprocess.run(["node", "--check", "-"], input=text, text=True, capture_output=True)
    assert checked.returncode == 0, checked.stderr
