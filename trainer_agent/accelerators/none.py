"""No accelerators: where there is no driver, or none are to be used."""

from __future__ import annotations

from tiercel.trainer_agent.accelerators.contract import Device, Reading


class NoAccelerators:
    """See :class:`~tiercel.trainer_agent.accelerators.contract.Accelerators`; there are none."""

    @property
    def devices(self) -> tuple[Device, ...]:
        """See :class:`~tiercel.trainer_agent.accelerators.contract.Accelerators`; always empty."""
        return ()

    def look(self) -> tuple[Reading, ...]:
        """See :class:`~tiercel.trainer_agent.accelerators.contract.Accelerators`; always empty."""
        return ()

    def close(self) -> None:
        """See :class:`~tiercel.trainer_agent.accelerators.contract.Accelerators`."""
