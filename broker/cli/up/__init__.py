"""Everything on one machine: the broker in this process, an agent beside it that outlives it."""

from tiercel.core.trust.versions import allow_only_tls13

# Here, since this comes before any file of the package, and must come before gRPC.
allow_only_tls13()
