# ubp2 on a CPU:    docker build -t ubp2 .
# on NVIDIA GPUs:   docker build -t ubp2:cuda --build-arg EXTRAS=cuda,gym .
# docs/docker.md says how to run it.

# Bookworm, and not what came after it, because it still has OSMesa, with which MuJoCo draws on any machine.
ARG PYTHON=3.12.12-slim-bookworm

FROM python:${PYTHON} AS build
WORKDIR /build
RUN pip install --no-cache-dir build==1.6.1
COPY pyproject.toml README.md LICENSE ./
COPY scripts/requirements.py scripts/
ARG EXTRAS=gym
RUN python scripts/requirements.py "${EXTRAS}" > requirements.txt
COPY src src
RUN python -m build --wheel --outdir dist

FROM python:${PYTHON}
# Whichever version Debian has: its security updates would remove a pinned one.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libosmesa6 \
    && rm -rf /var/lib/apt/lists/*
RUN useradd --create-home --uid 1000 ubp2 \
    && install --directory --owner=ubp2 /home/ubp2/runs /cache
# What takes long and changes rarely first.
COPY constraints.txt /build/
COPY --from=build /build/requirements.txt /build/
RUN pip install --no-cache-dir --constraint /build/constraints.txt --requirement /build/requirements.txt
COPY --from=build /build/dist /build/dist
RUN pip install --no-cache-dir --no-deps /build/dist/*.whl

ENV MUJOCO_GL=osmesa \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility,graphics \
    PYTHONUNBUFFERED=1 \
    XDG_CACHE_HOME=/cache
# A number, so that a cluster can see that it is not root.
USER 1000
WORKDIR /home/ubp2
EXPOSE 8642
ENTRYPOINT ["ubp2"]
CMD ["--help"]
