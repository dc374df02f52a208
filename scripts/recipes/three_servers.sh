#!/usr/bin/env bash
# One experiment over every kind of engine, on CPU: CoRAG with best of 4 and IRCoT on 20 questions of the
# embedded world, asked of vLLM in this process, of a vLLM server (as vLLM's own, then through OpenAI's
# protocol) and of llama.cpp's server, all with the default model in float32. At last one table of all; what
# each server offers stands on standard error. Run it again: it goes on where it was.
#   bash scripts/recipes/three_servers.sh                    options go to each 'corag run'
#   ENGINES="vllm llama" bash scripts/recipes/three_servers.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bash scripts/install.sh
export PATH="$PWD/.venv/bin:$PATH" VLLM_LOGGING_LEVEL=ERROR VLLM_NO_USAGE_STATS=1
out=results/servers
mkdir -p "$out"
corag world "$out/world" --passages 1000 >&2
corag index "$out/world/corpus.jsonl" --out "$out/bm25" >&2

server='' serving=''
stop() { if [ -n "$server" ]; then kill "$server" && wait "$server" || true; fi; }
trap stop EXIT
start() { # NAME COMMAND...: starts a server at a free port, unless it runs, and waits until it is healthy
    [ "$serving" != "$1" ] || return 0
    stop
    serving=$1
    shift
    local port
    port=$(python -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])')
    url=http://127.0.0.1:$port
    "${@/PORT/$port}" >"$out/$serving.log" 2>&1 &
    server=$!
    until python -c "import httpx; httpx.get('$url/health').raise_for_status()" 2>/dev/null; do
        kill -0 "$server" 2>/dev/null || { tail -n 15 "$out/$serving.log" >&2 && exit 1; }
        sleep 2
    done
}
run() { # NAME OPTION...
    local name=$1
    shift
    corag run --questions "$out/world/test.jsonl" --limit 20 --retriever.index "$out/bm25" \
        --out "$out/$name" --method corag,ircot --corag.strategy best_of_n --corag.chains 4 --corag.max_hops 2 \
        --corag.passages_per_hop 2 --corag.context_passages 4 --corag.max_sub_query_tokens 24 \
        --corag.max_sub_answer_tokens 16 --corag.max_answer_tokens 16 --ircot.max_steps 2 \
        --ircot.k_per_step 3 --ircot.max_thought_tokens 40 --ircot.max_answer_tokens 24 \
        --model.max_context 2048 "$@"
}

read -ra engines <<<"${ENGINES:-vllm served openai llama}"
runs=()
for engine in "${engines[@]}"; do
    case $engine in
    vllm) run vllm --model.dtype float32 "$@" ;;
    served | openai)
        model=$(python -c 'from corag.generation.models import model_folder; print(model_folder("default"))')
        start vllm-server python -m vllm.entrypoints.openai.api_server --port PORT --model "$model" \
            --scheduling-policy priority --enable-prompt-tokens-details \
            --logits-processors corag.generation.forced:ForcedDecoding --dtype float32 --max-model-len 2048 \
            --block-size 32 --kv-cache-memory-bytes 1073741824 --enforce-eager --no-enable-chunked-prefill
        how=(--model.backend server)
        [ "$engine" = served ] || how=(--model.backend openai --model.tokenizer default)
        run "$engine" --model.urls "$url" "${how[@]}" "$@"
        ;;
    llama)
        start llama-server python -m tests.llama_cpp "$out/default.gguf" PORT
        run llama --model.urls "$url" --model.backend openai --corag.rank_by vote "$@"  # it cannot score
        ;;
    esac
    runs+=("$out/$engine/corag" "$out/$engine/ircot")
done
corag table "${runs[@]}"
