"""Share an adapter, a model, sampled chains or a run on the Hugging Face hub, with a card from its records.

    corag push adapters/world OWNER/world-adapter --results runs/test/* --license apache-2.0 --dry_run
    corag push models/world OWNER/world-model
    corag push chains/world OWNER/world-chains
    corag push runs/dev/corag OWNER/corag-on-dev --private

Others use what was shared by its name: --model.adapter hub:OWNER/NAME, --model.name OWNER/NAME, corag rows
hub:OWNER/NAME, corag table hub:OWNER/NAME, corag run --config hub:OWNER/NAME. The token is the hub's own (hf
auth login, or HF_TOKEN).
"""

from __future__ import annotations

import sys
from pathlib import Path

from corag.cli.result import CommandResult
from corag.core.web.hub_files import file_size
from training.sharing import PushConfig, prepare_upload, push


def main(config: PushConfig) -> CommandResult:
    """Upload in one commit, or show what would be uploaded."""
    upload = prepare_upload(config)
    sizes = upload.sizes()
    for note in upload.notes:
        print(f"corag: {note}", file=sys.stderr)
    if config.dry_run:
        print(upload.card)
        for name, size in sizes.items():
            source = upload.files[name]
            origin = source if isinstance(source, Path) else "written for it"
            print(f"{name}: {file_size(size)}, {origin}")
        print(f"Nothing was uploaded. Without 'dry_run': the {upload.repository} {config.name}.")
        address = ""
    else:
        address = push(config, upload, lambda line: print(line, file=sys.stderr))
        print(f"{address}: {len(sizes)} files, {file_size(sum(sizes.values()))}")
    return CommandResult(0, [{"kind": upload.kind, "address": address, "files": sizes}])
