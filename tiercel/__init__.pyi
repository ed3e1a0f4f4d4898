from tiercel.broker.client import Client as Client
from tiercel.broker.client import ClientOptions as ClientOptions
from tiercel.broker.client import JobHandle as JobHandle
from tiercel.broker.client import JobInfo as JobInfo
from tiercel.broker.client import RetryPolicy as RetryPolicy
from tiercel.broker.client import SyncClient as SyncClient
from tiercel.broker.client import TierMissedError as TierMissedError
from tiercel.broker.client import load_spec as load_spec
from tiercel.broker.client import parse_spec as parse_spec
from tiercel.core.data_sets import DataSet as DataSet
from tiercel.core.errors import EndpointBusyError as EndpointBusyError
from tiercel.core.errors import InvalidSpecError as InvalidSpecError
from tiercel.core.errors import NotAuthenticatedError as NotAuthenticatedError
from tiercel.core.errors import NotFoundError as NotFoundError
from tiercel.core.errors import OverloadedError as OverloadedError
from tiercel.core.errors import QuotaExceededError as QuotaExceededError
from tiercel.core.errors import TiercelError as TiercelError
from tiercel.core.errors import UnavailableError as UnavailableError
from tiercel.core.jobs import Direction as Direction
from tiercel.core.jobs import JobSpec as JobSpec
from tiercel.core.jobs import JobState as JobState
from tiercel.core.jobs import Resources as Resources
from tiercel.core.jobs import Script as Script
from tiercel.core.jobs import Shipping as Shipping
from tiercel.core.jobs import Tier as Tier
from tiercel.core.jobs import TierState as TierState

__version__: str
