"""The methods by name, with their options: the one list that commands, tables and documents go by."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass
from functools import partial
from importlib import import_module
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any, Self, cast

from corag.core.errors import ConfigError, nearest
from corag.core.method import Method, MethodConfig
from corag.core.options.classes import Options
from corag.core.runner import BoundMethod
from corag.core.runs.manifest import CHAINS, VERDICTS
from eval.experiment import extensions  # noqa: F401 - a method's own ways to search are known where it is
from eval.experiment.own_methods import PAGE, is_own, load_method, short_name

PACKAGES = ("corag.baselines", "corag.chains", "ircot")
"""Where the shipped methods are: in every module of these that has a ``METHOD``."""


def discover_methods() -> Iterator[Method]:
    """Import the packages of methods and return what their modules declare, in no order."""
    for package in PACKAGES:
        for module in walk_packages(import_module(package).__path__, f"{package}."):
            content = import_module(module.name)
            if hasattr(content, "METHOD"):
                yield content.METHOD


METHODS: Mapping[str, Method] = {
    method.config.SECTION: method
    for method in sorted(discover_methods(), key=lambda each: (each.published, each.config.SECTION))
}
"""The shipped methods by name, in the order of their publication, in which lists and help show them."""


@dataclass(frozen=True)
class _MethodOptions(Options):
    """Options of every method, each in a section of its own."""

    @classmethod
    def extend(cls, stated_values: Mapping[str, Any]) -> type[Self]:
        """Return this class with a section more for each method that was named and is the user's own.

        Raises :class:`ConfigError` if one cannot be loaded, or its name is taken.
        """
        options: type[Any] = cls
        named = stated_values.get("method") or ()
        for name in named.strip("[]").split(",") if isinstance(named, str) else named:
            if is_own(plain_name := str(name).strip(" '\"")):
                options = with_method(options, short_name(plain_name), load_method(plain_name))
        return options

    def find_method(self, name: str) -> Method:
        """Return what there is to know of a method."""
        return methods_of(type(self))[name]

    def of(self, name: str) -> MethodConfig:
        """Return the options of one method."""
        config: Any = getattr(self, name)
        assert isinstance(config, MethodConfig)
        return config


def methods_of(options: type[_MethodOptions]) -> Mapping[str, Method]:
    """Return the methods that a class of options has sections for, by name."""
    return {
        section.name: section.metadata["method"]
        for section in fields(options)
        if "method" in section.metadata
    }


def method_section(method: Method) -> Any:
    """Return the field of a class of options that holds a method's."""
    return field(default_factory=method.config, metadata={"method": method})


def with_method(options: type[_MethodOptions], name: str, method: Method) -> type[_MethodOptions]:
    """Return a class of options with a section for one more method, or as it is if it has it.

    Raises :class:`ConfigError` if the name is taken by something else.
    """
    methods = methods_of(options)
    if methods.get(name) == method:
        return options
    if (
        name in methods
        or name in (CHAINS, VERDICTS)
        or hasattr(options, name)
        or name in {section.name for section in fields(options)}
    ):
        raise ConfigError(
            f"your method '{name}' has the name of another "
            f"{'method' if name in methods else 'option or kind of run'}: rename its function, for "
            "its options are called after it."
        )
    # Called as the class that it extends, which is what --help and messages show.
    section = (name, method.config, method_section(method))
    named_alike = {"__doc__": options.__doc__, "__module__": options.__module__}
    extension = make_dataclass(
        options.__name__, [section], bases=(options,), frozen=True, namespace=named_alike
    )
    return cast("type[_MethodOptions]", extension)


if TYPE_CHECKING:
    # A checker of types cannot run the discovery. These are the sections that our own code names.
    from corag.baselines.one_step import OneStepConfig
    from corag.chains.config import CoRAGConfig

    @dataclass(frozen=True)
    class MethodOptions(_MethodOptions):
        """Options of every method, each in a section of its own."""

        one_step: OneStepConfig = field(default_factory=OneStepConfig)
        corag: CoRAGConfig = field(default_factory=CoRAGConfig)

else:
    MethodOptions = make_dataclass(
        "MethodOptions",
        [(name, method.config, method_section(method)) for name, method in METHODS.items()],
        bases=(_MethodOptions,),
        frozen=True,
        namespace={"__doc__": _MethodOptions.__doc__, "__module__": __name__},
    )


def canonical_name(name: str, methods: Mapping[str, Method] = METHODS) -> str:
    """Return what a method is called here; an unknown name comes back as it is.

    >>> canonical_name("basic-rag"), canonical_name("self-ask"), canonical_name("irct")
    ('one_step', 'self_ask', 'irct')
    """
    plain = name.replace("-", "_")
    others = {other: known_name for known_name, method in methods.items() for other in method.also_called}
    return next(
        (known_name for known_name in (name, plain, others.get(plain, "")) if known_name in methods), name
    )


def check_names(names: Sequence[str], methods: Mapping[str, Method] = METHODS) -> None:
    """Raise :class:`ConfigError` for a name that is not a method's, or an empty list."""
    if not names:
        raise ConfigError(f"no method was named: give method=one or more of {', '.join(methods)}.")
    for name in names:
        if name not in methods:
            raise ConfigError(
                f"there is no method '{name}': {nearest(name, methods)} "
                f"(A method of your own: FILE.py:FUNCTION, see {PAGE}.)"
            )


def bind(name: str, options: _MethodOptions) -> BoundMethod:
    """Return the method as a function of question and tools."""
    return partial(options.find_method(name).function, config=options.of(name))
