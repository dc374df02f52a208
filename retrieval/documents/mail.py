"""E-mails (.eml) and web pages that are saved in the same form (.mht): sender, recipients, date and text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from email import message_from_bytes
from email.message import EmailMessage, MIMEPart
from email.policy import default

from corag.core.language.words import count_words
from corag.data.text import decode
from retrieval.documents.document import Block, Document, join_documents, stated_title
from retrieval.documents.left_out import ATTACHMENTS
from retrieval.documents.markup import read_markup
from retrieval.documents.plain import read_text

_HEADERS = ("From", "To", "Cc", "Date")
_FULLER = 2  # times as many words in a page as in its plain text: that only says that there is a page
_OF_A_PAGE = ("image/", "text/css", "font/", "application/javascript")


def read_mail(data: bytes, title: str) -> Document:
    """Read an e-mail: a block with sender, receivers and date, then its texts; the subject is the title.

    Where a text is there twice, plain and as a page, the plain one is read unless the page says far more. A
    mail within the mail is read, too. Attachments are not read but named in a note.
    """
    message = message_from_bytes(data, policy=default)
    title = stated_title(_header(message, "Subject"), title)
    unread: list[str] = []
    texts = [_write_headers(message, _HEADERS), *_read_part(message, title, unread)]
    mail = join_documents(title, texts)
    if not unread:
        return mail
    note = f"attachments are not read: {', '.join(unread)}: save them beside it"
    return replace(mail, notes=(*mail.notes, note), left_out={**mail.left_out, ATTACHMENTS: len(unread)})


def _write_headers(message: EmailMessage | MIMEPart, names: Sequence[str]) -> Document:
    headers = [f"{name}: {value}" for name in names if (value := _header(message, name))]
    return Document("", (Block("\n".join(headers), whole=True),) if headers else ())


def _header(message: EmailMessage | MIMEPart, name: str) -> str:
    """Return a header's text; as it stands where Python's parser of addresses fails, as at "From: <"."""
    try:
        return str(message[name] or "")
    except (IndexError, ValueError, AttributeError):
        raw = next(value for each, value in message.raw_items() if each.lower() == name.lower())
        return " ".join(str(raw).split())


def _read_part(part: MIMEPart, title: str, unread: list[str]) -> Iterator[Document]:
    """Yield the texts of a mail's part in their order; what is not read goes to ``unread`` by its name."""
    kind = part.get_content_type()
    parts: list[MIMEPart] = [*part.iter_parts()] if part.is_multipart() else []
    if kind == "message/rfc822" and part["content-transfer-encoding"] != "base64":
        # Forwarded, be it as an attachment.
        for message in parts:
            yield _write_headers(message, ("Subject", *_HEADERS))
            yield from _read_part(message, title, unread)
    elif part.get_content_disposition() == "attachment":
        unread.append(part.get_filename() or kind)
    elif kind == "multipart/alternative":
        parts.sort(key=lambda each: each.get_content_type() != "text/plain")
        yield from _choose([list(_read_part(each, title, unread)) for each in parts])
    elif kind == "multipart/related" and parts:
        start = part.get_param("start")
        root = next((each for each in parts if each["content-id"] == start), parts[0])
        yield from _read_part(root, title, unread)
        names = [(each.get_content_type(), each.get_filename()) for each in parts if each is not root]
        unread += [name or other for other, name in names if not other.startswith(_OF_A_PAGE)]
    elif parts and kind.startswith("multipart/"):
        for each in parts:
            yield from _read_part(each, title, unread)
    elif kind in ("text/plain", "text/html") or (not parts and kind.startswith("multipart/")):
        yield _read_text(part, title)
    else:
        unread.append(part.get_filename() or kind)


def _choose(texts: Sequence[Sequence[Document]]) -> Sequence[Document]:
    """Return the first of several forms of a text that says something, or one that says far more."""
    chosen: Sequence[Document] = ()
    for text in texts:
        if _count(text) > _FULLER * _count(chosen):
            chosen = text
    return chosen


def _read_text(part: MIMEPart, title: str) -> Document:
    content = part.get_payload(decode=True)
    decoded = decode(content if isinstance(content, bytes) else b"", part.get_content_charset() or "")
    notes = [decoded.note] if decoded.note else []
    if part.get_content_type() == "text/html":
        document = read_markup(decoded.text, title, notes, narrow=True, is_title_stated=True)
    else:
        document = read_text(decoded.text.encode(), title)
        document = replace(document, notes=(*notes, *document.notes))
    # Its first line may stand like a heading, but the mail's subject is its title.
    first = () if document.title == title else (Block(document.title),)
    return replace(document, blocks=(*first, *document.blocks))


def _count(documents: Sequence[Document]) -> int:
    return sum(count_words(block.text) for document in documents for block in document.blocks)
