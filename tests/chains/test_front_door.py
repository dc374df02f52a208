"""``from corag import ...``: every public name comes, and only then is anything loaded."""

import inspect
import subprocess
import sys
from importlib import import_module

import pytest

import corag
from eval.experiment.registry import METHODS
from tests.messages import raises_message

HEAVY = ("torch", "transformers", "vllm", "faiss", "jpype", "jnius", "numpy", "pydantic", "matplotlib")


@pytest.mark.parametrize("name", corag.__all__)
def test_every_name_is_handed_out_and_is_what_it_says(name):
    value = getattr(corag, name)
    assert not inspect.ismodule(value), "a submodule of this name would hide it"
    assert getattr(value, "__name__", name) == name


def test_the_method_has_the_name_of_its_package():
    code = (
        "import corag.chains.method, corag.chains.tree; from corag import corag; "
        "print(corag.__module__, corag.__name__)"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed == "corag.chains.method corag\n"


def test_the_configurations_know_datasets_formats_and_methods_presets():
    code = (
        "from corag import IndexConfig, RetrieverConfig; "
        "print(IndexConfig([], '', format='kilt').format, RetrieverConfig(bm25='ircot').bm25)"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed == "kilt ircot\n"


def test_all_names_are_listed_and_others_are_refused():
    assert dir(corag) == corag.__all__, "what is offered is all that there is to see"
    assert corag.__version__[0].isdigit()
    with raises_message(AttributeError):
        _ = corag.nothing
    with pytest.raises(ImportError):
        exec("from corag import nothing")


def test_every_shipped_method_and_its_options_are_at_the_front_door():
    for name, method in METHODS.items():
        assert getattr(corag, name) is method.function
        assert getattr(corag, method.config.__name__) is method.config


EXPORTING = ("ircot", "retrieval", "training")


@pytest.mark.parametrize(
    "package",
    [
        "corag",
        "corag.generation",
        "eval.experiment",
        *EXPORTING,
    ],
)
def test_importing_a_package_loads_nothing_heavy(package):
    code = f"import sys, {package}; print(*sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = {name.partition(".")[0] for name in printed.split()}
    assert not loaded & set(HEAVY)
    if package == "corag":
        others = {"ircot", "retrieval", "eval", "training"}
        assert not loaded & others


@pytest.mark.parametrize("package", [*EXPORTING, "eval.api"])
def test_a_package_exports_what_it_says(package):
    module = import_module(package)
    assert module.__all__
    for name in module.__all__:
        assert not inspect.ismodule(getattr(module, name)), "a submodule of this name would hide it"
