//! Calendar times and time spans out of texts and numbers, as loosely as MySQL reads them.

use super::number::number_of;
use super::string::plain_text;
use super::{Context, Unconvertible, duration_value, time_value, unquoted};
use crate::decimal::Decimal;
use crate::meta::{FieldType, SqlType};
use crate::time::{DURATION_NANOS_MAX, Duration, FSP_MAX, Time, TimeFields, civil_from_days};
use crate::value::Value;

/// Largest TIME, in seconds: 838:59:59.
const DURATION_SECONDS_MAX: i64 = 838 * 3600 + 59 * 60 + 59;
/// The same as the digits of a number.
const DURATION_NUMBER_MAX: i64 = 8_385_959;
/// From here on a number is a DATETIME even where a TIME is wanted.
const DATETIME_NUMBER_MIN: i64 = 10_000_000_000;
const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// `value` as DATE, DATETIME or TIMESTAMP; what is no such time becomes zero.
pub(super) fn to_time(
    value: &Value<'_>,
    to: &FieldType,
    context: Context,
) -> Result<Value<'static>, Unconvertible> {
    let fsp = fsp_of(to);
    let time = match value {
        Value::Date(time) | Value::DateTime(time) | Value::Timestamp(time) => round_time(*time, fsp),
        Value::Duration(duration) => round_time(on_day(*duration, context.today).ok_or(Unconvertible)?, fsp),
        Value::Text(text) => datetime_from_text(text, fsp, false),
        Value::Bytes(_) => datetime_from_text(&plain_text(value), fsp, false),
        Value::Json(json) => datetime_from_text(&unquoted(json), fsp, false),
        Value::Int(int) => datetime_from_number(*int),
        Value::Year(year) => datetime_from_number(i64::from(*year)),
        Value::UInt(uint) => i64::try_from(*uint).ok().and_then(datetime_from_number),
        Value::Decimal(decimal) => datetime_from_text(&decimal.to_string(), fsp, true),
        _ => return Err(Unconvertible),
    };
    let sound = time.filter(|time| is_sound(*time, to.tp));
    let zero = || Time::from_packed(0, fsp).ok_or(Unconvertible);
    let time = sound.map_or_else(zero, Ok)?;
    Ok(time_value(to.tp, if to.tp == SqlType::Date { midnight(time) } else { with_fsp(time, fsp) }))
}

/// `value` as TIME; what is no time becomes zero or the largest one.
pub(super) fn to_duration(value: &Value<'_>, to: &FieldType) -> Result<Value<'static>, Unconvertible> {
    let fsp = fsp_of(to);
    let duration = match value {
        Value::Duration(duration) => round_duration(*duration, fsp),
        Value::Date(_) => Duration::new(0, fsp),
        Value::DateTime(time) | Value::Timestamp(time) => round_duration(clock_of(*time), fsp),
        Value::Json(json) => duration_from_text(&unquoted(json), fsp).0,
        Value::Text(text) => duration_from_text(text, fsp).0,
        Value::Bytes(_) => duration_from_text(&plain_text(value), fsp).0,
        Value::Int(_)
        | Value::UInt(_)
        | Value::Year(_)
        | Value::Float(_)
        | Value::Double(_)
        | Value::Decimal(_) => {
            let number = number_of(value).to_i64();
            if number < -DURATION_NUMBER_MAX {
                return Ok(Value::Null);
            }
            if number > DURATION_NUMBER_MAX && number < DATETIME_NUMBER_MIN {
                Duration::new(DURATION_SECONDS_MAX * NANOS_PER_SECOND, fsp)
            } else {
                duration_from_text(&plain_text(value), fsp).0
            }
        }
        _ => return Err(Unconvertible),
    };
    Ok(duration_value(duration))
}

fn fsp_of(to: &FieldType) -> u8 {
    u8::try_from(to.decimal.clamp(0, i64::from(FSP_MAX))).unwrap_or(0)
}

/// Whether `time` may stand in a column of this type: a day that exists (zero parts are allowed), and for
/// TIMESTAMP an instant from 1970-01-01 00:00:01 to 2038-01-19 03:14:07.999999.
fn is_sound(time: Time, tp: SqlType) -> bool {
    let fields = time.fields();
    if tp == SqlType::Timestamp && !time.is_zero() {
        let range = 1_000_000..(1_i64 << 31) * 1_000_000;
        return fields.day <= days_in_month(fields)
            && time.unix_micros().is_some_and(|at| range.contains(&at));
    }
    fields.day <= days_in_month(fields)
}

fn days_in_month(fields: TimeFields) -> u8 {
    let year = fields.year;
    match fields.month {
        4 | 6 | 9 | 11 => 30,
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        _ => 31,
    }
}

fn with_fsp(time: Time, fsp: u8) -> Time {
    Time::from_packed(time.packed(), fsp).unwrap_or(time)
}

fn midnight(time: Time) -> Time {
    let fields = time.fields();
    let date =
        TimeFields { year: fields.year, month: fields.month, day: fields.day, ..TimeFields::default() };
    Time::from_fields(&date, 0).unwrap_or(time)
}

/// Rounds half up to `fsp` fractional digits, carrying into the date where there is one.
pub(crate) fn round_time(time: Time, fsp: u8) -> Option<Time> {
    let unit = 10_i64.pow(u32::from(FSP_MAX - fsp.min(FSP_MAX)));
    let micros = i64::from(time.fields().microsecond);
    if micros % unit == 0 {
        return Some(with_fsp(time, fsp));
    }
    let rounded = (micros + unit / 2) / unit * unit;
    match time.unix_micros() {
        Some(at) => Time::from_unix_micros(at - micros + rounded, fsp),
        None => {
            let carry = u8::from(rounded >= 1_000_000);
            let mut fields = time.fields();
            fields.microsecond = u32::try_from(rounded % 1_000_000).ok()?;
            fields.second += carry;
            Time::from_fields(&fields, fsp)
        }
    }
}

/// Rounds to `fsp` fractional digits, halves upwards (so a negative half goes towards zero).
pub(crate) fn round_duration(duration: Duration, fsp: u8) -> Duration {
    let unit = 10_i64.pow(9 - u32::from(fsp.min(FSP_MAX)));
    let nanos = duration.nanos().clamp(-DURATION_NANOS_MAX, DURATION_NANOS_MAX);
    Duration::new((nanos + unit / 2).div_euclid(unit) * unit, fsp)
}

/// The time of day.
pub(crate) fn clock_of(time: Time) -> Duration {
    let fields = time.fields();
    let seconds = i64::from(fields.hour) * 3600 + i64::from(fields.minute) * 60 + i64::from(fields.second);
    Duration::new(seconds * NANOS_PER_SECOND + i64::from(fields.microsecond) * 1000, time.fsp())
}

/// The time that is `duration` after the beginning of `day`.
fn on_day(duration: Duration, day: i64) -> Option<Time> {
    let (year, month, date) = civil_from_days(day);
    let text = format!("{year:04}-{month:02}-{date:02}");
    let start = Time::parse(&text, FSP_MAX)?.unix_micros()?;
    Time::from_unix_micros(start + duration.nanos() / 1000, duration.fsp())
}

/// `2024-01-02 03:04:05.6` is 20240102030405.6, a DATE only its eight digits.
pub(crate) fn time_number(time: Time, date_only: bool) -> Decimal {
    if time.is_zero() {
        return Decimal::ZERO;
    }
    let mut text = Vec::new();
    if date_only {
        time.write_date(&mut text)
    } else {
        time.write_datetime(&mut text)
    }
    text.retain(|byte| byte.is_ascii_digit() || *byte == b'.');
    Decimal::parse(&String::from_utf8_lossy(&text)).unwrap_or(Decimal::ZERO)
}

/// Two-digit years mean 1970 to 2069.
const fn full_year(year: i64) -> i64 {
    match year {
        0..=69 => 2000 + year,
        70..=99 => 1900 + year,
        other => other,
    }
}

/// `[year, month, day, hour, minute, second]` and microseconds as a time.
fn assemble(parts: [i64; 6], micros: i64, fsp: u8) -> Option<Time> {
    let small = |value: i64| u8::try_from(value).ok();
    let [year, month, day, hour, minute, second] = parts;
    let fields = TimeFields {
        year: u16::try_from(year).ok()?,
        month: small(month)?,
        day: small(day)?,
        hour: small(hour).filter(|hour| *hour < 24)?,
        minute: small(minute).filter(|minute| *minute < 60)?,
        second: small(second).filter(|second| *second < 60)?,
        microsecond: 0,
    };
    let time = Time::from_fields(&fields, fsp)?;
    if micros < 1_000_000 {
        let fields = TimeFields { microsecond: u32::try_from(micros).ok()?, ..fields };
        return Time::from_fields(&fields, fsp);
    }
    // The fraction rounded up to a whole second.
    Time::from_unix_micros(time.unix_micros()? + micros, fsp)
}

/// A time out of the digits of a number: `YYMMDD`, `YYYYMMDD`, `YYMMDDhhmmss` or `YYYYMMDDhhmmss`.
pub(crate) fn datetime_from_number(number: i64) -> Option<Time> {
    const DAY: i64 = 1_000_000;
    let full = match number {
        0 => return Time::from_packed(0, 0),
        i64::MIN..=100 => return None,
        101..=691_231 => (number + 20_000_000) * DAY,
        691_232..=700_100 => return None,
        700_101..=991_231 => (number + 19_000_000) * DAY,
        991_232..=99_991_231 => number * DAY,
        99_991_232..=100_999_999 => return None,
        101_000_000..=691_231_235_959 => number + 20_000_000 * DAY,
        691_231_235_960..=700_100_999_999 => return None,
        700_101_000_000..=991_231_235_959 => number + 19_000_000 * DAY,
        _ => number,
    };
    let (date, clock) = (full / DAY, full % DAY);
    let parts = [date / 10_000, date / 100 % 100, date % 100, clock / 10_000, clock / 100 % 100, clock % 100];
    assemble(parts, 0, 0)
}

/// A time out of a text: parts separated by any punctuation, or digits only. `float`: the text is that of a
/// decimal number, whose fraction is no time of day.
pub(crate) fn datetime_from_text(text: &str, fsp: u8, float: bool) -> Option<Time> {
    let text = text.trim();
    if float {
        let (digits, fraction) = text.split_once('.').unwrap_or((text, ""));
        let number: i64 = digits.parse().ok()?;
        let micros = if digits.len() >= 9 { round_fraction(fraction, fsp)? } else { 0 };
        let fields = datetime_from_number(number)?.fields();
        return assemble(spread(fields), micros, fsp);
    }
    let (parts, fraction) = split_parts(text)?;
    let number = |at: usize| -> Option<i64> { parts.get(at).map_or(Some(0), |part| part.parse().ok()) };
    match parts.len() {
        0 | 2 => None,
        1 => compact(parts.first()?, fraction, fsp),
        count => {
            let mut fields = [number(0)?, number(1)?, number(2)?, number(3)?, number(4)?, number(5)?];
            let zero = fields == [0; 6] && fraction.is_empty();
            if parts.first().is_some_and(|year| year.len() <= 2) && !zero {
                fields[0] = full_year(fields[0]);
            }
            let micros = if count >= 6 { round_fraction(fraction, fsp)? } else { 0 };
            assemble(fields, micros, fsp)
        }
    }
}

fn spread(fields: TimeFields) -> [i64; 6] {
    let TimeFields { year, month, day, hour, minute, second, .. } = fields;
    [year.into(), month.into(), day.into(), hour.into(), minute.into(), second.into()]
}

/// Splits a text at punctuation and at the blank or `T` before the time of day; digits after a point that
/// ends a whole time are its fraction.
fn split_parts(text: &str) -> Option<(Vec<&str>, &str)> {
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (digits, tail) = rest.split_at_checked(end)?;
        if digits.is_empty() {
            return None;
        }
        parts.push(digits);
        let Some(separator) = tail.chars().next() else { return Some((parts, "")) };
        let compact = parts.len() == 1 && digits.len() > 4;
        if separator == '.' && (parts.len() >= 6 || compact) {
            let fraction = tail.strip_prefix('.')?;
            let end = fraction.find(|c: char| !c.is_ascii_digit()).unwrap_or(fraction.len());
            return Some((parts, fraction.get(..end)?));
        }
        let between = parts.len() == 3 && (separator.is_ascii_whitespace() || separator == 'T');
        if parts.len() >= 6 {
            return Some((parts, ""));
        }
        if !separator.is_ascii_punctuation() && !between {
            return None;
        }
        let skipped = |c: char| {
            c.is_ascii_punctuation() || (between && c.is_ascii_whitespace()) || (between && c == 'T')
        };
        rest = tail.trim_start_matches(skipped);
        if rest.is_empty() {
            return Some((parts, ""));
        }
    }
}

/// Digits without separators.
fn compact(digits: &str, fraction: &str, fsp: u8) -> Option<Time> {
    let (year_len, widths): (usize, &[usize]) = match digits.len() {
        14 => (4, &[2, 2, 2, 2, 2]),
        12 => (2, &[2, 2, 2, 2, 2]),
        11 => (2, &[2, 2, 2, 2, 1]),
        10 => (2, &[2, 2, 2, 2]),
        9 => (2, &[2, 2, 2, 1]),
        8 => (4, &[2, 2]),
        7 => (2, &[2, 2, 1]),
        6 => (2, &[2, 2]),
        5 => (2, &[2, 1]),
        _ => return None,
    };
    let (year, mut rest) = digits.split_at_checked(year_len)?;
    let year: i64 = year.parse().ok()?;
    let mut fields = [if year_len == 2 { full_year(year) } else { year }, 0, 0, 0, 0, 0];
    for (field, width) in fields.iter_mut().skip(1).zip(widths) {
        let (part, tail) = rest.split_at_checked(*width)?;
        *field = part.parse().ok()?;
        rest = tail;
    }
    let whole = matches!(digits.len(), 11 | 12 | 14);
    if !whole {
        // A fraction continues the digits: hours, minutes, seconds after a date, seconds after minutes.
        let from = if matches!(digits.len(), 9 | 10) { 5 } else { 3 };
        let mut tail = if digits.len() == 7 { "" } else { fraction };
        for field in fields.iter_mut().skip(from) {
            let (part, after) = tail.split_at(tail.len().min(2));
            *field = if part.is_empty() { 0 } else { part.parse().ok()? };
            tail = after;
        }
        return assemble(fields, 0, fsp);
    }
    assemble(fields, round_fraction(fraction, fsp)?, fsp)
}

/// Microseconds of fractional digits, rounded to `fsp` digits; a whole second if they round up to one.
fn round_fraction(fraction: &str, fsp: u8) -> Option<i64> {
    let kept = usize::from(fsp.min(FSP_MAX));
    let digits = fraction.as_bytes();
    let value = |digits: &[u8]| digits.iter().fold(0_i64, |sum, digit| sum * 10 + i64::from(digit - b'0'));
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let head = digits.get(..kept.min(digits.len()))?;
    let scale = |len: usize| 10_i64.pow(u32::try_from(6 - len.min(6)).unwrap_or(0));
    let up = digits.get(kept).is_some_and(|digit| *digit >= b'5');
    Some(value(head) * scale(head.len()) + if up { scale(kept) } else { 0 })
}

/// A time span out of a text, and whether all of it was understood. What is no time is zero; what is too
/// long is the longest TIME.
pub(crate) fn duration_from_text(text: &str, fsp: u8) -> (Duration, bool) {
    let text = text.trim();
    match match_duration(text, fsp) {
        Some((duration, true)) => (duration, true),
        partial => match from_datetime_text(text, fsp) {
            Some(duration) => (duration, true),
            None => (partial.map_or(Duration::new(0, fsp), |(duration, _)| duration), false),
        },
    }
}

/// A whole DATETIME where a TIME is wanted gives its time of day.
fn from_datetime_text(text: &str, fsp: u8) -> Option<Duration> {
    let lead = text.bytes().take_while(u8::is_ascii_digit).count();
    let dated = text.split(|c: char| !c.is_ascii_digit()).take(3).filter(|part| !part.is_empty()).count()
        == 3
        && text.contains([' ', 'T'])
        && !text.starts_with('-');
    if !(lead == 12 || lead == 14 || dated) {
        return None;
    }
    let time = datetime_from_text(text, FSP_MAX, false).filter(|time| is_sound(*time, SqlType::DateTime))?;
    Some(round_duration(clock_of(time), fsp))
}

/// `[-][days ]hh:mm[:ss][.frac]` or `[-]hhmmss[.frac]`; `false` when something was left over or the span was
/// clipped.
fn match_duration(text: &str, fsp: u8) -> Option<(Duration, bool)> {
    let (negative, rest) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let rest = rest.trim_start();
    let length = rest.len();
    let (mut hms, rest) = clock_parts(rest)?;
    let rest = rest.trim_start();
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(tail) => tail.split_at(tail.bytes().take_while(u8::is_ascii_digit).count()),
        None => ("", rest),
    };
    let micros = round_fraction(fraction, fsp)?;
    if !rest.is_empty() && length >= 12 {
        return None;
    }
    if hms[1] > 59 || hms[2] > 59 {
        return None;
    }
    // Anything beyond the largest hour is clipped below, whatever minutes it has.
    hms[0] = hms[0].min(DURATION_SECONDS_MAX / 3600 + 1);
    let seconds = hms[0] * 3600 + hms[1] * 60 + hms[2];
    let nanos = (seconds * 1_000_000 + micros) * 1000;
    let clipped = nanos.min(DURATION_SECONDS_MAX * NANOS_PER_SECOND);
    let duration = Duration::new(if negative { -clipped } else { clipped }, fsp);
    Some((duration, rest.is_empty() && clipped == nanos))
}

/// Hours, minutes and seconds at the front of `text`, and what follows them.
fn clock_parts(text: &str) -> Option<([i64; 3], &str)> {
    let (first, rest) = leading_number(text)?;
    let after_blank = rest.trim_start();
    if after_blank.len() < rest.len()
        && let Some((hms, rest)) = delimited(after_blank)
    {
        return Some(([hms[0] + first.checked_mul(24)?, hms[1], hms[2]], rest));
    }
    if let Some((hms, rest)) = delimited(text).filter(|_| after_blank.starts_with(':')) {
        return Some((hms, rest));
    }
    Some(([first / 10_000, first / 100 % 100, first % 100], rest))
}

/// `hh[:mm[:ss]]`, blanks allowed around the colons.
fn delimited(text: &str) -> Option<([i64; 3], &str)> {
    let (hours, mut rest) = leading_number(text)?;
    let mut hms = [hours, 0, 0];
    for part in hms.iter_mut().skip(1) {
        let Some(tail) = rest.trim_start().strip_prefix(':') else { break };
        let (number, tail) = leading_number(tail.trim_start())?;
        *part = number;
        rest = tail;
    }
    Some((hms, rest))
}

fn leading_number(text: &str) -> Option<(i64, &str)> {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at_checked(end)?;
    Some((digits.parse().ok()?, rest))
}
