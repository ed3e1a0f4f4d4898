from tiercel.broker.client import Client as Client
from tiercel.broker.client import ClientOptions as ClientOptions
from tiercel.broker.client import JobHandle as JobHandle
from tiercel.broker.client import JobInfo as JobInfo
from tiercel.broker.client import RetryPolicy as RetryPolicy
from tiercel.broker.client import SyncClient as SyncClient
from tiercel.broker.client import TierMissedError as TierMissedError
from tiercel.broker.client import load_spec as load_spec
from tiercel.broker.client import parse_spec as parse_spec
from tiercel.broker.domain.errors import EndpointBusyError as EndpointBusyError
from tiercel.broker.domain.errors import InvalidSpecError as InvalidSpecError
from tiercel.broker.domain.errors import NotAuthenticatedError as NotAuthenticatedError
from tiercel.broker.domain.errors import NotFoundError as NotFoundError
from tiercel.broker.domain.errors import OverloadedError as OverloadedError
from tiercel.broker.domain.errors import QuotaExceededError as QuotaExceededError
from tiercel.broker.domain.errors import TiercelError as TiercelError
from tiercel.broker.domain.errors import UnavailableError as UnavailableError
from tiercel.broker.domain.jobs import Direction as Direction
from tiercel.broker.domain.jobs import JobSpec as JobSpec
from tiercel.broker.domain.jobs import JobState as JobState
from tiercel.broker.domain.jobs import Resources as Resources
from tiercel.broker.domain.jobs import Script as Script
from tiercel.broker.domain.jobs import Shipping as Shipping
from tiercel.broker.domain.jobs import Tier as Tier
from tiercel.broker.domain.jobs import TierState as TierState

__version__: str
