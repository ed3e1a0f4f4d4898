"""What OpenSSL says of certificates, in words for people."""

from __future__ import annotations

from datetime import UTC, datetime

from tiercel.core.trust.disbelief import alert_words, clock_words

NOW = datetime(2026, 11, 29, 12, 30, tzinfo=UTC)


def test_the_time_is_told_only_where_it_is_asked_for_so_that_a_log_does_not_repeat_itself() -> None:
    details = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired (_ssl.c:1016)"
    assert clock_words(details) == "has run out by this machine's clock; see which of the two clocks is wrong"
    assert "by this machine's clock (2026-11-29 12:30 UTC)" in clock_words(details, NOW)


def test_who_holds_our_certificate_for_run_out_may_have_a_wrong_clock() -> None:
    said = "[Errno 1] [SSL: SSLV3_ALERT_CERTIFICATE_EXPIRED] sslv3 alert certificate expired (_ssl.c:2580)"
    assert "by its clock, the certificate that it was shown has run out" in alert_words(said)
    assert alert_words("[SSL: TLSV1_ALERT_UNKNOWN_CA] tlsv1 alert unknown ca (_ssl.c:2580)") == ""
