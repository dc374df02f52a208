# corag in a container: any of its commands, by itself the service of answers (docs/guides/deployment.md).
#   docker build -t corag:cpu .                         models in the process, or in a server elsewhere
#   docker build -t corag:gpu --build-arg KIND=gpu --build-arg BASE=nvidia/cuda:13.0.1-devel-ubuntu24.04 .
#                                                       vLLM on NVIDIA GPUs, driver 580 or newer
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE}
ARG KIND=cpu
# Kernels for GPUs are compiled where they run (Triton, FlashInfer).
RUN if [ "$KIND" = gpu ]; then \
        apt-get update && apt-get install --yes --no-install-recommends python3-venv python3-dev gcc g++ \
        && rm -rf /var/lib/apt/lists/*; \
    fi
# Extras of pyproject.toml, separated by spaces; "" with a model in a server is the smallest.
ARG EXTRAS="docs dense transformers"
ARG VERSION=0
LABEL org.opencontainers.image.title="corag" \
      org.opencontainers.image.description="Question answering with retrieval in many steps and local models" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
ENV PATH=/opt/corag/bin:$PATH CORAG_CACHE=/opt/corag/files HF_HOME=/cache/huggingface PYTHONUNBUFFERED=1
# Versions are those of the lock file. uv refuses a file whose hash is another; torch comes from PyTorch's own
# index of builds for CPUs; TORCH_BACKEND="" takes it from where everything else is.
ARG TORCH_BACKEND=cpu
COPY pyproject.toml requirements/${KIND}.lock requirements/hashes.txt /src/
RUN python3 -m venv /opt/corag && python3 -m venv /opt/uv \
    && /opt/uv/bin/pip install --no-cache-dir uv==0.13.9 \
    && if [ "$KIND" = gpu ]; then EXTRAS=gpu TORCH_BACKEND=; fi \
    && VIRTUAL_ENV=/opt/corag /opt/uv/bin/uv pip install --no-cache --compile-bytecode \
        ${TORCH_BACKEND:+--torch-backend $TORCH_BACKEND} $(for each in $EXTRAS; do echo "--extra $each"; done) \
        --constraint /src/${KIND}.lock --constraint /src/hashes.txt -r /src/pyproject.toml \
    && rm -r /opt/uv
COPY README.md LICENSE /src/
COPY corag /src/corag
COPY ircot /src/ircot
COPY retrieval /src/retrieval
COPY training /src/training
COPY eval /src/eval
RUN pip install --no-cache-dir --no-deps /src && rm -r /src \
    && useradd --uid 10001 --home-dir /cache --create-home corag && install -d -o corag /data \
    && corag doctor --fetch && chown -R corag /opt/corag/files
USER corag
WORKDIR /data
# Models that are downloaded and kernels that are compiled; indexes and what was answered.
VOLUME ["/cache", "/data"]
EXPOSE 8110
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=15m CMD ["python", "-c", "import urllib.request as web; web.urlopen('http://127.0.0.1:8110/readyz')"]
ENTRYPOINT ["corag"]
CMD ["serve", "answers", "--config", "/etc/corag/service.yaml", "--host", "0.0.0.0", "--port", "8110"]
