"""No accelerators: where there is no driver, or none are to be used."""

from __future__ import annotations

from tiercel.trainer_agent.accelerators.contract import Accelerator, AcceleratorReading


class NoAccelerators:
    """See :class:`~tiercel.trainer_agent.accelerators.contract.Accelerators`; there are none."""

    @property
    def listed(self) -> tuple[Accelerator, ...]:
        """See :class:`~tiercel.trainer_agent.accelerators.contract.Accelerators`; always empty."""
        return ()

    def look(self) -> tuple[AcceleratorReading, ...]:
        """See :class:`~tiercel.trainer_agent.accelerators.contract.Accelerators`; always empty."""
        return ()

    def close(self) -> None:
        """See :class:`~tiercel.trainer_agent.accelerators.contract.Accelerators`."""
