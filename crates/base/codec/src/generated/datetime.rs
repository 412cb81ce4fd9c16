//! Date and time functions.

use std::borrow::Cow;
use std::fmt::Write as _;

use super::{GeneratedError, Result};
use crate::convert::{
    clock_of, datetime_from_number, datetime_from_text, duration_from_text, number_of, plain_text, unquoted,
};
use crate::time::{Duration, FSP_MAX, Time, TimeFields, days_from_civil};
use crate::value::Value;

/// Days from year 0 to 1970-01-01, as `TO_DAYS` counts.
const EPOCH_DAY_NUMBER: i64 = 719_528;
const MICROS_PER_DAY: i64 = 86_400_000_000;
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// The calendar time that a value means; `None` makes the function's result NULL.
fn time_of(value: &Value<'_>) -> Option<Time> {
    let time = match value {
        Value::Date(time) | Value::DateTime(time) | Value::Timestamp(time) => Some(*time),
        Value::Text(text) => datetime_from_text(text, FSP_MAX, false),
        Value::Json(json) => datetime_from_text(&unquoted(json), FSP_MAX, false),
        Value::Int(_) | Value::UInt(_) | Value::Year(_) => datetime_from_number(number_of(value).to_i64()),
        Value::Decimal(decimal) => datetime_from_text(&decimal.to_string(), FSP_MAX, true),
        _ => None,
    }?;
    let fields = time.fields();
    (fields.day <= 28 || fields.day <= month_days(i64::from(fields.year), i64::from(fields.month)))
        .then_some(time)
}

fn duration_of(value: &Value<'_>) -> Option<Duration> {
    match value {
        Value::Duration(duration) => Some(*duration),
        Value::Date(time) | Value::DateTime(time) | Value::Timestamp(time) => Some(clock_of(*time)),
        other => {
            let (duration, whole) = duration_from_text(&plain_text(other), FSP_MAX);
            whole.then_some(duration)
        }
    }
}

fn month_days(year: i64, month: i64) -> u8 {
    let next =
        if month == 12 { days_from_civil(year + 1, 1, 1) } else { days_from_civil(year, month + 1, 1) };
    u8::try_from(next - days_from_civil(year, month.max(1), 1)).unwrap_or(31)
}

/// Days since 1970-01-01 of the date part; `None` for dates with zero parts.
fn day_of(time: Time) -> Option<i64> {
    Some(time.unix_micros()?.div_euclid(MICROS_PER_DAY))
}

/// 0 for Monday.
fn weekday(time: Time) -> Option<i64> {
    // 1970-01-01 was a Thursday.
    Some((day_of(time)? + 3).rem_euclid(7))
}

fn day_of_year(time: Time) -> Option<i64> {
    Some(day_of(time)? - days_from_civil(i64::from(time.fields().year), 1, 1) + 1)
}

fn or_null(value: Option<i64>) -> Result<Value<'static>> {
    Ok(value.map_or(Value::Null, Value::Int))
}

pub(super) fn call(name: &str, arguments: &[Value<'static>]) -> Result<Value<'static>> {
    let field = |value: &Value<'static>, get: fn(TimeFields) -> i64| {
        or_null(time_of(value).map(|time| get(time.fields())))
    };
    match (name, arguments) {
        ("year", [x]) => field(x, |fields| fields.year.into()),
        ("month", [x]) => field(x, |fields| fields.month.into()),
        ("quarter", [x]) => field(x, |fields| i64::from(fields.month.div_ceil(3))),
        ("day" | "dayofmonth", [x]) => field(x, |fields| fields.day.into()),
        ("hour" | "minute" | "second" | "microsecond", [x]) => {
            or_null(duration_of(x).map(|span| clock_part(name, span)))
        }
        ("dayofweek", [x]) => or_null(time_of(x).and_then(weekday).map(|day| (day + 1) % 7 + 1)),
        ("weekday", [x]) => or_null(time_of(x).and_then(weekday)),
        ("dayofyear", [x]) => or_null(time_of(x).and_then(day_of_year)),
        ("dayname", [x]) => named(time_of(x).and_then(weekday), &WEEKDAYS),
        ("monthname", [x]) => named(time_of(x).map(|time| i64::from(time.fields().month) - 1), &MONTHS),
        ("to_days", [x]) => or_null(time_of(x).and_then(day_of).map(|day| day + EPOCH_DAY_NUMBER)),
        ("to_seconds", [x]) => {
            let seconds =
                |time: Time| Some(time.unix_micros()?.div_euclid(1_000_000) + EPOCH_DAY_NUMBER * 86_400);
            or_null(time_of(x).and_then(seconds))
        }
        ("from_days", [x]) => Ok(date_value(number_of(x).to_i64() - EPOCH_DAY_NUMBER)),
        ("unix_timestamp", [x]) => {
            or_null(time_of(x).and_then(|time| Some(time.unix_micros()?.div_euclid(1_000_000).max(0))))
        }
        ("date", [x]) => Ok(time_of(x).and_then(midnight).map_or(Value::Null, Value::Date)),
        ("time", [x]) => Ok(duration_of(x).map_or(Value::Null, Value::Duration)),
        ("timestamp", [x]) => Ok(time_of(x).map_or(Value::Null, Value::DateTime)),
        ("last_day", [x]) => Ok(time_of(x).and_then(last_day).map_or(Value::Null, Value::Date)),
        ("datediff", [x, y]) => {
            let day = |value: &Value<'_>| time_of(value).and_then(day_of);
            or_null(day(x).zip(day(y)).map(|(x, y)| x - y))
        }
        ("makedate", [year, day]) => {
            let (year, day) = (number_of(year).to_i64(), number_of(day).to_i64());
            let sound = (0..=9999).contains(&year) && (1..=366 * 9999).contains(&day);
            Ok(if sound { date_value(days_from_civil(year, 1, 1) + day - 1) } else { Value::Null })
        }
        ("extract", [unit, x]) => extract(&plain_text(unit), x),
        ("timestampdiff", [unit, x, y]) => {
            or_null(time_of(x).zip(time_of(y)).and_then(|(x, y)| difference(&plain_text(unit), x, y)))
        }
        ("timestampadd", [unit, amount, x]) => add_interval(x, amount, &plain_text(unit), false),
        ("date_format", [x, format]) => match time_of(x) {
            Some(time) => Ok(Value::Text(Cow::Owned(formatted(time, &plain_text(format))?))),
            None => Ok(Value::Null),
        },
        ("time_to_sec", [x]) => or_null(duration_of(x).map(|span| span.nanos() / 1_000_000_000)),
        ("sec_to_time", [x]) => {
            let seconds = number_of(x).to_i64().clamp(-3_020_399, 3_020_399);
            Ok(Value::Duration(Duration::new(seconds * 1_000_000_000, 0)))
        }
        _ => Err(GeneratedError::Unsupported(format!("function {name}"))),
    }
}

fn clock_part(name: &str, span: Duration) -> i64 {
    let micros = i64::try_from(span.nanos().unsigned_abs() / 1000).unwrap_or(0);
    match name {
        "hour" => micros / 3_600_000_000,
        "minute" => micros / 60_000_000 % 60,
        "second" => micros / 1_000_000 % 60,
        _ => micros % 1_000_000,
    }
}

fn named(index: Option<i64>, names: &[&'static str]) -> Result<Value<'static>> {
    let name = index.and_then(|index| usize::try_from(index).ok()).and_then(|index| names.get(index));
    Ok(name.map_or(Value::Null, |name| Value::Text(Cow::Borrowed(name))))
}

fn date_value(day: i64) -> Value<'static> {
    let time = day.checked_mul(MICROS_PER_DAY).and_then(|micros| Time::from_unix_micros(micros, 0));
    time.map_or(Value::Null, Value::Date)
}

fn midnight(time: Time) -> Option<Time> {
    let fields = time.fields();
    let date =
        TimeFields { year: fields.year, month: fields.month, day: fields.day, ..TimeFields::default() };
    Time::from_fields(&date, 0)
}

fn last_day(time: Time) -> Option<Time> {
    let fields = time.fields();
    if fields.month == 0 {
        return None;
    }
    let day = month_days(i64::from(fields.year), i64::from(fields.month));
    Time::from_fields(&TimeFields { year: fields.year, month: fields.month, day, ..TimeFields::default() }, 0)
}

fn extract(unit: &str, value: &Value<'_>) -> Result<Value<'static>> {
    let time = time_of(value);
    let fields = time.map(Time::fields);
    let combined = |get: fn(TimeFields) -> i64| or_null(fields.map(get));
    match unit {
        "year" => combined(|f| f.year.into()),
        "quarter" => combined(|f| i64::from(f.month.div_ceil(3))),
        "month" => combined(|f| f.month.into()),
        "day" => combined(|f| f.day.into()),
        "hour" | "minute" | "second" | "microsecond" => {
            or_null(duration_of(value).map(|span| clock_part(unit, span)))
        }
        "year_month" => combined(|f| i64::from(f.year) * 100 + i64::from(f.month)),
        "day_hour" => combined(|f| i64::from(f.day) * 100 + i64::from(f.hour)),
        "day_minute" => {
            combined(|f| (i64::from(f.day) * 100 + i64::from(f.hour)) * 100 + i64::from(f.minute))
        }
        "hour_minute" => combined(|f| i64::from(f.hour) * 100 + i64::from(f.minute)),
        "minute_second" => combined(|f| i64::from(f.minute) * 100 + i64::from(f.second)),
        "hour_second" => {
            combined(|f| (i64::from(f.hour) * 100 + i64::from(f.minute)) * 100 + i64::from(f.second))
        }
        _ => Err(GeneratedError::Unsupported(format!("extract {unit}"))),
    }
}

/// Whole units from `x` to `y`.
fn difference(unit: &str, x: Time, y: Time) -> Option<i64> {
    let micros = y.unix_micros()? - x.unix_micros()?;
    let months = || {
        let (a, b) = (x.fields(), y.fields());
        let whole =
            (i64::from(b.year) * 12 + i64::from(b.month)) - (i64::from(a.year) * 12 + i64::from(a.month));
        let within = |f: TimeFields| (f.day, f.hour, f.minute, f.second, f.microsecond);
        match whole {
            n if n > 0 && within(b) < within(a) => n - 1,
            n if n < 0 && within(b) > within(a) => n + 1,
            n => n,
        }
    };
    Some(match unit {
        "microsecond" => micros,
        "second" => micros / 1_000_000,
        "minute" => micros / 60_000_000,
        "hour" => micros / 3_600_000_000,
        "day" => micros / MICROS_PER_DAY,
        "week" => micros / (7 * MICROS_PER_DAY),
        "month" => months(),
        "quarter" => months() / 3,
        "year" => months() / 12,
        _ => return None,
    })
}

/// `date ± INTERVAL amount unit`. The result is a DATE only if the date is one and the unit a whole day; a
/// text gives a text.
pub(super) fn add_interval(
    date: &Value<'_>,
    amount: &Value<'_>,
    unit: &str,
    subtract: bool,
) -> Result<Value<'static>> {
    if date.is_null() || amount.is_null() {
        return Ok(Value::Null);
    }
    let Some(time) = time_of(date) else { return Ok(Value::Null) };
    let Some((months, micros)) = interval(&plain_text(amount), unit)? else { return Ok(Value::Null) };
    let sign = if subtract { -1 } else { 1 };
    let fractional = time.fields().microsecond != 0 || micros % 1_000_000 != 0;
    let fsp = if fractional { FSP_MAX } else { time.fsp() };
    let Some(sum) = shifted(time, months.saturating_mul(sign), micros.saturating_mul(sign), fsp) else {
        return Ok(Value::Null);
    };
    let whole_days = matches!(unit, "day" | "week" | "month" | "quarter" | "year" | "year_month");
    let clockless = |time: Time| clock_of(time).nanos() == 0;
    match date {
        Value::Date(_) if whole_days => Ok(Value::Date(sum)),
        Value::Text(text) => {
            let dated = whole_days && !text.contains(':') && clockless(sum);
            let mut out = Vec::new();
            if dated {
                sum.write_date(&mut out)
            } else {
                with_fsp(sum, if fractional { FSP_MAX } else { 0 }).write_datetime(&mut out)
            }
            Ok(Value::Text(Cow::Owned(String::from_utf8_lossy(&out).into_owned())))
        }
        Value::Timestamp(_) => Ok(Value::Timestamp(sum)),
        _ => Ok(Value::DateTime(sum)),
    }
}

fn with_fsp(time: Time, fsp: u8) -> Time {
    Time::from_packed(time.packed(), fsp).unwrap_or(time)
}

/// Months (the day is cut to the month's last one), then microseconds.
fn shifted(time: Time, months: i64, micros: i64, fsp: u8) -> Option<Time> {
    let mut fields = time.fields();
    if months != 0 {
        if fields.month == 0 {
            return None;
        }
        let total = i64::from(fields.year) * 12 + i64::from(fields.month) - 1 + months;
        let (year, month) = (total.div_euclid(12), total.rem_euclid(12) + 1);
        fields.year = u16::try_from(year).ok().filter(|year| *year <= 9999)?;
        fields.month = u8::try_from(month).ok()?;
        fields.day = fields.day.min(month_days(year, month));
    }
    let time = Time::from_fields(&fields, fsp)?;
    Time::from_unix_micros(time.unix_micros()?.checked_add(micros)?, fsp)
}

/// An amount of a unit as months and microseconds; `None` when it is out of any range.
fn interval(amount: &str, unit: &str) -> Result<Option<(i64, i64)>> {
    let negative = amount.trim_start().starts_with('-');
    let parts: Vec<i64> = amount
        .split(|c: char| !c.is_ascii_digit())
        .filter(|part| !part.is_empty())
        .map(|part| part.parse().unwrap_or(i64::MAX))
        .collect();
    let scales: &[i64] = match unit {
        "microsecond" => &[1],
        "second" => return Ok(seconds(amount)),
        "minute" => &[60_000_000],
        "hour" => &[3_600_000_000],
        "day" => &[MICROS_PER_DAY],
        "week" => &[7 * MICROS_PER_DAY],
        "minute_second" => &[60_000_000, 1_000_000],
        "hour_second" => &[3_600_000_000, 60_000_000, 1_000_000],
        "hour_minute" => &[3_600_000_000, 60_000_000],
        "day_second" => &[MICROS_PER_DAY, 3_600_000_000, 60_000_000, 1_000_000],
        "day_minute" => &[MICROS_PER_DAY, 3_600_000_000, 60_000_000],
        "day_hour" => &[MICROS_PER_DAY, 3_600_000_000],
        "month" | "quarter" | "year" | "year_month" => &[],
        other => return Err(GeneratedError::Unsupported(format!("interval {other}"))),
    };
    let sign = if negative { -1 } else { 1 };
    let whole = || {
        let text = amount.trim();
        let number = crate::convert::Number::Text(text.to_owned()).to_i64();
        number.unsigned_abs()
    };
    let single = i64::try_from(whole()).unwrap_or(i64::MAX);
    let months = match unit {
        "month" => Some(single),
        "quarter" => single.checked_mul(3),
        "year" => single.checked_mul(12),
        "year_month" => {
            let mut parts = parts.iter().rev();
            let months = parts.next().copied().unwrap_or(0);
            parts.next().copied().unwrap_or(0).checked_mul(12).and_then(|years| years.checked_add(months))
        }
        _ => None,
    };
    if let Some(months) = months {
        return Ok(Some((months.saturating_mul(sign), 0)));
    }
    let micros = match scales {
        [scale] => single.checked_mul(*scale),
        scales => {
            // The last part belongs to the smallest unit, however many are given.
            let pairs = scales.iter().rev().zip(parts.iter().rev());
            pairs
                .map(|(scale, part)| part.checked_mul(*scale))
                .try_fold(0_i64, |sum, part| sum.checked_add(part?))
        }
    };
    Ok(micros.map(|micros| (0, micros.saturating_mul(sign))))
}

/// Seconds may have a fraction.
fn seconds(amount: &str) -> Option<(i64, i64)> {
    let number = crate::convert::Number::Text(amount.trim().to_owned()).to_decimal();
    let micros = number.checked_mul(&crate::decimal::Decimal::from(1_000_000_i64))?.to_i64();
    Some((0, micros))
}

/// `DATE_FORMAT`.
fn formatted(time: Time, format: &str) -> Result<String> {
    let fields = time.fields();
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let Some(specifier) = chars.next() else { break };
        let hour12 = (fields.hour + 11) % 12 + 1;
        let name = |names: &[&'static str], index: Option<i64>| {
            index.and_then(|at| usize::try_from(at).ok()).and_then(|at| names.get(at)).copied().unwrap_or("")
        };
        let month = Some(i64::from(fields.month) - 1);
        let written = match specifier {
            'Y' => write!(out, "{:04}", fields.year),
            'y' => write!(out, "{:02}", fields.year % 100),
            'm' => write!(out, "{:02}", fields.month),
            'c' => write!(out, "{}", fields.month),
            'd' => write!(out, "{:02}", fields.day),
            'e' => write!(out, "{}", fields.day),
            'D' => write!(out, "{}{}", fields.day, ordinal(fields.day)),
            'H' => write!(out, "{:02}", fields.hour),
            'k' => write!(out, "{}", fields.hour),
            'h' | 'I' => write!(out, "{hour12:02}"),
            'l' => write!(out, "{hour12}"),
            'i' => write!(out, "{:02}", fields.minute),
            's' | 'S' => write!(out, "{:02}", fields.second),
            'f' => write!(out, "{:06}", fields.microsecond),
            'p' => write!(out, "{}", if fields.hour < 12 { "AM" } else { "PM" }),
            'T' => write!(out, "{:02}:{:02}:{:02}", fields.hour, fields.minute, fields.second),
            'r' => {
                let half = if fields.hour < 12 { "AM" } else { "PM" };
                write!(out, "{hour12:02}:{:02}:{:02} {half}", fields.minute, fields.second)
            }
            'j' => write!(out, "{:03}", day_of_year(time).unwrap_or(0)),
            'w' => write!(out, "{}", weekday(time).map_or(0, |day| (day + 1) % 7)),
            'W' => write!(out, "{}", name(&WEEKDAYS, weekday(time))),
            'a' => write!(out, "{}", name(&WEEKDAYS, weekday(time)).get(..3).unwrap_or("")),
            'M' => write!(out, "{}", name(&MONTHS, month)),
            'b' => write!(out, "{}", name(&MONTHS, month).get(..3).unwrap_or("")),
            'U' | 'u' | 'V' | 'v' | 'X' | 'x' => {
                return Err(GeneratedError::Unsupported(format!("date_format %{specifier}")));
            }
            other => write!(out, "{other}"),
        };
        written.expect("writing to memory cannot fail");
    }
    Ok(out)
}

const fn ordinal(day: u8) -> &'static str {
    match (day / 10, day % 10) {
        (1, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    }
}
