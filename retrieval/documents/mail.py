"""E-mails (.eml) and web pages that are saved in the same form (.mht): who wrote what to whom, and when."""

from __future__ import annotations

from dataclasses import replace
from email import message_from_bytes
from email.message import EmailMessage, MIMEPart
from email.policy import default

from corag.core.words import count_words
from corag.data.text import DecodedText, decode
from retrieval.documents.document import Block, Document, stated_title
from retrieval.documents.markup import read_markup
from retrieval.documents.plain import read_text

_HEADERS = ("From", "To", "Cc", "Date")
_FULLER = 2  # times as many words in a page as in its plain text: that only says that there is a page


def read_mail(data: bytes, title: str) -> Document:
    """Read an e-mail: a block with sender, receivers and date, then its text; the subject is the title.

    Where a mail has its text twice, plain and as a page, the plain one is read unless the page says far more.
    Attachments are not read but named in a note.
    """
    message = message_from_bytes(data, policy=default)
    title = stated_title(_header(message, "Subject"), title)
    headers = [f"{name}: {value}" for name in _HEADERS if (value := _header(message, name))]
    above = (Block("\n".join(headers), whole=True),) if headers else ()
    body = _read_body(message, title)
    attachments = [part.get_filename() or part.get_content_type() for part in message.iter_attachments()]
    pictures = ("image/", "text/css", "font/")  # of the page, as saved with it
    names = [name for name in attachments if not name.startswith(pictures)]
    note = f"attachments are not read: {', '.join(names)}: save them beside it" if names else ""
    notes = (*body.notes, *filter(None, [note]))
    return replace(body, title=title, blocks=(*above, *body.blocks), notes=notes)


def _header(message: EmailMessage, name: str) -> str:
    """Return a header's text; as it stands where Python's parser of addresses fails, as at "From: <"."""
    try:
        return str(message[name] or "")
    except (IndexError, ValueError, AttributeError):
        raw = next(value for each, value in message.raw_items() if each.lower() == name.lower())
        return " ".join(str(raw).split())


def _read_body(message: EmailMessage, title: str) -> Document:
    plain, page = message.get_body(("plain",)), message.get_body(("html",))
    text = _decode(plain) if plain is not None else None
    of_text = read_text(text.text.encode(), title) if text and text.text.strip() else None
    if of_text and text and text.note:
        of_text = replace(of_text, notes=(text.note, *of_text.notes))
    if page is None:
        return of_text or Document(title, ())
    markup = _decode(page)
    of_page = read_markup(
        markup.text, title, [markup.note] if markup.note else [], narrow=True, is_title_stated=True
    )
    is_fuller = of_text is None or _count(of_page) > _FULLER * _count(of_text)
    return of_page if is_fuller or of_text is None else of_text


def _decode(part: MIMEPart) -> DecodedText:
    content = part.get_payload(decode=True)
    return decode(content if isinstance(content, bytes) else b"", part.get_content_charset() or "")


def _count(document: Document) -> int:
    return sum(count_words(block.text) for block in document.blocks)
