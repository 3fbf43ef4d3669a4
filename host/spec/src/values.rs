//! Values as people write them: sizes, time spans, numbers of CPUs and tasks.

/// Parses a size: a number, with an optional suffix k, m, g or t (powers of 1024; `kb`, `KiB` too).
///
/// # Errors
/// A text that is no number, has another suffix, or is more than 2^64 bytes.
pub fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        other => return Err(format!("unknown unit {other:?}; use k, m, g or t")),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} is no number"));
    if fraction.len() > 9 {
        return Err("too many decimals".into());
    }
    let unit = 1u64 << shift;
    let whole = number(whole)?.checked_mul(unit).ok_or("the size is too large")?;
    let part = match fraction {
        "" if digits.ends_with('.') => return Err(format!("{digits:?} is no number")),
        "" => 0,
        _ => {
            let scale = 10u128.pow(u32::try_from(fraction.len()).unwrap_or(0));
            u64::try_from(u128::from(number(fraction)?) * u128::from(unit) / scale).unwrap_or(0)
        }
    };
    whole.checked_add(part).ok_or_else(|| "the size is too large".into())
}

/// Parses a bound on memory: a size, or `unlimited` or 0 for none.
///
/// # Errors
/// As [`size`].
pub fn memory(text: &str) -> Result<u64, String> {
    if text == "unlimited" { Ok(crate::UNBOUNDED) } else { size(text) }
}

/// Parses memory and swap together: a size, or as Docker writes as much as can be, -1 (`unlimited` too).
///
/// # Errors
/// What is neither a size nor one of these.
pub fn swap(text: &str) -> Result<u64, String> {
    match text {
        "unlimited" | "-1" => Ok(crate::MOST_SWAP),
        size => self::size(size),
    }
}

/// Parses a number of CPUs. JSON, by which the supervisor is asked, has no infinity: it would be no bound at all.
///
/// # Errors
/// What is no finite number.
pub fn cpus(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|n| n.is_finite());
    number.ok_or_else(|| format!("{text:?} is no number of CPUs; use for example 0.5 or 2"))
}

/// Parses a bound on processes and threads: their number, or as Docker writes none, -1 or 0 (`unlimited` too).
///
/// # Errors
/// What is neither a number nor one of these.
pub fn tasks(text: &str) -> Result<u32, String> {
    match text {
        "unlimited" | "-1" => Ok(crate::NO_PIDS_LIMIT),
        number => number.parse().map_err(|_| format!("{text:?} is neither a number nor -1 for no bound")),
    }
}

/// Parses a time span in seconds: a number, or as Docker writes it (`500ms`, `30s`, `1m30s`, `2h`).
///
/// # Errors
/// What is neither.
pub fn seconds(text: &str) -> Result<f64, String> {
    let bad = || format!("{text:?} is no time span; use seconds, or as 500ms, 30s, 1m30s");
    let number =
        |digits: &str| digits.parse::<f64>().ok().filter(|n| n.is_finite() && *n >= 0.0).ok_or_else(bad);
    if text.ends_with(|c: char| c.is_ascii_digit()) {
        return number(text);
    }
    let (mut all, mut rest) = (0.0, text);
    while !rest.is_empty() {
        let (digits, unit) = rest.split_at(rest.find(|c: char| c.is_ascii_alphabetic()).ok_or_else(bad)?);
        let (unit, after) =
            unit.split_at(unit.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(unit.len()));
        let scale = match unit {
            "us" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err(bad()),
        };
        all += number(digits)? * scale;
        rest = after;
    }
    if text.is_empty() { Err(bad()) } else { Ok(all) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_cpus() {
        assert_eq!((cpus("0.5"), cpus("2")), (Ok(0.5), Ok(2.0)));
        for text in ["nan", "inf", "infinity", "1e999", "two", ""] {
            assert!(cpus(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes() {
        for (text, value) in [
            ("0", 0),
            ("512", 512),
            ("64k", 65536),
            ("1M", 1 << 20),
            ("1.5g", 3 << 29),
            ("2GiB", 2 << 30),
            ("1t", 1 << 40),
        ] {
            assert_eq!(size(text), Ok(value), "{text}");
        }
        for text in ["", "m", "-1", "1x", "1.", ".5m", "99999999999t", "1.0000000001g", "1 g"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bounds() {
        assert_eq!([memory("0"), memory("unlimited"), memory("8m")], [Ok(0), Ok(0), Ok(8 << 20)]);
        assert_eq!([tasks("0"), tasks("-1"), tasks("unlimited"), tasks("64")], [Ok(0), Ok(0), Ok(0), Ok(64)]);
        assert!(memory("-1").is_err() && tasks("-2").is_err() && tasks("many").is_err());
    }

    #[test]
    fn spans() {
        for (text, value) in
            [("30", 30.0), ("0.5", 0.5), ("500ms", 0.5), ("1m30s", 90.0), ("2h", 7200.0), ("1.5m", 90.0)]
        {
            assert_eq!(seconds(text), Ok(value), "{text}");
        }
        for text in ["", "s", "-1", "-1s", "1d", "1m30x", "inf", "nan", "1e999"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
