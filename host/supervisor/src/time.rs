//! Points in time as RFC 3339 text in UTC.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Now.
pub(crate) fn now() -> String {
    text(SystemTime::now())
}

/// Nanoseconds since 1970.
pub(crate) fn nanoseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Seconds since 1970.
pub(crate) fn seconds_now() -> f64 {
    nanoseconds() as f64 / 1e9
}

/// Seconds since 1970 as text.
pub(crate) fn of_seconds(seconds: f64) -> String {
    text(UNIX_EPOCH + Duration::try_from_secs_f64(seconds).unwrap_or_default())
}

/// A time as text, to the microsecond.
pub(crate) fn text(at: SystemTime) -> String {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:06}Z",
        second / 3600,
        second / 60 % 60,
        second % 60,
        since.subsec_micros()
    )
}

/// From text: RFC 3339 with any offset, or seconds since 1970 with fractions.
pub(crate) fn parse(text: &str) -> Option<SystemTime> {
    if let Ok(seconds) = text.parse::<f64>() {
        return UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(seconds).ok()?);
    }
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let sign = |at: usize, c: &[u8]| text.as_bytes().get(at).is_some_and(|b| c.contains(b));
    if !(sign(4, b"-") && sign(7, b"-") && sign(10, b"Tt ") && sign(13, b":") && sign(16, b":")) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let mut rest = text.get(19..)?;
    let mut nanoseconds = 0;
    if let Some(fraction) = rest.strip_prefix('.') {
        let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
        let kept = &fraction[..digits.min(9)];
        nanoseconds = kept.parse::<u64>().ok()? * 10u64.pow(9 - u32::try_from(kept.len()).ok()?);
        rest = &fraction[digits..];
    }
    let offset: i64 = match rest.as_bytes() {
        b"Z" | b"z" => 0,
        [sign @ (b'+' | b'-'), zone @ ..] if zone.len() == 5 && zone[2] == b':' => {
            let part = |r: std::ops::Range<usize>| std::str::from_utf8(&zone[r]).ok()?.parse::<i64>().ok();
            let seconds = part(0..2)? * 3600 + part(3..5)? * 60;
            if *sign == b'-' { -seconds } else { seconds }
        }
        _ => return None,
    };
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    let seconds = u64::try_from(i64::try_from(seconds).ok()? - offset).ok()?;
    UNIX_EPOCH.checked_add(Duration::new(seconds, u32::try_from(nanoseconds).ok()?))
}

/// Year, month and day of a number of days since 1970 (after Howard Hinnant's `civil_from_days`).
fn date(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

/// Days from 1970 to a date (its inverse).
fn days(year: u64, month: u64, day: u64) -> u64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year / 400, year % 400);
    let shifted_month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_827_696, "2000-02-29T12:34:56.000000Z"),
            (1_795_240_000, "2026-11-21T05:46:40.000000Z"),
        ] {
            let at = UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(text(at), expected);
            assert_eq!(parse(expected), Some(at));
        }
        let half = UNIX_EPOCH + Duration::from_millis(1500);
        for text in ["1.5", "1970-01-01T00:00:01.5Z", "1970-01-01T01:00:01.500+01:00"] {
            assert_eq!(parse(text), Some(half), "{text}");
        }
        for text in ["", "now", "1970-13-01T00:00:00Z", "1970-01-01T00:00:00", "1970-01-01T00:00:00+1", "-1"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
