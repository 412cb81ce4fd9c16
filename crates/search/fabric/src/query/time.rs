//! Points in time as people write them: `2026-11-30`, `2026-11-30 21:10:15.9`, `2026-11-30T21:10:15Z`; always
//! UTC.

const DAY_MICROS: i64 = 86_400_000_000;

/// Microseconds since 1970-01-01T00:00:00Z; `None` if it is not a time.
pub(crate) fn micros(text: &str) -> Option<i64> {
    let text = text.trim().trim_end_matches(['Z', 'z']);
    let (date, time) = text.split_once(['T', 't', ' ']).unwrap_or((text, ""));
    let mut parts = date.splitn(3, '-').map(|part| digits(part, 4));
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    let in_range = (1..=12).contains(&month) && (1..=31).contains(&day);
    let days = in_range.then(|| days_from_civil(year, month, day))?;
    Some(days * DAY_MICROS + if time.is_empty() { 0 } else { time_micros(time)? })
}

fn time_micros(time: &str) -> Option<i64> {
    let (clock, fraction) = time.split_once('.').unwrap_or((time, ""));
    let mut parts = clock.splitn(3, ':').map(|part| digits(part, 2));
    let (hour, minute) = (parts.next()??, parts.next()??);
    let second = parts.next().unwrap_or(Some(0))?;
    let fraction = if fraction.is_empty() { 0 } else { digits(&format!("{fraction:0<6}"), 6)? };
    let in_range = hour < 24 && minute < 60 && second < 60;
    in_range.then_some(((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction)
}

fn digits(text: &str, len_max: usize) -> Option<i64> {
    let plain = !text.is_empty() && text.len() <= len_max && text.bytes().all(|b| b.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

/// Days from 1970-01-01 to a date of the proleptic Gregorian calendar: years are counted from March, so that
/// the leap day is the last of its year, in eras of 400 years (146,097 days).
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_in_every_form_people_write() {
        assert_eq!(micros("1970-01-01"), Some(0));
        // 2000-03-01 is 11,017 days after 1970-01-01: 30 years, 7 leap days, 31 + 29 days.
        assert_eq!(micros("2000-03-01T00:00:01Z"), Some(11_017 * DAY_MICROS + 1_000_000));
        assert_eq!(micros("1969-12-31 23:59:59.5"), Some(-500_000));
        assert_eq!(micros("2000-03-01 01:02"), Some(11_017 * DAY_MICROS + 3_720_000_000));
    }

    #[test]
    fn what_is_no_time_is_not_read() {
        for text in ["", "yesterday", "2026-13-01", "2026-01-32", "2026-01-01 25:00", "2026-1", "-1-1-1"] {
            assert_eq!(micros(text), None, "{text}");
        }
    }
}
