"""Rich Text Format (.rtf), by striprtf: paragraphs and rows of tables."""

from __future__ import annotations

import re

from corag.core.errors import DataError
from retrieval.documents.document import Document, Writer
from retrieval.documents.left_out import COMMENTS, DELETED, EDGES, EMBEDDED, HIDDEN_PARTS, PICTURES

_NO_HEADINGS = (
    "headings, footnotes and lists of an .rtf are not told from paragraphs: save it as .docx for those"
)
# Groups beside the paragraphs, which striprtf drops; it takes bytes of a picture for its text, or fails. And
# hidden (v) and deleted text, which may end within its group.
_GROUP = re.compile(
    r"\\((?:v|deleted)(?!0)|pict|object|footnote|shptxt|dptxbxtext|annotation|(?:head|foot)er[lrf]?)(?![a-z])"
)
_SIGN = re.compile(r"\\bin(\d{1,9}) ?|\\(?:(?:v|deleted)0|plain)(?![a-z0-9])|\\.|[{}]", re.DOTALL)
_ENDS = {"v": ("\\v0", "\\plain"), "deleted": ("\\deleted0", "\\plain")}
_THINGS = {"pict": PICTURES, "object": EMBEDDED}
_TEXTS = {"annotation": COMMENTS, "v": HIDDEN_PARTS, "deleted": DELETED}
_SAME_PICTURE = "\\nonshppict{"  # for programs that cannot show the one before it
_CODE_PAGE = re.compile(r"\\ansicpg\d+")


def read_rtf(data: bytes, title: str) -> Document:
    """Read an .rtf: a block for each paragraph or row of a table, then its footnotes and text boxes.

    Raises :class:`DataError` for what is none.
    """
    if not data.lstrip().startswith(b"{\\rtf"):
        raise DataError("it is damaged, or no .rtf: open it in a word processor and save it again.")
    # Its bytes are ASCII; of others the file says by itself what they are.
    rtf = data.decode("latin-1")
    body, groups = _split(rtf)
    writer = Writer(title)
    _write(writer, body)
    code_page = _CODE_PAGE.search(rtf)
    start = f"{{\\rtf1{code_page[0] if code_page else ''} "
    for word, content in groups:
        if word in _THINGS:
            writer.pass_over(_THINGS[word])
        elif word in ("footnote", "shptxt", "dptxbxtext"):
            _write(writer, f"{start}{_split(content)[0]}}}")
        else:
            writer.leave_out(_TEXTS.get(word, EDGES), _to_text(f"{start}{_split(content)[0]}}}"))
    writer.notes.append(_NO_HEADINGS)
    return writer.document()


def _write(writer: Writer, rtf: str) -> None:
    for line in _to_text(rtf).split("\n"):
        if line.rstrip().endswith("|"):
            cells = [cell for each in line.split("|") if (cell := each.strip())]
            writer.block(" | ".join(cells), whole=True)
        else:
            writer.block(line)


def _to_text(rtf: str) -> str:
    from striprtf.striprtf import rtf_to_text

    # Characters beyond 65,535 are written in halves.
    text: str = rtf_to_text(rtf, errors="replace")
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _split(rtf: str) -> tuple[str, list[tuple[str, str]]]:
    """Return a text without the groups beside its paragraphs; and these, by their word and content."""
    parts, end, groups = list[str](), 0, list[tuple[str, str]]()
    for opening in _GROUP.finditer(rtf):
        if opening.start() < end:
            continue
        if not (closing := _find_end(rtf, opening)):
            break  # it goes to the end of a torn file
        parts.append(rtf[end : opening.start()])
        end = closing
        if not parts[-1].endswith(_SAME_PICTURE):
            groups.append((opening[1], rtf[opening.end() : closing]))
    return "".join([*parts, rtf[end:]]), groups


def _find_end(rtf: str, opening: re.Match[str]) -> int:
    """Return where the group ends that a word is in, or the text that it hides; 0 if it never does."""
    depth, position = 1, opening.end()
    while sign := _SIGN.search(rtf, position):
        position = sign.end() + int(sign[1] or 0)  # bytes of a picture, braces among them
        depth += (sign[0] == "{") - (sign[0] == "}")
        if not depth or (depth == 1 and sign[0] in _ENDS.get(opening[1], ())):
            return sign.start()
    return 0
