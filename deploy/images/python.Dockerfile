# Image of one Python service, with the packages that this service depends on and no others:
#
#   docker build -f deploy/images/python.Dockerfile --build-arg SERVICE=gateway .
#   docker build -f deploy/images/python.Dockerfile --build-arg SERVICE=agents/sql .
#
# SERVICE is a folder below services/. BuildKit only. Three layers on the base: packages of others that
# every service stands on, which all images share; those that the service adds; our own, which alone are
# made anew when only our code changes. `--target sbom -o FOLDER` writes the image's bill of materials
# instead. Secret `ca`: the certificate authorities of a company network.
ARG PYTHON_IMAGE

# --- strip, and uv from the lock by hash -------------------------------------------------------------
FROM ${PYTHON_IMAGE} AS tools
RUN apt-get -qq update && apt-get -qq install --yes --no-install-recommends binutils > /dev/null
WORKDIR /src
COPY requirements.lock deploy/images/closure.py ./
RUN --mount=type=secret,id=ca --mount=type=cache,target=/root/.cache \
    if [ -s /run/secrets/ca ]; then export PIP_CERT=/run/secrets/ca; fi \
    && python3 -m venv .venv \
    && python3 closure.py --lock requirements.lock --pin uv > uv.txt \
    && .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r uv.txt

# --- what our packages require, apart from their code -------------------------------------------------
FROM tools AS manifests
COPY libs /all/libs
COPY services /all/services
RUN mkdir /manifests && cp requirements.lock closure.py /manifests/ \
    && cd /all && find . -name pyproject.toml -exec cp --parents {} /manifests/ \;

# --- our libraries as wheels ---------------------------------------------------------------------
FROM tools AS libraries
COPY protos protos
COPY libs libs
RUN --mount=type=secret,id=ca --mount=type=cache,target=/root/.cache \
    if [ -s /run/secrets/ca ]; then export SSL_CERT_FILE=/run/secrets/ca; fi \
    && python3 closure.py --lock requirements.lock --build libs/protos > build.txt \
    && .venv/bin/uv pip install --quiet --python .venv/bin/python --constraint requirements.lock -r build.txt \
    && PATH=$PWD/.venv/bin:$PATH .venv/bin/python libs/protos/generate.py \
    && export HATCH_BUILD_NO_HOOKS=true SOURCE_DATE_EPOCH=0 \
    && for member in libs/*; do \
        (cd "$member" && /src/.venv/bin/python -m hatchling build -t wheel -d /src/wheels > /dev/null) || exit; \
    done

# --- the service as a wheel ----------------------------------------------------------------------
FROM libraries AS wheels
ARG SERVICE
COPY services/${SERVICE} services/${SERVICE}
RUN export HATCH_BUILD_NO_HOOKS=true SOURCE_DATE_EPOCH=0 \
    && cd "services/${SERVICE}" && /src/.venv/bin/python -m hatchling build -t wheel -d /src/wheels > /dev/null

# --- the base without the tools to install anything ----------------------------------------------
FROM ${PYTHON_IMAGE} AS runtime
RUN rm -rf "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')/ensurepip" \
        "$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"/pip* \
        /usr/local/bin/pip* /usr/share/python-wheels \
    # Services that keep files have them here; mounted volumes take over owner and mode.
    && mkdir -p /var/lib/bos /run/secrets/bos \
    && chown 65532:65532 /var/lib/bos && chmod 0770 /var/lib/bos

# --- packages of others that every service stands on ---------------------------------------------
FROM runtime AS common
RUN --mount=type=bind,from=manifests,source=/manifests,target=/src \
    --mount=type=bind,from=tools,source=/,target=/tools \
    --mount=type=bind,source=deploy/images/install.sh,target=/install.sh \
    --mount=type=secret,id=ca --mount=type=cache,target=/root/.cache \
    --mount=type=tmpfs,target=/tmp \
    sh /install.sh others libs/chassis

# --- packages of others that the service adds ----------------------------------------------------
FROM common AS required
ARG SERVICE
RUN --mount=type=bind,from=manifests,source=/manifests,target=/src \
    --mount=type=bind,from=tools,source=/,target=/tools \
    --mount=type=bind,source=deploy/images/install.sh,target=/install.sh \
    --mount=type=secret,id=ca --mount=type=cache,target=/root/.cache \
    --mount=type=tmpfs,target=/tmp \
    sh /install.sh others "services/${SERVICE}"

# --- our own -------------------------------------------------------------------------------------
FROM required AS installed
ARG SERVICE
RUN --mount=type=bind,from=wheels,source=/src,target=/src \
    --mount=type=bind,from=tools,source=/,target=/tools \
    --mount=type=bind,source=deploy/images/install.sh,target=/install.sh \
    --mount=type=secret,id=ca --mount=type=cache,target=/root/.cache \
    --mount=type=tmpfs,target=/tmp \
    sh /install.sh ours "services/${SERVICE}"

# --- target sbom: what is in the image, in CycloneDX ---------------------------------------------
FROM tools AS cyclonedx
COPY deploy/images/cyclonedx.txt ./
RUN --mount=type=secret,id=ca --mount=type=cache,target=/root/.cache \
    if [ -s /run/secrets/ca ]; then export SSL_CERT_FILE=/run/secrets/ca; fi \
    && .venv/bin/uv venv --quiet /opt/cyclonedx \
    && .venv/bin/uv pip sync --quiet --python /opt/cyclonedx/bin/python --require-hashes cyclonedx.txt

FROM installed AS listed
RUN --mount=type=bind,from=cyclonedx,source=/opt/cyclonedx,target=/opt/cyclonedx \
    mkdir /bom && /opt/cyclonedx/bin/python -m cyclonedx_py environment --output-reproducible \
        --output-file /bom/bom.cdx.json /opt/bos/bin/python

FROM scratch AS sbom
COPY --from=listed /bom/bom.cdx.json /

# --- the image -----------------------------------------------------------------------------------
FROM installed AS image
ARG SERVICE
ARG VERSION=0.0.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Bos: ${SERVICE}" \
    org.opencontainers.image.description="One service of Bos, self-hosted multi-agent question answering" \
    org.opencontainers.image.version="${VERSION}" \
    org.opencontainers.image.revision="${REVISION}" \
    org.opencontainers.image.licenses="Apache-2.0"
# The root is read-only and everything is compiled. Settings of the service win over these.
ENV PATH=/opt/bos/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    HOME=/tmp \
    BOS_SERVER_HOST=0.0.0.0 \
    BOS_SERVER_PORT=8080 \
    BOS_SERVER_METRICS_HOST=0.0.0.0 \
    BOS_SERVER_METRICS_PORT=9464
EXPOSE 8080 9464
# Nothing writes here, so no other .env is read.
WORKDIR /opt/bos
USER 65532:65532
ENTRYPOINT ["/opt/bos/bin/serve"]
