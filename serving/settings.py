"""What can be set, by flags or by environment variables with the prefix ``TIERCEL_SERVING_``."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from tiercel.core.logs import LogFormat
from tiercel.serving import memory
from tiercel.serving.runtime.providers import ConvolutionSearch, read_order

MEBIBYTE = 1024**2


class Settings(BaseSettings):
    """Settings of one server. Sizes are in bytes, times in seconds."""

    model_config = SettingsConfigDict(env_prefix="TIERCEL_SERVING_", frozen=True)

    repository: Path  # folder with the models
    log_format: LogFormat = "text"  # how lines of the log are written
    host: str = "127.0.0.1"  # address to listen on
    http_port: int = Field(default=8000, ge=0, le=65535)  # port of REST; 0 for any free one
    grpc_port: int = Field(default=8001, ge=0, le=65535)  # port of gRPC; 0 for any free one
    state_file: Path  # written once both listen: pid and addresses
    lock_file: Path  # held while the server lives
    # Holds the token that operators send; only its owner may be able to read it.
    operator_token_file: Path | None = None
    # Says who may ask which model, as ``core/endpoint_access.py`` has it; None where everybody may.
    access_file: Path | None = None
    # Says which other nodes answer for which models, as the agent writes it; read again when it changes.
    routes_file: Path | None = None
    max_peer_requests: int = Field(default=256, ge=1)  # requests that may be under way at each of them
    max_peer_bytes: int = Field(default=128 * MEBIBYTE, ge=1)  # their bytes; a single one may have more
    # Names by which REST may be addressed, beside addresses, localhost and this machine's name; separated by commas,
    # ``*`` for any. Others are refused, since web pages can make up names for this machine.
    allowed_hosts: str = ""
    allow_remote: bool = False  # listen on an address that is not loopback
    # Address to listen on for other machines as well, by TLS 1.3 and for who shows a certificate; or empty.
    tls_host: str = ""
    tls_http_port: int = Field(default=0, ge=0, le=65535)  # port of REST there; 0 for any free one
    tls_grpc_port: int = Field(default=0, ge=0, le=65535)  # port of gRPC there; 0 for any free one
    # File with the server's private key and certificates, PEM; read again when it changes.
    tls_identity: Path | None = None
    tls_authority: Path | None = None  # file with the certificate of the authority that vouches for callers, PEM
    # Models that may run at the same time off the event loop; 0 for one on each core that the server may use. More than
    # that would take the caches from each other.
    inference_threads: int = Field(default=0, ge=0, le=256)
    model_threads: int = Field(default=1, ge=1, le=256)  # threads that one model may use
    max_pending: int = Field(default=256, ge=1)  # requests that may wait or run; more are refused
    max_pending_bytes: int = Field(default=256 * MEBIBYTE, ge=1)  # input bytes that may wait or run; more are refused
    max_body_bytes: int = Field(default=64 * MEBIBYTE, ge=1)  # largest request
    max_answer_bytes: int = Field(default=64 * MEBIBYTE, ge=1)  # largest outputs of one request
    # Memory that all runs of one model together may take, beside its weights; 0 for a quarter of what the server may
    # use, 2 GiB at most.
    max_run_bytes: int = Field(default=0, ge=0)
    # Memory of its own that the server may take in all; 0 for three quarters of what there is for it. Where ONNX
    # Runtime has CUDA it is not held to that, since drivers map much more than they use.
    max_memory_bytes: int = Field(default=0, ge=0)
    # Largest JSON in a request; parsing it blocks the event loop, so larger tensors go as binary.
    max_json_bytes: int = Field(default=16 * MEBIBYTE, ge=1)
    # Request bodies that all HTTP connections together may hold.
    max_buffered_bytes: int = Field(default=256 * MEBIBYTE, ge=1)
    max_header_bytes: int = Field(default=16 * 1024, ge=256)  # largest line and headers of an HTTP request
    max_connections: int = Field(default=1024, ge=1)  # HTTP connections at the same time
    idle_timeout: float = Field(default=75.0, gt=0)  # silence after which a connection is closed
    read_timeout: float = Field(default=30.0, gt=0)  # time in which a request must have arrived as a whole
    request_timeout: float = Field(default=30.0, gt=0)  # time in which an inference must be answered
    # Time that requests in flight get when the server is asked to leave.
    drain_timeout: float = Field(default=10.0, gt=0)
    verify_timeout: float = Field(default=60.0, gt=0)  # time in which an artefact must have been verified
    # What a model may have, with its weights beside its file; that has 2 GiB at most.
    max_model_bytes: int = Field(default=512 * MEBIBYTE, ge=1)
    max_reference_bytes: int = Field(default=64 * MEBIBYTE, ge=1)  # largest reference, unpacked
    # Address space of the process that verifies an artefact, beside what weights take that are not in the model's file.
    verifier_memory_bytes: int = Field(default=4096 * MEBIBYTE, ge=512 * MEBIBYTE)
    # Rows of several requests that may run together at most; fewer where that is not faster. 1 turns batching off.
    max_batch_rows: int = Field(default=128, ge=1, le=65_536)
    # Answers of one version that are generated at the same time, one row each.
    max_generated_rows: int = Field(default=16, ge=1, le=1024)
    max_waiting_rows: int = Field(default=64, ge=1, le=65_536)  # answers of one version that may wait for that
    max_generated_tokens: int = Field(default=1024, ge=1, le=1_000_000)  # tokens of one answer
    # Tokens of a prompt and its answer together, where the model can remember as many.
    max_context_tokens: int = Field(default=4096, ge=2, le=1_000_000)
    # Keys and values of all answers that are being generated; while a token is made there are twice as many.
    max_cache_bytes: int = Field(default=256 * MEBIBYTE, ge=1)
    generation_timeout: float = Field(default=120.0, gt=0)  # time in which an answer must have been generated
    # Requests with an id of their own, the last ones of each model, that can be explained and given feedback on; up to
    # twice as many are kept. 0 for none.
    remembered_requests: int = Field(default=4096, ge=0, le=1_000_000)
    # Time from one row of a request to the next that is compared with the first ones of its version; 0: none is.
    input_sample_seconds: float = Field(default=1.0, ge=0, le=86_400.0)
    # Time that a request may wait for others to run with while a thread is free. 0, since a batch of what came
    # meanwhile costs no delay; more only where throughput is worth delay.
    max_queue_delay: float = Field(default=0.0, ge=0, le=10.0)
    # Share of the requests that a newer version of a model gets at first; 1 is all of them at once.
    canary_fraction: float = Field(default=1.0, gt=0, le=1)
    # How long it gets them, if that is less; then it is promoted or rolled back. Whoever loads it waits for that, the
    # agent 120 s for the whole load.
    canary_seconds: float = Field(default=30.0, ge=0.1, le=3600.0)
    # Execution providers to try, in order: ``cuda,cpu`` and the like; ``auto`` is these, without a word where ONNX
    # Runtime was built without CUDA.
    providers: str = "auto"
    # Number of the device, among those that CUDA shows to the server.
    accelerator_device: int = Field(default=0, ge=0, le=1023)
    # Bytes of its memory that all models together may take; 0 for as much as there is.
    accelerator_memory: int = Field(default=0, ge=0)
    # Bytes of its memory that one version may take; 0 for no such limit.
    accelerator_model_memory: int = Field(default=0, ge=0)
    # What a model takes there as a multiple of its weights, while nothing was measured.
    accelerator_size_factor: float = Field(default=3.0, ge=1, le=100)
    # Whether a version answers from the CPU while the one that replaces it is loaded, where both do not fit.
    swap_over_cpu: bool = False
    # Whether its kernels go ahead of those of other streams that share the device's context.
    accelerator_priority: bool = True
    # Whether products may be rounded to TF32: faster, and less exact than what was verified.
    accelerator_tf32: bool = False
    # How convolutions are chosen; EXHAUSTIVE costs seconds with every new size of a batch.
    cudnn_conv_algo_search: ConvolutionSearch = "HEURISTIC"
    # A model that runs faster than this is run on the event loop, which is cheaper than a thread.
    inline_budget: float = Field(default=100e-6, ge=0)

    @field_validator("providers")
    @classmethod
    def _check_providers(cls, value: str) -> str:
        read_order(value)
        return value

    @property
    def host_names(self) -> tuple[str, ...]:
        """Names by which REST may be addressed, beside those that always are."""
        return tuple(name.strip() for name in self.allowed_hosts.split(",") if name.strip())

    @property
    def workers(self) -> int:
        """Threads that run models."""
        return self.inference_threads or len(os.sched_getaffinity(0))

    @property
    def run_bytes(self) -> int:
        """Memory that all runs of one model together may take."""
        return self.max_run_bytes or min(2048 * MEBIBYTE, memory.available_bytes() // 4)

    @property
    def memory_bytes(self) -> int:
        """Memory of its own that the server may take in all."""
        return self.max_memory_bytes or memory.available_bytes() * 3 // 4

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False
