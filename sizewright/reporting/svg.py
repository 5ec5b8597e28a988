"""Convert a picture to an SVG for a page: real text, the page's colours, and points that the keyboard reaches."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl

from sizewright.plots import Picture
from sizewright.plots._base import INK
from sizewright.redaction import shown

_SVG, _LINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"


def as_svg(picture: Picture, name: str) -> str:
    """Return an SVG element with the id `name` and the picture's text alternative.

    The labelled points of an artist form one group that the keyboard reaches; each point carries its label.
    """
    file = io.StringIO()
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": name, "font.family": "sans-serif"}
    with mpl.rc_context(settings):
        picture.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    ET.register_namespace("", _SVG)
    ET.register_namespace("xlink", _LINK)
    root = ET.fromstring(file.getvalue())
    for metadata in root.findall(f"{{{_SVG}}}metadata"):
        root.remove(metadata)
    _name(root, name, picture)
    for element in list(root.iter()):
        if texts := picture.labels.get(element.get("id", "")):
            _label(element, texts)
    _hide_secrets(root)
    _prefix_ids(root, name)
    return ET.tostring(root, encoding="unicode").replace(INK, "currentColor")


def _name(root: ET.Element, name: str, picture: Picture) -> None:
    for size in ("width", "height"):
        root.attrib.pop(size, None)
    root.set("style", f"max-width: {picture.get_figwidth():g}in")
    root.set("id", name)
    root.set("role", "group")
    root.set("aria-label", picture.alt)


def _label(group: ET.Element, texts: Sequence[str]) -> None:
    points = [element for element in group.iter() if element.tag == f"{{{_SVG}}}use"]
    points = points or [element for element in group.iter() if element.tag == f"{{{_SVG}}}path"][-len(texts) :]
    group.set("tabindex", "0")
    group.set("role", "img")
    group.set("class", "points")
    group.set("aria-label", f"{len(texts)} points, the first: {texts[0]}" if len(texts) > 1 else texts[0])
    for point, text in zip(points, texts, strict=False):
        point.set("data-tip", text)


def _hide_secrets(root: ET.Element) -> None:
    """Remove secrets and control characters from the texts, before they are escaped."""
    for element in root.iter():
        element.text = element.text and shown(element.text)
        for key in {"aria-label", "data-tip"} & element.attrib.keys():
            element.set(key, shown(element.attrib[key]))


def _prefix_ids(root: ET.Element, name: str) -> None:
    """Make the ids of the picture unique on the page."""
    for element in root.iter():
        for key, value in list(element.attrib.items()):
            if key == "id" and element is not root:
                element.set(key, f"{name}-{value}")
            elif key == f"{{{_LINK}}}href" and value.startswith("#"):
                element.set(key, f"#{name}-{value[1:]}")
            elif "url(#" in value:
                element.set(key, value.replace("url(#", f"url(#{name}-"))
