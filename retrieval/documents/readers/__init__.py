"""One file per type of document, each with a ``READER``; a new file here is a type that can be indexed.

The files are small and import a library only when a file of their type is read.
"""

from importlib import import_module
from pkgutil import iter_modules

from retrieval.documents.reader import DocumentReader

READERS: dict[str, DocumentReader] = {
    ending: reader
    for reader in (import_module(f"{__name__}.{module.name}").READER for module in iter_modules(__path__))
    for ending in reader.endings
}
"""By the ending of a file's name, in small letters."""
