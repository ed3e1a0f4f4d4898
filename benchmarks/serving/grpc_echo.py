"""What gRPC's asyncio server costs by itself: ``PORT NAME=model.onnx ...``.

Messages stay bytes, and each question is computed once only: what remains is the transport.
"""

from __future__ import annotations

import asyncio
import sys

import numpy as np
import onnxruntime as ort
from grpc import RpcMethodHandler, aio, method_handlers_generic_handler, unary_unary_rpc_method_handler

from benchmarks.serving.models import INPUT, OUTPUT
from tiercel.inference import open_inference_grpc_pb2 as protocol


class Echo:
    """Answers what it was asked before from memory."""

    def __init__(self, models: dict[str, str]) -> None:
        self._sessions = {name: ort.InferenceSession(path) for name, path in models.items()}
        self._answers: dict[bytes, bytes] = {}

    async def infer(self, message: bytes, _: object) -> bytes:
        """gRPC: ModelInfer."""
        answer = self._answers.get(message)
        if answer is None:
            answer = self._answers[message] = self._compute(message)
        return answer

    def _compute(self, message: bytes) -> bytes:
        request = protocol.ModelInferRequest.FromString(message)
        row = np.frombuffer(request.raw_input_contents[0], np.float32).reshape(tuple(request.inputs[0].shape))
        found = self._sessions[request.model_name].run([OUTPUT], {INPUT: row})[0]
        answer = protocol.ModelInferResponse(model_name=request.model_name, raw_output_contents=[found.tobytes()])
        answer.outputs.add(name=OUTPUT, datatype="FP32", shape=found.shape)
        return bytes(answer.SerializeToString())


async def _serve(port: int, models: dict[str, str]) -> None:
    server = aio.server()
    handlers: dict[str, RpcMethodHandler[bytes, bytes]] = {
        "ModelInfer": unary_unary_rpc_method_handler(Echo(models).infer)
    }
    server.add_generic_rpc_handlers([method_handlers_generic_handler("inference.GRPCInferenceService", handlers)])
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


def main() -> None:
    """Serve until somebody ends it."""
    pairs = [argument.split("=", 1) for argument in sys.argv[2:]]
    asyncio.run(_serve(int(sys.argv[1]), dict(pairs)))


if __name__ == "__main__":
    main()
