"""When schedules are due."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from proctor.errors import UsageError
from proctor.server.team.cron import missed, parse_cron, zone_of

BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str, zone: ZoneInfo = BERLIN) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


def due(cron: str, after: str, zone: ZoneInfo = BERLIN) -> str:
    found = parse_cron(cron).next(at(after, zone), zone)
    return datetime.fromtimestamp(found, zone).strftime("%Y-%m-%d %H:%M") if found else "never"


@pytest.mark.parametrize(
    ("cron", "after", "expected"),
    [
        ("0 2 * * *", "2026-11-17 01:59", "2026-11-17 02:00"),
        ("0 2 * * *", "2026-11-17 02:00", "2026-11-18 02:00"),
        ("daily 02:00", "2026-11-17 12:00", "2026-11-18 02:00"),
        ("weekly monday 07:30", "2026-11-17 12:00", "2026-11-23 07:30"),
        ("@hourly", "2026-12-31 23:30", "2027-01-01 00:00"),
        ("*/20 8-9 * * mon-fri", "2026-11-20 09:40", "2026-11-23 08:00"),
        ("5,35 * * jan,jul *", "2026-11-17 12:00", "2027-01-01 00:05"),
        ("0 0 29 2 *", "2026-11-17 12:00", "2028-02-29 00:00"),
        ("0 0 13 * fri", "2026-11-17 12:00", "2026-11-20 00:00"),
        ("0 12 * * 7", "2026-11-17 12:00", "2026-11-22 12:00"),
        ("0 0 31 2 *", "2026-11-17 12:00", "never"),
    ],
)
def test_the_next_time_is_the_one_that_cron_means(cron, after, expected):
    assert due(cron, after) == expected


def test_a_time_that_the_clock_skips_is_an_hour_later_and_one_that_it_repeats_is_the_first():
    assert due("30 2 * * *", "2027-03-28 00:00") == "2027-03-28 03:30"
    assert due("30 2 * * *", "2027-03-28 04:00") == "2027-03-29 02:30"
    first = parse_cron("30 2 * * *").next(at("2027-10-31 00:00"), BERLIN)
    again = parse_cron("30 2 * * *").next(first, BERLIN)
    assert again - first == 25 * 3600


@pytest.mark.parametrize(
    "text", ["", "daily", "* * * *", "60 * * * *", "* 24 * * *", "a * * * *", "*/0 * * * *", "5-1 * * * *"]
)
def test_what_is_no_time_is_refused(text):
    with pytest.raises(UsageError):
        parse_cron(text)


def test_zones_have_names():
    assert zone_of("Asia/Kolkata").key == "Asia/Kolkata"
    for name in ("Mars/Base", "../../etc/passwd", "/etc/localtime", ""):
        with pytest.raises(UsageError, match="not a time zone"):
            zone_of(name)


def test_what_was_missed_is_counted():
    cron = parse_cron("daily 02:00")
    since, until = at("2026-11-10 02:00"), at("2026-11-17 12:00")
    assert missed(cron, BERLIN, since, until) == 8
    assert missed(cron, BERLIN, since, until, most=3) == 3
