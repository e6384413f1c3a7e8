"""Part of the fixed windows: days, weeks, months and years by the clock of a zone."""

from __future__ import annotations

from conformance.stories.telling import Json, case, fixed, many, no, yes

HOUR, DAY = 3600, 86_400


def cases() -> list[Json]:
    return [
        case(
            "minute and hour are fixed lengths",
            "The bare words mean 60 s and 3,600 s.",
            [],
            fixed(1, "minute"),
            [
                yes("2026-11-30T18:00:30Z"),
                no("2026-11-30T18:00:59Z", retry=1),
                yes("2026-11-30T18:01:00Z", reset=60),
            ],
        ),
        case(
            "hour by its word",
            "From the full hour on, in UTC.",
            [],
            fixed(1, "hour"),
            [
                yes("2026-11-30T18:20:00Z", reset=40 * 60),
                no("2026-11-30T18:59:59Z", retry=1),
                yes("2026-11-30T19:00:00Z"),
            ],
        ),
        case(
            "a day of 23 hours",
            "Berlin sets its clocks forward: the 29th of March 2026 has 23 hours.",
            ["C193"],
            fixed(2, "day", "Europe/Berlin"),
            [
                many("2026-03-28T23:00:00Z", 3, 2, retry=23 * HOUR),
                no("2026-03-29T21:59:59.999999Z", retry="0.000001"),
                many("2026-03-29T22:00:00Z", 3, 2, retry=24 * HOUR),
            ],
        ),
        case(
            "a day of 25 hours",
            "Berlin sets its clocks back: the 25th of October 2026 has 25 hours.",
            ["C193"],
            fixed(2, "day", "Europe/Berlin"),
            [
                many("2026-10-24T22:00:00Z", 3, 2, retry=25 * HOUR),
                no("2026-10-25T22:59:59.999999Z", retry="0.000001"),
                many("2026-10-25T23:00:00Z", 3, 2, retry=24 * HOUR),
            ],
        ),
        case(
            "a midnight that does not exist",
            "Beirut went from 24:00 to 01:00 on 2022-03-27: the day begins at 01:00, 22:00 UTC.",
            ["C193"],
            fixed(2, "day", "Asia/Beirut"),
            [
                many("2022-03-26T21:59:59.999999Z", 3, 2, retry="0.000001"),
                many("2022-03-26T22:00:00Z", 3, 2, retry=23 * HOUR),
                yes("2022-03-27T21:00:00Z", reset=24 * HOUR),
            ],
        ),
        case(
            "a missing midnight by São Paulo's clock",
            "2018-11-04 began at 01:00, that is 03:00 UTC, and had 23 hours.",
            ["C193"],
            fixed(1, "day", "America/Sao_Paulo"),
            [
                yes("2018-11-04T02:59:59Z", reset=1),
                yes("2018-11-04T03:00:00Z", reset=23 * HOUR),
                yes("2018-11-05T02:00:00Z"),
            ],
        ),
        case(
            "a midnight that exists twice",
            "Havana went from 01:00 back to 00:00 on 2026-11-01: the day begins at the first one.",
            ["C193"],
            fixed(2, "day", "America/Havana"),
            [
                many("2026-11-01T03:59:59Z", 3, 2, retry=1),
                yes("2026-11-01T04:00:00Z", reset=25 * HOUR),
                yes("2026-11-01T05:00:00Z", left=0),
                no("2026-11-01T05:30:00Z", retry=23.5 * HOUR),
                yes("2026-11-02T05:00:00Z"),
            ],
        ),
        case(
            "a clock set back at midnight to the day before",
            "São Paulo, 2018-02-18: 24:00 became 23:00 of the 17th, a day of 25 hours.",
            ["C193"],
            fixed(1, "day", "America/Sao_Paulo"),
            [
                yes("2018-02-17T02:00:00Z", reset=25 * HOUR),
                no("2018-02-18T02:30:00Z", retry=HOUR / 2),
                yes("2018-02-18T03:00:00Z"),
            ],
        ),
        case(
            "a clock set back a minute past midnight",
            "St. John's, 2006-10-29: midnight came, at 00:01 it was 23:01, and midnight came again.",
            ["C193"],
            fixed(1, "day", "America/St_Johns"),
            [
                yes("2006-10-29T02:29:59Z", reset=1),
                yes("2006-10-29T02:30:00Z", reset=25 * HOUR),
                no("2006-10-29T02:45:00Z"),
                no("2006-10-29T03:30:00Z", retry=24 * HOUR),
                yes("2006-10-30T03:30:00Z"),
            ],
        ),
        case(
            "a day that was left out",
            "Samoa had no 30th of December 2011: the 31st follows the 29th at once.",
            ["C193"],
            fixed(1, "day", "Pacific/Apia"),
            [
                yes("2011-12-29T10:00:00Z", reset=24 * HOUR),
                yes("2011-12-30T10:00:00Z", reset=24 * HOUR),
                no("2011-12-31T09:00:00Z", retry=HOUR),
            ],
        ),
        case(
            "half-hour zones",
            "Midnight in Kathmandu is 18:15 UTC.",
            [],
            fixed(1, "day", "Asia/Kathmandu"),
            [yes("2026-06-01T18:14:59Z", reset=1), yes("2026-06-01T18:15:00Z", reset=DAY)],
        ),
        case(
            "a day in UTC by its word",
            "The calendar day of UTC is the 86,400 s from the epoch.",
            [],
            fixed(1, "day"),
            [yes("2026-06-01T23:59:59Z", reset=1), yes("2026-06-02T00:00:00Z", reset=DAY)],
        ),
        case(
            "weeks begin on Monday",
            "2026-11-30 is a Monday.",
            ["C196"],
            fixed(1, "week"),
            [
                yes("2026-11-29T23:59:59.999999Z", reset="0.000001"),
                yes("2026-11-30T00:00:00Z", reset=7 * DAY),
                no("2026-12-06T23:59:59Z", retry=1),
                yes("2026-12-07T00:00:00Z"),
            ],
        ),
        case(
            "a week with a change of the clock",
            "In New York the week of 2026-03-02 has 167 hours.",
            [],
            fixed(1, "week", "America/New_York"),
            [
                yes("2026-03-02T05:00:00Z", reset=167 * HOUR),
                no("2026-03-09T03:59:59Z", retry=1),
                yes("2026-03-09T04:00:00Z"),
            ],
        ),
        case(
            "months have their own lengths",
            "January 31 days, February 28.",
            ["C196"],
            fixed(1, "month"),
            [
                yes("2026-01-01T00:00:00Z", reset=31 * DAY),
                yes("2026-02-01T00:00:00Z", reset=28 * DAY),
                no("2026-02-28T23:59:59Z", retry=1),
                yes("2026-03-01T00:00:00Z", reset=31 * DAY),
            ],
        ),
        case(
            "the month of a leap day",
            "February 2028 has 29 days.",
            [],
            fixed(1, "month"),
            [
                yes("2028-02-01T00:00:00Z", reset=29 * DAY),
                no("2028-02-29T12:00:00Z", retry=DAY / 2),
                yes("2028-03-01T00:00:00Z"),
            ],
        ),
        case(
            "a leap day is a day",
            "The 29th of February 2028 has its own window.",
            [],
            fixed(1, "day"),
            [
                yes("2028-02-28T12:00:00Z"),
                yes("2028-02-29T12:00:00Z", reset=DAY / 2),
                yes("2028-03-01T12:00:00Z"),
            ],
        ),
        case(
            "no leap day in 2100",
            "A century that 400 does not divide has none.",
            [],
            fixed(1, "month"),
            [yes("2100-02-01T00:00:00Z", reset=28 * DAY), yes("2100-03-01T00:00:00Z")],
        ),
        case(
            "a month in a zone that changes its clock",
            "October in Berlin is an hour longer, March an hour shorter.",
            [],
            fixed(1, "month", "Europe/Berlin"),
            [
                yes("2026-02-28T23:00:00Z", reset=31 * DAY - HOUR),
                yes("2026-03-31T22:00:00Z", reset=30 * DAY),
                yes("2026-09-30T22:00:00Z", reset=31 * DAY + HOUR),
                yes("2026-10-31T23:00:00Z"),
            ],
        ),
        case(
            "the end of the year",
            "By Auckland's clock the year 2027 begins at 11:00 UTC of the 31st of December.",
            [],
            fixed(1, "year", "Pacific/Auckland"),
            [
                yes("2026-12-31T10:59:59Z", reset=1),
                yes("2026-12-31T11:00:00Z", reset=365 * DAY),
                yes("2027-12-31T11:00:00Z", reset=366 * DAY),
            ],
        ),
        case(
            "years in UTC",
            "2028 has 366 days.",
            [],
            fixed(2, "year"),
            [
                yes("2027-12-31T23:59:59Z", reset=1),
                many("2028-01-01T00:00:00Z", 3, 2, retry=366 * DAY),
                yes("2029-01-01T00:00:00Z"),
            ],
        ),
        case(
            "an unknown zone is an error",
            "Said when the limit is made.",
            [],
            fixed(1, "day", "Europe/Atlantis"),
            [],
            rejected=True,
        ),
    ]
