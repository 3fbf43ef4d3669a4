//! Times as people read them. All are UTC.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Seconds since 1970 of an RFC 3339 time, fractions included.
pub fn parse(text: &str) -> Option<f64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let separators = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    if !separators.iter().all(|(at, byte)| text.as_bytes().get(*at) == Some(byte)) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let rest = text.get(19..)?;
    let digits = rest.strip_prefix('.').map_or(0, |f| f.bytes().take_while(u8::is_ascii_digit).count() + 1);
    let fraction = if digits > 1 { rest[..digits].parse::<f64>().ok()? } else { 0.0 };
    let zone = &rest[digits..];
    let offset = match zone {
        "Z" | "z" => 0,
        _ => {
            let sign = if zone.starts_with('-') { -1 } else { 1 };
            let (h, m) = zone.get(1..)?.split_once(':')?;
            sign * (h.parse::<i64>().ok()? * 3600 + m.parse::<i64>().ok()? * 60)
        }
    };
    // Days since 1970 by the civil calendar; years begin in March, so that leap days come last.
    let (y, m) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let days =
        365 * y + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400) + (153 * m + 2) / 5 + day - 719_469;
    Some((days * 86400 + hour * 3600 + minute * 60 + second - offset) as f64 + fraction)
}

/// Now, in seconds since 1970.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs_f64()
}

/// A time as RFC 3339.
pub fn format(seconds: f64) -> String {
    let total = seconds.floor() as i64;
    let (days, rest) = (total.div_euclid(86400), total.rem_euclid(86400));
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let doe = z.rem_euclid(146_097);
    let yoe = (doe - doe / 1460 + doe / 36524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (day, month) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    let year = yoe + era * 400 + i64::from(month <= 2);
    let ms = ((seconds - seconds.floor()) * 1000.0) as i64;
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{ms:03}Z",
        rest / 3600,
        rest % 3600 / 60,
        rest % 60
    )
}

/// A point in time as options give it: RFC 3339, seconds since 1970, or how long ago (`90s`, `10m`, `1h30m`).
pub fn point(text: &str) -> Result<String, String> {
    if parse(text).is_some() {
        return Ok(text.to_owned());
    }
    if let Ok(seconds) = text.parse::<f64>()
        && seconds.is_finite()
    {
        return Ok(format(seconds));
    }
    let mut ago = 0.0;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number: f64 = rest[..digits].parse().map_err(|_| bad_time(text))?;
        let unit = rest[digits..].chars().next().ok_or_else(|| bad_time(text))?;
        ago += number
            * match unit {
                's' => 1.0,
                'm' => 60.0,
                'h' => 3600.0,
                'd' => 86400.0,
                _ => return Err(bad_time(text)),
            };
        rest = &rest[digits + unit.len_utf8()..];
    }
    if text.is_empty() { Err(bad_time(text)) } else { Ok(format(now() - ago)) }
}

fn bad_time(text: &str) -> String {
    format!("{text:?} is no time; give RFC 3339, seconds since 1970, or how long ago, as 10m or 1h30m")
}

/// How long something is, in Docker's words.
pub fn span(seconds: f64) -> String {
    let s = seconds.max(0.0) as u64;
    let many = |n: u64, unit: &str| format!("{n} {unit}{}", if n == 1 { "" } else { "s" });
    match s {
        0 => "Less than a second".into(),
        1..60 => many(s, "second"),
        60..120 => "About a minute".into(),
        120..3600 => many(s / 60, "minute"),
        3600..7200 => "About an hour".into(),
        7200..172_800 => many(s / 3600, "hour"),
        172_800..1_209_600 => many(s / 86400, "day"),
        1_209_600..5_184_000 => many(s / 604_800, "week"),
        5_184_000..63_072_000 => many(s / 2_592_000, "month"),
        _ => many(s / 31_536_000, "year"),
    }
}

/// How long ago a time was.
pub fn ago(at: &str) -> String {
    parse(at).map_or_else(String::new, |t| format!("{} ago", span(now() - t)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        assert_eq!(parse("1970-01-01T00:00:00Z"), Some(0.0));
        assert_eq!(parse("2026-11-21T06:10:00.5Z"), Some(1_795_241_400.5));
        assert_eq!(parse("2026-11-21T07:10:00+01:00"), parse("2026-11-21T06:10:00Z"));
        for seconds in [0.0, 951_782_400.0, 951_868_800.5, 1_795_241_400.25, 4_102_444_799.0] {
            assert_eq!(parse(&format(seconds)), Some(seconds), "{}", format(seconds));
        }
        for bad in
            ["", "now", "2026-11-21", "2026-11-21T06:10:00", "2026-11-21T06:10:00+1", "2026-11-21x06:10:0xZ"]
        {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn points() {
        assert_eq!(point("0").unwrap(), "1970-01-01T00:00:00.000Z");
        let ago = now() - parse(&point("1h30m").unwrap()).unwrap();
        assert!((5399.0..5402.0).contains(&ago), "{ago}");
        for bad in ["", "x", "10", "10x", "m"].iter().filter(|b| **b != "10") {
            assert!(point(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn spans() {
        for (seconds, text) in [
            (0.5, "Less than a second"),
            (1.0, "1 second"),
            (59.0, "59 seconds"),
            (61.0, "About a minute"),
            (300.0, "5 minutes"),
            (3700.0, "About an hour"),
            (86400.0, "24 hours"),
            (259_200.0, "3 days"),
        ] {
            assert_eq!(span(seconds), text);
        }
    }
}
