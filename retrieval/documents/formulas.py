"""Formulas in a line of characters: fractions with a slash, powers with "^", indices with "_".

MathML and Word's formulas nest their parts; their characters one after another would change the figures: half
of a is no "a2".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from retrieval.documents.superscripts import group

_INVISIBLE = dict.fromkeys(map(ord, "\u2061\u2062\u2063\u2064"))
_DEEPEST = 100  # levels; no formula that a person wrote nests deeper, and Python goes to 1,000
_WORD = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"


def mathml_text(element: Any, depth: int = 0) -> str:
    """Return a MathML element in a line: "x=(-b±√(b^2-4ac))/(2a)"."""
    tag = _local(element)
    if depth > _DEEPEST:
        return "".join(element.itertext())
    if tag in ("annotation", "annotation-xml", "mphantom", "none", "mprescripts"):
        return ""
    children = [child for child in element if isinstance(child.tag, str)]
    if not children:
        return " " if tag == "mspace" else (element.text or "").strip().translate(_INVISIBLE)
    if tag == "semantics":  # the rest is the same once more, in another language
        return mathml_text(children[0], depth + 1)
    parts = [mathml_text(child, depth + 1) for child in children]
    if tag in ("msup", "mover"):
        return _script(parts, "^" if tag == "msup" else "")
    if tag in ("msub", "munder"):
        return _script(parts, "_")
    if tag in ("msubsup", "munderover") and len(parts) == 3:
        return f"{parts[0]}_{group(parts[1])}^{group(parts[2])}"
    if tag == "mfrac" and len(parts) == 2:
        return f"{group(parts[0])}/{group(parts[1])}"
    if tag == "msqrt":
        return f"√{group(join_parts(parts))}"
    if tag == "mroot" and len(parts) == 2:
        return f"{group(parts[0])}^(1/{group(parts[1])})"
    if tag == "mtable":
        return "; ".join(parts)
    if tag in ("mtr", "mlabeledtr"):
        return ", ".join(parts)
    if tag == "mfenced":
        inner = ",".join(parts)
        return f"{element.get('open', '(')}{inner}{element.get('close', ')')}"
    return join_parts(parts)


def word_formula_text(element: Any, depth: int = 0) -> str:
    """Return a formula of Word (OMML) in a line, as :func:`mathml_text` does."""
    if depth > _DEEPEST:
        return "".join(element.itertext())
    tag = _local(element)
    if tag == "t":
        return (element.text or "").translate(_INVISIBLE)
    if tag.endswith("Pr"):
        return ""

    def part(name: str) -> str:
        return join_parts(
            [word_formula_text(child, depth + 1) for child in element.findall(f"{_WORD}{name}")]
        )

    if tag == "f":
        return f"{group(part('num'))}/{group(part('den'))}"
    if tag == "sSup":
        return f"{part('e')}^{group(part('sup'))}"
    if tag == "sSub":
        return f"{part('e')}_{group(part('sub'))}"
    if tag in ("sSubSup", "sPre"):
        return f"{part('e')}_{group(part('sub'))}^{group(part('sup'))}"
    if tag == "rad":
        degree = part("deg")
        return f"{group(part('e'))}^(1/{group(degree)})" if degree.strip() else f"√{group(part('e'))}"
    if tag == "nary":
        operator = _property(element, "naryPr", "chr", "∫")
        bounds = "".join(
            f"{mark}{group(bound)}" for mark, bound in (("_", part("sub")), ("^", part("sup"))) if bound
        )
        return f"{operator}{bounds} {part('e')}"
    if tag == "d":
        inner = _property(element, "dPr", "sepChr", "|").join(
            word_formula_text(child, depth + 1) for child in element.findall(f"{_WORD}e")
        )
        return f"{_property(element, 'dPr', 'begChr', '(')}{inner}{_property(element, 'dPr', 'endChr', ')')}"
    if tag == "m":
        return "; ".join(word_formula_text(row, depth + 1) for row in element.findall(f"{_WORD}mr"))
    parts = [word_formula_text(child, depth + 1) for child in element if isinstance(child.tag, str)]
    return ", ".join(parts) if tag == "mr" else join_parts(parts)


def join_parts(parts: Sequence[str]) -> str:
    """Join parts of a formula; names of several letters stand apart from what follows.

    >>> join_parts(["sin", "x"]), join_parts(["a", "=", "b"])
    ('sin x', 'a=b')
    """
    text, previous = "", ""
    for part in filter(None, parts):
        meet = previous[-1:].isalnum() and part[:1].isalnum()
        names = previous[-1:].isalpha() and (
            (previous.isalpha() and len(previous) > 1) or (part.isalpha() and len(part) > 1)
        )
        if meet and (names or set(previous) & set("^_/")):
            text += " "
        text += part
        previous = part
    return text


def _script(parts: Sequence[str], mark: str) -> str:
    if len(parts) != 2:
        return join_parts(parts)
    base, script = parts
    return f"{base}{mark}{group(script)}" if mark and script else f"{base}{script}"


def _property(element: Any, properties: str, name: str, otherwise: str) -> str:
    setting = element.find(f"{_WORD}{properties}/{_WORD}{name}")
    value = None if setting is None else setting.get(f"{_WORD}val")
    return otherwise if value is None else str(value)


def _local(element: Any) -> str:
    return str(element.tag).rpartition("}")[2]
