# Debian 13 carries SQLite 3.46; the durable-run engine needs 3.42 or newer on Python >= 3.12.
FROM python:3.13-slim-trixie AS build
ENV UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never
WORKDIR /srv
RUN pip install --no-cache-dir uv==0.13.9
# Datasets as Parquet: 160 MB that an image may go without (--build-arg EXTRA="").
ARG EXTRA="parquet"
COPY pyproject.toml uv.lock README.md ./
RUN uv sync --frozen --no-dev --no-install-project ${EXTRA:+--extra ${EXTRA}}
COPY app ./app
COPY adapters ./adapters
COPY layers ./layers
COPY prompts ./prompts
RUN uv sync --frozen --no-dev --no-editable ${EXTRA:+--extra ${EXTRA}}

FROM python:3.13-slim-trixie
RUN useradd --system --uid 10001 --home-dir /data --create-home arbiter
COPY --from=build --chown=root:root /srv/.venv /srv/.venv
ENV PATH="/srv/.venv/bin:$PATH" \
    PYTHONUNBUFFERED=1 \
    ARBITER_HOST=0.0.0.0 \
    ARBITER_PORT=8088 \
    ARBITER_DATABASE_URL=sqlite:////data/arbiter-l8.db
WORKDIR /data
VOLUME /data
USER 10001
EXPOSE 8088
# The service refuses to bind a public address without ARBITER_API_KEYS: give one.
HEALTHCHECK --interval=15s --timeout=3s --start-period=20s --retries=3 \
    CMD ["python", "-c", "import os,urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ['ARBITER_PORT'] + '/livez', timeout=2)"]
ENTRYPOINT ["arbiter-l8"]
CMD ["serve"]
