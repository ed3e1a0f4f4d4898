"""ONNX files that people deploy, taken in piece by piece.

A file is first written where no broker looks for anything, and is put in its place once all of it is here, its SHA-256
is what was announced, and it says what it takes and gives. What breaks off leaves nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from typing import TYPE_CHECKING

from tiercel.broker.lifecycle.deployment import Arrived, place_for
from tiercel.broker.store.carried import CheckpointFile
from tiercel.core.accuracy import ACCURACY_FILE, accuracies, accuracy_of
from tiercel.core.cheap_variant_rule import judged
from tiercel.core.cheap_variants import DEFAULT_MAX_LOSS
from tiercel.core.deploy_validation import validate_deploy
from tiercel.core.deploying import Deploy
from tiercel.core.endpoints import Endpoint
from tiercel.core.errors import UnavailableError, wrong_field
from tiercel.core.model_files import MODEL_FILE, REFERENCE_FILE
from tiercel.core.onnx_data import DATA_FILE
from tiercel.core.onnx_signature import UNREADABLE
from tiercel.core.tasks import run_in_thread
from tiercel.core.wire import from_proto
from tiercel.v1 import models_pb2

if TYPE_CHECKING:
    from tiercel.broker.actors.endpoint_service import EndpointService
    from tiercel.broker.api.incoming import Incoming
    from tiercel.broker.store.version_files import VersionStore, VersionUpload
    from tiercel.broker.tenancy import Caller, Tenancy
    from tiercel.core.endpoints import Delivery

    Messages = Incoming[models_pb2.DeployModelRequest]

UPLOAD_SECONDS = 3600.0
SLOWEST_BYTES_PER_SECOND = 1024**2


async def deploy(
    tenant: str, by: str, messages: Messages, endpoints: EndpointService, store: VersionStore
) -> tuple[Delivery, bool]:
    """Take in a file and make it the next version of an endpoint, unless it is one already.

    Returns its delivery, which is over, and whether it was there.

    Args:
        tenant: Whose endpoint it is to be.
        by: Who sends it.
        messages: What is sent.
        endpoints: Make versions.
        store: Where files of versions are.

    Raises:
        InvalidSpecError: It is not what was announced, no model, too large, or its node refused it.
        CannotWriteError: The disk is full.
        UnavailableError: It did not come, or it is not known in time what becomes of it.
        TiercelError: As :meth:`.EndpointService.deploy`.
    """
    asked = from_proto(Deploy, await messages.header())
    validate_deploy(asked)
    if (there := await endpoints.deployed(tenant, asked)) is not None:
        return there, True
    # What can be refused is, before megabytes are sent.
    known = endpoints.check_deploy(tenant, asked.endpoint) or Endpoint(asked.endpoint, tenant)
    place_for(known, endpoints.replicas(asked.endpoint), asked.node_id)
    announced = {
        MODEL_FILE: asked.model,
        DATA_FILE: asked.data,
        REFERENCE_FILE: asked.reference,
        **asked.variant_files,
    }
    files = [CheckpointFile(name, f.size_bytes, f.sha256) for name, f in announced.items() if f is not None]
    if told := _accuracies(asked):
        files.append(CheckpointFile(ACCURACY_FILE, len(told), hashlib.sha256(told).hexdigest()))
    with contextlib.ExitStack() as held:
        upload = held.enter_context(store.upload(files))
        seconds = UPLOAD_SECONDS + sum(file.size_bytes for file in files) / SLOWEST_BYTES_PER_SECOND
        try:
            async with asyncio.timeout(seconds):
                await _receive(messages, upload)
            if told:
                await run_in_thread(upload.write, told)
        except TimeoutError:
            raise UnavailableError(f"it took more than {seconds:.0f} s to send; try again") from None
        signature = await run_in_thread(upload.signature)
        if signature is None:
            raise wrong_field("file", f"{asked.file!r} {UNREADABLE}")
        await run_in_thread(upload.check_data)

        async def put(endpoint: str, version: int) -> None:
            await run_in_thread(upload.put, endpoint, version)
            store.finished(endpoint, version)

        return await endpoints.deploy(tenant, Arrived(asked, by, signature), put, held.pop_all()), False


def _accuracies(asked: Deploy) -> bytes:
    """What nodes with copies tell of it; where it is verified, its node writes what it found in this one's place."""
    accuracy = accuracy_of(asked.value, asked.direction)
    variants = (judged(each, accuracy, DEFAULT_MAX_LOSS, perhaps_accelerated=True) for each in asked.cheap_variants)
    return b"" if accuracy is None else accuracies(accuracy, variants)


async def _receive(messages: Messages, upload: VersionUpload) -> None:
    while (request := await messages.next()) is not None:
        await run_in_thread(upload.write, request.data)


def deployer(caller: Caller, tenancy: Tenancy) -> str:
    """Who somebody is, for the card of what they deploy; no secret."""
    if caller.person is not None:
        return caller.person.id
    issued = tenancy.issued.get(caller.token)
    name = caller.tenant.name if caller.tenant is not None else ""
    return f"{name} (token {issued.name})" if issued is not None else name
