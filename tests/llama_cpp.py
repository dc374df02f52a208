"""A real llama.cpp server with the default model: its weights as they are elsewhere, in a GGUF file.

python -m tests.llama_cpp FILE.gguf PORT       writes the file first if it is not there
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

SLOTS, SLOT_WINDOW = 2, 2048


def write_gguf(target: Path) -> Path:
    """Write the default model in float32: the package's file, each weight unpacked and rounded to bfloat16.

    That is what the other engines read, so log-probabilities are comparable.
    """
    import numpy as np
    from gguf import GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType
    from gguf.quants import dequantize

    from corag.generation.models import DEFAULT_FILES

    (installed,) = DEFAULT_FILES.find_installed()
    source = GGUFReader(installed)
    writer = GGUFWriter(target, source.fields["general.architecture"].contents())
    for field in source.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            kind = field.types[0]
            inner = field.types[-1] if kind == GGUFValueType.ARRAY else None
            value = LlamaFileType.ALL_F32 if field.name == "general.file_type" else field.contents()
            writer.add_key_value(field.name, value, kind, sub_type=inner)
    for tensor in source.tensors:
        bits = dequantize(tensor.data, tensor.tensor_type).astype(np.float32).view(np.uint32)
        nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000  # ties to even, as torch rounds
        writer.add_tensor(tensor.name, nearest.astype(np.uint32).view(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def serve(file: str, port: int) -> None:
    """Serve until the process is ended."""
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = file
    settings.n_ctx, settings.n_parallel = SLOTS * SLOT_WINDOW, SLOTS
    settings.kv_unified = False  # each slot has its own part of the context
    # As exact as the weights: its flash attention works in 16 bits, which costs .006 of a log-probability.
    settings.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    settings.cache_type_k = settings.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    settings.cpuparams.n_threads = 2
    settings.hostnames, settings.port = ["127.0.0.1"], port
    server = xllamacpp.Server(settings)
    while server:
        time.sleep(60)


if __name__ == "__main__":
    if not Path(sys.argv[1]).exists():
        write_gguf(Path(sys.argv[1]))
    serve(sys.argv[1], int(sys.argv[2]))
