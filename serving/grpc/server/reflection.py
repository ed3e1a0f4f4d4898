"""Server reflection, ``grpc.reflection.v1`` and ``v1alpha``, whose messages are the same on the wire."""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.descriptor import FileDescriptor
from grpc_reflection.v1alpha import reflection_pb2

from tiercel.serving.grpc.server.calls import Call, Method
from tiercel.serving.grpc.server.wire import Status

SERVICES = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")


class Reflection:
    """Tells callers what can be called.

    Args:
        services: Full names of the services, whose descriptors are in protobuf's default pool.
    """

    def __init__(self, services: tuple[str, ...]) -> None:
        self._services = tuple(sorted(services))
        self._pool = descriptor_pool.Default()

    def methods(self) -> dict[str, Method]:
        """By path."""
        method = Method(reflection_pb2.ServerReflectionRequest, self._handle, streaming=True, on_end=_end)
        return {f"/{service}/ServerReflectionInfo": method for service in SERVICES}

    def _handle(self, request: Any, call: Call) -> None:
        call.on_leave = lambda: call.finish(Status.UNAVAILABLE, "the server leaves")
        call.send(self.answer(request).SerializeToString())

    def answer(self, request: Any) -> Any:
        """The answer to one question, of type ``ServerReflectionResponse``."""
        answer = reflection_pb2.ServerReflectionResponse(original_request=request)
        try:
            self._fill(request, answer)
        except KeyError:
            answer.error_response.error_code = int(Status.NOT_FOUND)
            answer.error_response.error_message = "there is nothing of this name"
        return answer

    def _fill(self, request: Any, answer: Any) -> None:
        """Put the answer's content into ``answer``; a KeyError says that there is none."""
        pool = self._pool
        match request.WhichOneof("message_request"):
            case "list_services":
                for service in self._services:
                    answer.list_services_response.service.add(name=service)
            case "file_by_filename":
                _add_files(answer, pool.FindFileByName(request.file_by_filename))
            case "file_containing_symbol":
                _add_files(answer, pool.FindFileContainingSymbol(request.file_containing_symbol))
            case "file_containing_extension":
                wanted = request.file_containing_extension
                extended = pool.FindMessageTypeByName(wanted.containing_type)
                found = pool.FindExtensionByNumber(extended, wanted.extension_number)
                _add_files(answer, pool.FindFileContainingSymbol(found.full_name))
            case "all_extension_numbers_of_type":
                extended = pool.FindMessageTypeByName(request.all_extension_numbers_of_type)
                numbers = sorted(extension.number for extension in pool.FindAllExtensions(extended))
                answer.all_extension_numbers_response.base_type_name = extended.full_name
                answer.all_extension_numbers_response.extension_number.extend(numbers)
            case _:
                answer.error_response.error_code = int(Status.INVALID_ARGUMENT)
                answer.error_response.error_message = "the request asks nothing"


def _add_files(answer: Any, file: FileDescriptor) -> None:
    """Add a file and all that it needs, each once."""
    waiting, known = [file], {file.name}
    while waiting:
        each = waiting.pop()
        content = descriptor_pb2.FileDescriptorProto()
        each.CopyToProto(content)
        answer.file_descriptor_response.file_descriptor_proto.append(content.SerializeToString())
        new = [dependency for dependency in each.dependencies if dependency.name not in known]
        known.update(dependency.name for dependency in new)
        waiting += new


def _end(call: Call) -> None:
    call.finish()
