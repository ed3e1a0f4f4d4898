"""A trainer that speaks the protocol by itself: it begins at once, and misbehaves as the trainer library never would.

Its argument says what it does when it is asked for its model. With ``delivers`` it is what it should: it hands over the
model that follows in hexadecimal digits, which adds 1 to each of 4 numbers.
"""

from __future__ import annotations

import hashlib
import os
import queue
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np

from tiercel.v1 import PROTOCOL, trainer_pb2, trainer_pb2_grpc

mode = sys.argv[1]
run = Path(os.environ["TIERCEL_RUN_DIR"])
messages: queue.Queue[trainer_pb2.AttachRequest | None] = queue.Queue()
os.chdir(run)  # a short path for the socket, however long the folder's is


def outgoing() -> Iterator[trainer_pb2.AttachRequest]:
    while (message := messages.get()) is not None:
        yield message


def hand_over(request: trainer_pb2.ExportRequest) -> trainer_pb2.ExportDone:
    folder = run / "exports" / request.delivery_id
    folder.mkdir(parents=True, exist_ok=True)
    model, reference = folder / "model.onnx", folder / "reference.npz"
    content = b"this is no model"
    digest = hashlib.sha256(content).hexdigest()
    match mode:
        case "garbage":
            model.write_bytes(content)
        case "link":
            Path("work/secret").write_bytes(content)
            model.symlink_to(run / "work" / "secret")
        case "pipe":
            os.mkfifo(model)
        case "wrong-sum":
            model.write_bytes(content)
            digest = "0" * 64
        case "error":
            return trainer_pb2.ExportDone(delivery_id=request.delivery_id, error="there is no such model")
        case "exit":
            os._exit(0)
        case "crash":
            os._exit(1)
        case "delivers":
            content = bytes.fromhex(sys.argv[2])
            model.write_bytes(content)
            np.savez(reference, input_x=np.zeros((2, 4), np.float32), output_y=np.ones((2, 4), np.float32))
            digest = hashlib.sha256(content).hexdigest()
            return trainer_pb2.ExportDone(delivery_id=request.delivery_id, value=0.9, sha256=digest)
    reference.write_bytes(b"")
    return trainer_pb2.ExportDone(delivery_id=request.delivery_id, value=0.9, sha256=digest)


hello = trainer_pb2.TrainerHello(token=Path("token").read_text().strip(), protocol=PROTOCOL)
messages.put(trainer_pb2.AttachRequest(hello=hello))
with grpc.insecure_channel("unix:agent.sock") as channel:
    for answer in trainer_pb2_grpc.TrainerServiceStub(channel).Attach(outgoing()):
        kind = answer.WhichOneof("message")
        print(kind, flush=True)
        if kind == "welcome":
            if mode == "flood":
                crowd = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(50)]
                for each in crowd:
                    each.setblocking(False)
                    each.connect_ex("agent.sock")
                many = {f"{'x' * 50}{number}": 1.0 for number in range(60)} | {"two words": 1.0}
                for number in range(1, 601):
                    score = 0.95 if number == 500 else 0.1
                    report = trainer_pb2.TrainerReport(sequence=number, epoch=1, metrics={"score": score, **many})
                    messages.put(trainer_pb2.AttachRequest(report=report))
                continue
            report = trainer_pb2.TrainerReport(sequence=1, epoch=1, metrics={"score": 0.9})
            messages.put(trainer_pb2.AttachRequest(report=report))
        elif kind == "export" and mode != "silent":
            messages.put(trainer_pb2.AttachRequest(export_done=hand_over(answer.export)))
        elif kind == "stop" and mode != "stubborn":
            break
    else:
        time.sleep(600)  # a script that does not leave
messages.put(None)
