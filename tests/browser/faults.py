"""What axe-core finds wrong in a page; a contrast that it leaves open is computed from the pixels behind the text."""

import io
import re
from typing import Any

import numpy as np
from axe_playwright_python.sync_playwright import Axe
from numpy.typing import NDArray
from PIL import Image

LEAST_SHARE = 0.02
"""A colour behind a text counts if it fills at least this share of the text's boxes."""
_NO_TEXT = "* { -webkit-text-fill-color: transparent !important; text-decoration-color: transparent !important }"
_NO_TEXT_IN_SVG = "svg text, svg tspan { fill: transparent !important; stroke: none !important }"
_TEXT = """element => {
    element.scrollIntoView({behavior: "instant", block: "center", inline: "nearest"});
    const style = getComputedStyle(element), range = document.createRange(), seen = [0, 0, innerWidth, innerHeight];
    let opacity = 1;
    for (let at = element; at; at = at.parentElement) {
        const its = getComputedStyle(at), box = at.getBoundingClientRect();
        opacity *= its.opacity;
        if (its.overflowX === "visible" || at instanceof SVGElement || at === document.documentElement) continue;
        [box.left, box.top].forEach((edge, side) => seen[side] = Math.max(seen[side], edge));
        [box.right, box.bottom].forEach((edge, side) => seen[2 + side] = Math.min(seen[2 + side], edge));
    }
    const boxes = [...element.childNodes].filter(each => each.nodeType === Node.TEXT_NODE).flatMap(each => {
        range.selectNode(each);
        return [...range.getClientRects()].map(box => [
            Math.max(box.left, seen[0]), Math.max(box.top, seen[1]),
            Math.min(box.right, seen[2]), Math.min(box.bottom, seen[3])]);
    });
    return {color: element instanceof SVGElement ? style.fill : style.color, opacity, boxes};
}"""
"""Its colour, and the boxes of its own text that are seen: left, top, right, bottom."""


def faults(page: Any) -> list[tuple[str, str]]:
    """The rules that elements break, and these; of a contrast that axe-core leaves open, the one that was computed."""
    found = Axe().run(page).response
    broken = [(rule["id"], node["html"]) for rule in found["violations"] for node in rule["nodes"]]
    undecided = [(rule["id"], node) for rule in found["incomplete"] for node in rule["nodes"]]
    broken += [(f"{rule}, not decided", node["html"]) for rule, node in undecided if rule != "color-contrast"]
    for _, node in (each for each in undecided if each[0] == "color-contrast"):
        needed = float(node["any"][0]["data"]["expectedContrastRatio"].removesuffix(":1"))
        contrast = least_contrast(page, node["target"][0])
        if contrast < needed:
            broken.append((f"color-contrast {contrast:.2f} of {needed}", node["html"]))
    return broken


def least_contrast(page: Any, selector: str) -> float:
    """Of the element's own text with what is behind it (WCAG 2.2, contrast ratio).

    Raises:
        ValueError: none of its text can be seen, or its colour is no RGB value
    """
    text = page.eval_on_selector(selector, _TEXT)
    hidden = page.add_style_tag(content=f"{_NO_TEXT} {_NO_TEXT_IN_SVG} * {{ transition: none !important }}")
    image = np.asarray(Image.open(io.BytesIO(page.screenshot())).convert("RGB"))
    hidden.evaluate("element => element.remove()")
    corners = [[round(edge) for edge in box] for box in text["boxes"]]
    behind = [image[top:bottom, left:right].reshape(-1, 3) for left, top, right, bottom in corners if right > left]
    pixels = np.concatenate([*behind, np.empty((0, 3), dtype=image.dtype)])
    if not len(pixels):
        raise ValueError(f"no text of {selector} can be seen")
    colours, counts = np.unique(pixels, axis=0, return_counts=True)
    colours = colours[counts >= min(LEAST_SHARE * len(pixels), counts.max())] / 255.0
    given = re.fullmatch(r"rgba?\((\d+), (\d+), (\d+)(?:, ([\d.]+))?\)", text["color"])
    if given is None:
        raise ValueError(f"the text of {selector} has the colour {text['color']!r}")
    own = np.array([float(given[place]) / 255.0 for place in (1, 2, 3)])
    opaque = float(given[4] or 1.0) * text["opacity"]
    light = np.sort([_luminance(opaque * own + (1.0 - opaque) * colours), _luminance(colours)], axis=0) + 0.05
    return float((light[1] / light[0]).min())


def _luminance(colours: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n,) of colours (n, 3) in sRGB, each part in [0, 1]."""
    linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
    return np.asarray(linear @ np.array([0.2126, 0.7152, 0.0722]))
