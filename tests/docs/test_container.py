"""The image and the chat page before it: what is copied, installed, started and asked fits the program."""

from __future__ import annotations

import fnmatch
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.utils import canonicalize_name

from corag.service.http.gate import allowed_hosts
from corag.service.options import AnswersOptions, read_presets
from tests.cli.test_install import pinned
from tests.docs.test_deployment import FILES, options_of
from tests.docs.test_pages import ROOT

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
TEXT = (ROOT / "Dockerfile").read_text().replace("\\\n", "")
STEPS = [tuple(line.split(" ", 1)) for line in TEXT.splitlines() if line and not line.startswith("#")]


def steps(name: str) -> list[str]:
    """What the Dockerfile has of an instruction, in order."""
    return [rest.strip() for instruction, rest in STEPS if instruction == name]


def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str) -> AnswersOptions:
    """The options of the service that the image starts by itself, with a configuration file."""
    monkeypatch.chdir(tmp_path)
    Path("service.yaml").write_text(config)
    words = [*json.loads(steps("ENTRYPOINT")[0]), *json.loads(steps("CMD")[0])]
    return options_of([word.replace("/etc/corag/", "") for word in words])


def test_the_image_serves_on_the_port_that_it_names_to_a_user_who_is_not_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = started(tmp_path, monkeypatch, FILES["service.yaml"])
    assert (options.host, options.port) == ("0.0.0.0", AnswersOptions.port)
    assert steps("EXPOSE") == [str(options.port)]
    check = json.loads(steps("HEALTHCHECK")[0].partition(" CMD ")[2])
    assert f"127.0.0.1:{options.port}/readyz" in check[-1]
    compile(check[-1], "healthcheck", "exec")
    assert steps("USER") == ["corag"] and "useradd --uid 10001" in TEXT
    assert json.loads(steps("VOLUME")[0]) == ["/cache", "/data"]


def test_the_context_has_what_is_copied_and_no_more() -> None:
    kept = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = {
        name.replace("${KIND}", kind)
        for step in steps("COPY")
        for name in step.split()[:-1]
        for kind in ("cpu", "gpu")
    }
    assert all((ROOT / name).exists() for name in copied)
    assert all(any(fnmatch.fnmatch(name, pattern) for pattern in kept) for name in copied)
    assert all(any(fnmatch.fnmatch(name, pattern) for name in copied) for pattern in kept)


def test_every_file_that_is_installed_has_a_hash_of_the_version_that_is_locked() -> None:
    """All but torch and its kin, of which machines have one build or another."""
    hashes = re.sub(r"\\\n", "", (ROOT / "requirements/hashes.txt").read_text())
    entries = [line.split() for line in hashes.splitlines() if not line.startswith("#")]
    assert all(len(each) > 1 and each[1].startswith("--hash=sha256:") for each in entries)
    versions = dict(each[0].split("==") for each in entries)
    for lock, python in (("gpu", "3.12"), ("cpu", "3.11")):
        locked = pinned(ROOT / f"requirements/{lock}.lock", python)
        differing = {
            name: version
            for name, version in versions.items()
            if locked.get(canonicalize_name(name), version) != version
        }
        assert not differing, f"make requirements/hashes.txt anew, as its head says: {differing}"
    assert {"torch", "torchvision"}.isdisjoint(versions) and {
        "transformers",
        "vllm",
        "mcp",
    } <= versions.keys()


def test_the_chat_page_may_ask_the_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    services = COMPOSE["services"]
    options = started(tmp_path, monkeypatch, COMPOSE["configs"]["service"]["content"])
    host, port = re.findall(r"//(\w+):(\d+)/v1$", services["chat"]["environment"]["OPENAI_API_BASE_URL"])[0]
    assert host in services and int(port) == options.port
    assert {host, "127.0.0.1"} <= allowed_hosts(options.host, options.hosts), (
        "browsers and the page, no other"
    )
    assert list(read_presets(options)) == ["one-step", "corag"] and options.sources
    command = services["index"]["command"]
    assert command[0] == "index" and options.retriever.index == [command[command.index("--out") + 1]]
    assert all(
        each.startswith("127.0.0.1:") for service in services.values() for each in service.get("ports", [])
    )
    assert float(services["answers"]["stop_grace_period"].rstrip("s")) > options.limits.shutdown_s


def test_images_of_others_are_those_of_a_release() -> None:
    images = {each["image"] for each in COMPOSE["services"].values() if "image" in each}
    others = [image for image in images if not image.startswith("corag:")]
    assert others and all(re.search(r":v\d+\.\d+\.\d+$", image) for image in others)


def test_volumes_are_where_the_image_writes() -> None:
    services = COMPOSE["services"]
    named = {each.split(":")[0] for service in services.values() for each in service["volumes"]}
    assert named - {"${DOCUMENTS"} == COMPOSE["volumes"].keys()
    assert {"data:/data", "cache:/cache"} <= set(services["answers"]["volumes"])
    assert services["index"]["volumes"][0].endswith(":/documents:ro")
    gpu = yaml.safe_load(FILES["compose.gpu.yaml"])["services"]
    assert gpu.keys() <= services.keys()
    arguments = {name: str(value) for each in gpu.values() for name, value in each["build"]["args"].items()}
    assert f"--build-arg BASE={arguments['BASE']}" in (ROOT / "Dockerfile").read_text()
