from __future__ import annotations

from tiercel.trainer_agent.accelerators import nvidia_health
from tiercel.trainer_agent.accelerators.nvidia_health import XID_SECONDS, Xids

ALL_OF_IT = 0xFFFFFFFF


def test_an_xid_of_the_accelerator_counts_for_a_while() -> None:
    xids = Xids()
    xids.note("GPU-1", ALL_OF_IT, 79, now=10.0)
    assert "Xid 79 (fallen off the bus)" in xids.problem("GPU-1", None, 11.0)
    assert not xids.problem("GPU-2", None, 11.0)
    assert not xids.problem("GPU-1", None, 10.0 + XID_SECONDS)


def test_an_xid_that_a_program_brings_about_is_not_the_accelerators() -> None:
    xids = Xids()
    xids.note("GPU-1", ALL_OF_IT, 31, now=10.0)  # it read where there is nothing
    assert not xids.problem("GPU-1", None, 11.0)


def test_an_xid_concerns_its_slice_or_all_of_them() -> None:
    xids = Xids()
    xids.note("GPU-1", 3, 94, now=10.0)
    assert xids.problem("GPU-1", 3, 11.0)
    assert not xids.problem("GPU-1", 4, 11.0)
    xids.note("GPU-1", ALL_OF_IT, 79, now=12.0)
    assert "79" in xids.problem("GPU-1", 4, 13.0)
    assert "79" in xids.problem("GPU-1", 3, 13.0), "the latest is told"


def test_an_xid_that_nobody_knows_is_told_by_its_number() -> None:
    xids = Xids()
    xids.note("GPU-1", ALL_OF_IT, 999, now=10.0)
    assert "999" in xids.problem("GPU-1", None, 10.0)


def test_sentences_say_what_to_do() -> None:
    assert "restart the machine" in nvidia_health.fault(15, "GPU is lost")
    assert "--gpu-reset" in nvidia_health.fault(16, "GPU requires restart")
    assert "Strange" in nvidia_health.fault(999, "Strange")
    assert nvidia_health.uncorrected_errors(1).startswith("1 memory error was found")
    assert nvidia_health.uncorrected_errors(2).startswith("2 memory errors were found")
    assert "restart of the machine" in nvidia_health.recovery(2)
    assert "nvidia-smi" in nvidia_health.recovery(77)
    assert "(GPU 0: GPU is lost)" in nvidia_health.gone(["GPU 0: GPU is lost"])


def test_of_what_is_well_nothing_is_said() -> None:
    assert not nvidia_health.uncorrected_errors(0)
    assert not nvidia_health.recovery(0)
    assert not nvidia_health.remapping_failed(failed=False)
