"""The command: ``python -m tiercel.serving --repository DIR --state-file FILE --lock-file FILE``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

import uvloop
from pydantic import ValidationError

from tiercel.core.errors import SetupError
from tiercel.core.locks import Lock
from tiercel.core.logs import configure
from tiercel.serving import memory
from tiercel.serving.process import handover
from tiercel.serving.process.handover import Predecessor
from tiercel.serving.process.state import take_lock
from tiercel.serving.settings import Settings

_FLAGS = {
    "repository": "folder with the models: DIR/MODEL/VERSION/model.onnx",
    "log_format": "text, or json for one JSON object a line (text)",
    "host": "address to listen on (127.0.0.1)",
    "http_port": "port of REST; 0 is any free one (8000)",
    "grpc_port": "port of gRPC; 0 is any free one (8001)",
    "allowed_hosts": "names by which REST may be addressed beside localhost and addresses: a,b or * (none)",
    "tls_host": "address for other machines, by TLS 1.3 with a certificate of whoever asks (none)",
    "tls_http_port": "port of REST there; 0 is any free one (0)",
    "tls_grpc_port": "port of gRPC there; 0 is any free one (0)",
    "tls_identity": "file with the server's private key and certificates; read again when it changes",
    "tls_authority": "file with the certificate of the authority that vouches for those who ask",
    "state_file": "written once both listen: pid and addresses",
    "lock_file": "held while the server lives, so that there is one",
    "operator_token_file": "holds the token that whoever loads, unloads or declares shares has to send (none)",
    "access_file": "says who may ask which model; read again when it changes, and nobody may without it (none)",
    "routes_file": "says which other nodes answer for which models; read again when it changes (none)",
    "canary_fraction": "share of the requests on which a newer version is tried first; 1 is no trial (1)",
    "canary_seconds": "how long it is tried (30)",
    "providers": "what runs models, in order: cuda,cpu and the like, or auto (auto)",
    "accelerator_device": "number of the device, of those that CUDA shows to the server (0)",
    "accelerator_memory": "bytes of its memory that all models together may take; 0 is as much as there is (0)",
}


def settings_from(arguments: Sequence[str] | None = None) -> Settings:
    """Settings from flags and environment.

    Raises:
        SetupError: Something is missing or impossible.
    """
    parser = argparse.ArgumentParser(
        prog="tiercel.serving",
        description="Serve ONNX models over the Open Inference Protocol. "
        "All settings can be given as TIERCEL_SERVING_NAME in the environment.",
        argument_default=argparse.SUPPRESS,
    )
    for name, description in _FLAGS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", help=description)
    parser.add_argument("--allow-remote", action="store_true", help="listen on an address that is not loopback")
    parser.add_argument(
        "--swap-over-cpu",
        action="store_true",
        help="let a version answer from the CPU while the one that replaces it is loaded, where both do not fit",
    )
    try:
        settings = Settings(**vars(parser.parse_args(arguments)))
    except ValidationError as error:
        problems = "; ".join(f"{_flag(problem['loc'])}: {problem['msg']}" for problem in error.errors())
        raise SetupError(f"The settings are not right: {problems}.") from error
    _check(settings)
    return settings


def _flag(location: tuple[int | str, ...]) -> str:
    name = str(location[0]) if location else "settings"
    return f"--{name.replace('_', '-')}" if name in _FLAGS else f"TIERCEL_SERVING_{name.upper()}"


def _check(settings: Settings) -> None:
    if not settings.is_loopback and not settings.allow_remote:
        raise SetupError(
            f"{settings.host} can be reached from other machines, where --host has neither TLS nor logins. Listen on "
            "127.0.0.1 and give --tls-host for others, or put a proxy with both in front and give --allow-remote."
        )
    needed = (settings.tls_identity, settings.tls_authority, settings.operator_token_file)
    if bool(settings.tls_host) != any(needed[:2]) or (settings.tls_host and not all(needed)):
        raise SetupError(
            "For other machines give all of --tls-host, --tls-identity, --tls-authority and --operator-token-file: who "
            "asks shows a certificate, and who loads models the token. Else give none of the first three."
        )
    if not settings.repository.is_dir():
        raise SetupError(
            f"The repository {settings.repository} is not a folder. Make it, or give another --repository."
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server; returns the exit code: 0 after a drain, 2 when it could not start."""
    try:
        settings = settings_from(arguments)
        configure(settings.log_format)
        memory.settle()
        predecessor = handover.predecessor()
        if predecessor is None:
            with take_lock(settings.lock_file) as lock:
                settings.state_file.unlink(missing_ok=True)  # of a server that was killed
                _serve(settings, lock, None)
        else:
            with Lock(predecessor.inheritance.lock) as lock:
                _serve(settings, lock, predecessor)
    except SetupError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def _serve(settings: Settings, lock: Lock, predecessor: Predecessor | None) -> None:
    from tiercel.serving.server import Server  # takes a second; whoever may not have the lock is told before

    server = Server(settings, lock, predecessor)
    try:
        uvloop.run(server.run())
    finally:
        if server.owns_state_file:
            settings.state_file.unlink(missing_ok=True)
