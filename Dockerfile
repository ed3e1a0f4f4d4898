# The image that training containers run in: Python with Tiercel's trainer library, its workloads and PyTorch.
# Built by tools/build_image.sh, whose context is a folder of wheels, so that no step needs a network.
# Any base with Python 3.11 or later and its venv module will do: --build-arg BASE=...
ARG BASE=python:3.11-slim-bookworm
FROM ${BASE}

# The wheels stay in a layer of their own. A second stage would save its 350 MB and cost a copy of everything installed,
# which takes longer than all the rest.
COPY dependencies /wheels
# Headers and CMake files only serve to build extensions of PyTorch. The rest is compiled here because the file system is
# read-only later, and by compileall because pip cannot do it in parallel; it complains of a few files that packages ship
# for other versions of Python. Nobody imports the tests of packages, a quarter of all that there is; what else is not
# to be compiled is an expression that finds the files.
ARG UNCOMPILED=/tests?/
RUN python3 -m venv /opt/tiercel \
 && /opt/tiercel/bin/pip install --quiet --no-index --no-deps --no-cache-dir --no-compile /wheels/*.whl \
 && rm -rf /opt/tiercel/lib/python3*/site-packages/torch/include /opt/tiercel/lib/python3*/site-packages/torch/share \
 && { /opt/tiercel/bin/python -m compileall -qq -j 0 -x "$UNCOMPILED" /opt/tiercel/lib || true; }

# Last, because it changes most often.
COPY tiercel-*.whl /tmp/
RUN /opt/tiercel/bin/pip install --quiet --no-index --no-deps --no-cache-dir /tmp/*.whl
ENV PATH=/opt/tiercel/bin:/usr/local/bin:/usr/bin:/bin
# ONNX Runtime reports to its makers without it.
ENV ORT_DISABLE_TELEMETRY=1
USER 65532:65532
ENTRYPOINT ["python"]
