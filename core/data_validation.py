"""What a job may ask for as data."""

from __future__ import annotations

from tiercel.core.data_sets import MAX_NAME_CHARACTERS, MAX_OF_A_JOB, DataSet, is_data_name
from tiercel.core.errors import InvalidSpecError


def validate_data(data: tuple[DataSet, ...]) -> None:
    """Check the data sets of a spec.

    Raises:
        InvalidSpecError: There are too many, or one cannot be; ``field`` names it.
    """
    if len(data) > MAX_OF_A_JOB:
        raise _refuse("data", f"has {len(data)} entries; at most {MAX_OF_A_JOB} are taken")
    names = [each.name for each in data]
    for index, name in enumerate(names):
        if not is_data_name(name):
            raise _refuse(
                f"data[{index}].name",
                f"{name!r} is not a data set's name; use 1 to {MAX_NAME_CHARACTERS} of a-z, 0-9 and '-', beginning "
                "with a letter or digit",
            )
        if name in names[:index]:
            raise _refuse(f"data[{index}].name", f"{name!r} is there twice; ask for it once")


def _refuse(field: str, message: str) -> InvalidSpecError:
    return InvalidSpecError(f"{field}: {message}", field=field)
