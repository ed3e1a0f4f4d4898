# The image that training containers run in: Python with Tiercel's trainer library, its workloads and PyTorch.
# Built by tools/build_image.sh, whose context is a folder of wheels, so that no step needs a network.
# Any base with Python 3.11 or later and its venv module will do: --build-arg BASE=...
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS dependencies
COPY dependencies /wheels
# Headers and CMake files are for building extensions of PyTorch, which nobody does in here.
RUN python3 -m venv /opt/tiercel \
 && /opt/tiercel/bin/pip install --quiet --no-index --no-deps --no-cache-dir /wheels/*.whl \
 && rm -rf /opt/tiercel/lib/python3*/site-packages/torch/include /opt/tiercel/lib/python3*/site-packages/torch/share

FROM ${BASE}
COPY --from=dependencies /opt/tiercel /opt/tiercel
COPY tiercel-*.whl /wheels/
RUN /opt/tiercel/bin/pip install --quiet --no-index --no-deps --no-cache-dir /wheels/*.whl
ENV PATH=/opt/tiercel/bin:/usr/local/bin:/usr/bin:/bin
USER 65532:65532
ENTRYPOINT ["python"]
