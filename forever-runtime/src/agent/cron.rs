//! The times of a cron pattern, in UTC.
//!
//! Without the feature `cron` every pattern is an error that names the feature.
#[cfg(feature = "cron")]
use chrono::{DateTime, Utc};
#[cfg(feature = "cron")]
use croner::Cron;
#[cfg(feature = "cron")]
use croner::parser::{CronParser, Seconds, Year};

/// Maximum length of a pattern: it has a handful of fields.
#[cfg(feature = "cron")]
const LONGEST: usize = 256;

/// Refuses all patterns.
#[cfg(not(feature = "cron"))]
pub(crate) fn next(_: &str, _: i64) -> Result<i64, String> {
    Err("cron patterns need the feature `cron` of `forever-fiber`".to_owned())
}

/// The first time after `after_ms` that matches a pattern, or the reason why there is none.
#[cfg(feature = "cron")]
pub(crate) fn next(pattern: &str, after_ms: i64) -> Result<i64, String> {
    let cron = parse(pattern)?;
    let after = DateTime::<Utc>::from_timestamp_millis(after_ms).ok_or("the calendar does not go so far")?;
    match cron.find_next_occurrence(&after, false) {
        Ok(next) => Ok(next.timestamp_millis()),
        Err(_) => Err("it never holds".to_owned()),
    }
}

#[cfg(feature = "cron")]
fn parse(pattern: &str) -> Result<Cron, String> {
    if pattern.len() > LONGEST || !pattern.is_ascii() {
        return Err("it is not a cron pattern".to_owned());
    }
    let fields = pattern.split_whitespace().count();
    if !pattern.trim_start().starts_with('@') && !(5..=6).contains(&fields) {
        return Err(format!(
            "it has {fields} fields; 5 are wanted, `minute hour day-of-month month day-of-week`, or 6 with seconds in front"
        ));
    }
    let parser = CronParser::builder().seconds(Seconds::Optional).year(Year::Disallowed).build();
    let text = |why: croner::errors::CronError| why.to_string().trim_end_matches('.').to_owned();
    parser.parse(pattern).map_err(|why| match wrong_field(parser, pattern) {
        Some((name, field, why)) => format!("`{field}` is no {name}: {}", text(why)),
        None => text(why),
    })
}

/// The first field of a pattern that is wrong by itself: its name, its text and the error.
#[cfg(feature = "cron")]
fn wrong_field(parser: CronParser, pattern: &str) -> Option<(&'static str, &str, croner::errors::CronError)> {
    const NAMES: [&str; 6] = ["second", "minute", "hour", "day of the month", "month", "day of the week"];
    let fields: Vec<&str> = pattern.split_whitespace().collect();
    let names = NAMES.get(NAMES.len().checked_sub(fields.len())?..)?;
    fields.iter().zip(names).enumerate().find_map(|(n, (field, name))| {
        let mut alone = vec!["*"; fields.len()];
        alone[n] = field;
        Some((*name, *field, parser.parse(&alone.join(" ")).err()?))
    })
}

#[cfg(all(test, feature = "cron"))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn times<const N: usize>(pattern: &str, after: &str) -> [String; N] {
        let mut at = after.parse::<DateTime<Utc>>().unwrap().timestamp_millis();
        std::array::from_fn(|_| {
            at = next(pattern, at).unwrap();
            DateTime::<Utc>::from_timestamp_millis(at).unwrap().naive_utc().to_string()
        })
    }

    #[test]
    fn patterns_have_five_fields_or_six_with_seconds_in_front() {
        assert_eq!(times("*/20 9 * * *", "2024-01-01T09:00:00Z"), ["2024-01-01 09:20:00", "2024-01-01 09:40:00", "2024-01-02 09:00:00"]);
        assert_eq!(times("*/30 * * * * *", "2024-01-01T09:00:00.500Z"), ["2024-01-01 09:00:30", "2024-01-01 09:01:00"]);
        assert_eq!(times("0 9 * * MON-FRI", "2024-01-05T09:00:00Z"), ["2024-01-08 09:00:00"]);
        assert_eq!(times("@daily", "2024-01-05T09:00:00Z"), ["2024-01-06 00:00:00"]);
    }

    #[test]
    fn days_of_the_month_and_of_the_week_add_up_as_in_cron() {
        assert_eq!(times("0 0 13 * 5", "2024-09-10T00:00:00Z"), ["2024-09-13 00:00:00", "2024-09-20 00:00:00"]);
        assert_eq!(times("0 0 L * *", "2024-12-05T00:00:00Z"), ["2024-12-31 00:00:00", "2025-01-31 00:00:00", "2025-02-28 00:00:00"]);
        assert_eq!(times("0 0 29 2 *", "2096-03-01T00:00:00Z"), ["2104-02-29 00:00:00"]);
    }

    #[test]
    fn what_is_no_pattern_or_never_holds_is_an_error() {
        for bad in
            ["", "   ", "nonsense", "* * * *", "* * * * * * *", "61 * * * *", "5/0 * * * *", "0 9 * * * Mars", "@sometimes", "é * * * *"]
        {
            assert!(next(bad, 0).is_err(), "{bad:?}");
        }
        for (bad, field) in [
            ("61 * * * *", "`61` is no minute: "),
            ("0 25 * * *", "`25` is no hour: "),
            ("0 9 32 * *", "`32` is no day of the month: "),
            ("0 9 * 13 *", "`13` is no month: "),
            ("0 9 * * Mars", "`Mars` is no day of the week: "),
            ("75 0 9 * * *", "`75` is no second: "),
        ] {
            let why = next(bad, 0).unwrap_err();
            assert!(why.starts_with(field), "{why}");
        }
        assert_eq!(next("0 0 30 2 *", 0), Err("it never holds".to_owned()));
        assert_eq!(next(&"*".repeat(1000), 0), Err("it is not a cron pattern".to_owned()));
        assert!(next("* * * * *", i64::MAX).is_err());
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(pattern in "[-0-9A-Z*/,#?@ ]{0,24}", after in -100_000_000_000_000_i64..300_000_000_000_000) {
            let _ = next(&pattern, after);
        }

        #[test]
        fn what_comes_next_is_later(pattern in r"(\*|[0-9]{1,2}|\*/[0-9]{1,2})( (\*|[0-9]{1,2}|\*/[0-9])){4,5}", after in 0_i64..4_000_000_000_000) {
            if let Ok(next) = next(&pattern, after) {
                prop_assert!(next > after);
            }
        }
    }
}
