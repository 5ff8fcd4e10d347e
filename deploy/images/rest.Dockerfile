# Image of the REST gateway, a static program on nothing, with the web console if `make console` has built it.
#
#   docker build -f deploy/images/rest.Dockerfile .
#
# Go comes as `make rest` has it: a wheel, by hash. Secret `ca`: the certificate authorities of a
# company network.
ARG PYTHON_IMAGE

FROM ${PYTHON_IMAGE} AS build
WORKDIR /src
COPY requirements.lock deploy/images/closure.py ./
RUN --mount=type=secret,id=ca --mount=type=cache,target=/root/.cache \
    if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi \
    && python3 -m venv .venv \
    && python3 closure.py --lock requirements.lock --pin uv > uv.txt \
    && .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r uv.txt
COPY protos protos
COPY libs/protos libs/protos
RUN --mount=type=secret,id=ca --mount=type=cache,target=/root/.cache \
    if [ -s /run/secrets/ca ]; then export SSL_CERT_FILE=/run/secrets/ca; fi \
    && python3 closure.py --lock requirements.lock --build libs/protos > build.txt \
    && .venv/bin/uv pip install --quiet --python .venv/bin/python --constraint requirements.lock -r build.txt \
    && PATH=$PWD/.venv/bin:$PATH .venv/bin/python libs/protos/generate.py
COPY services/rest services/rest
COPY services/console services/console
RUN --mount=type=secret,id=ca --mount=type=cache,target=/root/.cache \
    if [ -s /run/secrets/ca ]; then export SSL_CERT_FILE=/run/secrets/ca; fi \
    && export BOS_CACHE=/root/.cache/bos \
    && sh services/rest/go.sh run ./cmd/generate /src/libs/protos/build/image.binpb gen \
    && sh services/rest/go.sh run ./cmd/assets /src/services/console/dist internal/console/assets \
    && sh services/rest/go.sh build -ldflags='-s -w' -o /src/bos-rest .

FROM scratch
ARG VERSION=0.0.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Bos: rest" \
    org.opencontainers.image.description="REST gateway of Bos, self-hosted multi-agent question answering" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /src/bos-rest /bos-rest
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
ENV BOS_REST_HOST=0.0.0.0 \
    BOS_REST_PORT=8000 \
    BOS_REST_METRICS_ADDRESS=0.0.0.0:9464
EXPOSE 8000 9464
USER 65532:65532
ENTRYPOINT ["/bos-rest"]
