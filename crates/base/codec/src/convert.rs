//! Conversion between column types, with the outcome that TiDB gives when it does not refuse: numbers are
//! clipped to their range, texts cut to their length, impossible times become zero.
//!
//! Two things need it: rows that MODIFY COLUMN should have rewritten (TiKV's change feed leaves those writes
//! out, `reference/tidb-keys-and-rows.md` §7.1), and the results of generated columns. A statement in strict
//! mode fails where a lenient one clips, so whatever was accepted has the value computed here.

mod datetime;
mod number;
mod string;

use std::borrow::Cow;

use crate::decimal::Decimal;
use crate::json::{Json, JsonNode};
use crate::meta::{FieldType, SqlType};
use crate::time::{Duration, Time};
use crate::value::Value;
use crate::vector::Vector;

pub(crate) use datetime::{clock_of, datetime_from_number, datetime_from_text, duration_from_text};
pub(crate) use number::{Number, number_of};
pub(crate) use string::{fit_bytes, fit_text, plain_text};

/// Where conversions depend on more than value and type.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// Whether a negative number becomes 0 in an unsigned column (as in writes and DDL) or wraps around (as
    /// inside a SELECT).
    pub clip_negative: bool,
    /// The day that a TIME falls on when it becomes a DATETIME, in days since 1970-01-01.
    pub today: i64,
}

/// The conversion is one that TiDB refuses, so no accepted statement can have asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no conversion into this type")]
pub struct Unconvertible;

/// `value` as a value of type `to`.
///
/// # Errors
/// TiDB refuses the pair of types, or the value in particular (a text that is no JSON).
pub fn convert(value: &Value<'_>, to: &FieldType, context: Context) -> Result<Value<'static>, Unconvertible> {
    if matches!(value, Value::Null | Value::Virtual) {
        return Ok(Value::Null);
    }
    match to.tp {
        tp if tp.is_integer() => Ok(integer(value, to, context)),
        SqlType::Float | SqlType::Double => Ok(float(value, to)),
        SqlType::Decimal => decimal(value, to).map(Value::Decimal),
        tp if tp.is_char() || tp.is_blob() => Ok(string::convert(value, to)),
        SqlType::Date | SqlType::DateTime | SqlType::Timestamp => datetime::to_time(value, to, context),
        SqlType::Time => datetime::to_duration(value, to),
        SqlType::Year => year(value),
        SqlType::Enum => Ok(enumeration(value, to, context)),
        SqlType::Set => Ok(set(value, to, context)),
        SqlType::Bit => Ok(bit(value, to, context)),
        SqlType::Json => json(value),
        SqlType::Vector => vector(value),
        _ => Err(Unconvertible),
    }
}

/// Least and greatest value of a signed integer type, and greatest of its unsigned form.
const fn integer_bounds(tp: SqlType) -> (i64, i64, u64) {
    match tp {
        SqlType::TinyInt => (i8::MIN as i64, i8::MAX as i64, u8::MAX as u64),
        SqlType::SmallInt => (i16::MIN as i64, i16::MAX as i64, u16::MAX as u64),
        SqlType::MediumInt => (-(1 << 23), (1 << 23) - 1, (1 << 24) - 1),
        SqlType::Int => (i32::MIN as i64, i32::MAX as i64, u32::MAX as u64),
        _ => (i64::MIN, i64::MAX, u64::MAX),
    }
}

fn integer(value: &Value<'_>, to: &FieldType, context: Context) -> Value<'static> {
    let (least, greatest, greatest_unsigned) = integer_bounds(to.tp);
    if to.unsigned() {
        return Value::UInt(number_of(value).to_u64(context.clip_negative).min(greatest_unsigned));
    }
    // Signed integers take times rounded to whole seconds first, so that 59.5 seconds carry into the minute;
    // unsigned ones round the digits. So does TiDB.
    let rounded = match value {
        Value::DateTime(time) | Value::Timestamp(time) => datetime::round_time(*time, 0).map(Value::DateTime),
        Value::Duration(duration) => Some(Value::Duration(datetime::round_duration(*duration, 0))),
        _ => None,
    };
    Value::Int(number_of(rounded.as_ref().unwrap_or(value)).to_i64().clamp(least, greatest))
}

fn float(value: &Value<'_>, to: &FieldType) -> Value<'static> {
    let mut number = number_of(value).to_f64();
    if to.flen >= 0 && to.decimal >= 0 {
        number = number::truncate_float(number, to.flen, to.decimal);
    }
    if to.unsigned() && number < 0.0 {
        number = 0.0;
    }
    if to.tp == SqlType::Double {
        return Value::Double(number);
    }
    let limit = f64::from(f32::MAX);
    #[expect(clippy::cast_possible_truncation, reason = "rounding to float32 is what storing a FLOAT does")]
    Value::Float(number.clamp(-limit, limit) as f32)
}

/// The number with the scale of its new column; one too large becomes the column's largest.
fn decimal(value: &Value<'_>, to: &FieldType) -> Result<Decimal, Unconvertible> {
    let number = number_of(value).to_decimal();
    let (Ok(precision), Ok(scale)) = (u8::try_from(to.flen), u8::try_from(to.decimal)) else {
        return Ok(number);
    };
    if to.unsigned() && number.is_negative() {
        return Decimal::ZERO.with_scale(scale).ok_or(Unconvertible);
    }
    let fits = number
        .with_scale(scale)
        .filter(|number| number.int_digits() + usize::from(scale) <= usize::from(precision));
    fits.or_else(|| Decimal::largest(number.is_negative(), precision, scale)).ok_or(Unconvertible)
}

/// Two-digit years mean 1970 to 2069; others are clipped to what YEAR can hold.
fn year(value: &Value<'_>) -> Result<Value<'static>, Unconvertible> {
    let number = match value {
        Value::Date(time) | Value::DateTime(time) | Value::Timestamp(time) => i64::from(time.fields().year),
        other => number_of(other).to_i64(),
    };
    // A text such as `0` or `00`, but not `0000`, means 2000.
    let short_zero = match value {
        Value::Text(text) => text.len() != 4 && number == 0 && text.trim().starts_with('0'),
        _ => false,
    };
    let year = match number {
        0 if !short_zero => 0,
        0..=69 => 2000 + number,
        70..=99 => 1900 + number,
        negative if negative < 0 => 0,
        other => other.clamp(1901, 2155),
    };
    u16::try_from(year).map(Value::Year).map_err(|_| Unconvertible)
}

/// By name, for values that have one, else by number; what names no member becomes the empty value.
fn enumeration(value: &Value<'_>, to: &FieldType, context: Context) -> Value<'static> {
    let by_name =
        |name: &str| string::member(to, name).map(|at| at + 1).or_else(|| string::number_text(name));
    let index = match value {
        Value::Enum { index: 0, .. } => Some(0),
        Value::Text(_) | Value::Bytes(_) | Value::Enum { .. } | Value::Set { .. } => {
            by_name(&plain_text(value))
        }
        other => Some(number_of(other).to_u64(context.clip_negative)),
    };
    let at = index.and_then(|index| usize::try_from(index).ok()).and_then(|index| index.checked_sub(1));
    match (index, at.and_then(|at| to.elems.get(at))) {
        (Some(index), Some(name)) => Value::Enum { index, name: Cow::Owned(name.clone()) },
        _ => Value::Enum { index: 0, name: Cow::Borrowed("") },
    }
}

fn set(value: &Value<'_>, to: &FieldType, context: Context) -> Value<'static> {
    let by_name = |names: &str| string::member_bits(to, names).or_else(|| string::number_text(names));
    let bits = match value {
        Value::Text(_) | Value::Bytes(_) | Value::Enum { .. } | Value::Set { .. } => {
            by_name(&plain_text(value))
        }
        other => Some(number_of(other).to_u64(context.clip_negative)),
    };
    let members = u32::try_from(to.elems.len()).unwrap_or(u32::MAX);
    let known = bits.filter(|bits| bits.checked_shr(members).unwrap_or(0) == 0);
    Value::Set { bits: known.unwrap_or(0), elems: Cow::Owned(to.elems.clone()) }
}

/// A number too large becomes all ones.
fn bit(value: &Value<'_>, to: &FieldType, context: Context) -> Value<'static> {
    let width = u8::try_from(to.flen.clamp(1, 64)).unwrap_or(64);
    let bits = match value {
        // Bits come from bytes as they stand, not from the number that a text shows.
        Value::Text(text) => number::big_endian(text.as_bytes()),
        Value::Bytes(bytes) => number::big_endian(bytes),
        // A signed integer is taken bit by bit.
        Value::Int(int) => int.cast_unsigned(),
        other => number_of(other).to_u64(context.clip_negative),
    };
    let ones = u64::MAX >> (64 - u32::from(width));
    Value::Bit { bits: bits.min(ones), width }
}

fn json(value: &Value<'_>) -> Result<Value<'static>, Unconvertible> {
    let parsed = |text: &str| Json::parse(text).ok_or(Unconvertible);
    let json = match value {
        Value::Json(json) => json.reborrow().into_owned(),
        Value::Text(_) | Value::Bytes(_) | Value::Enum { .. } | Value::Set { .. } => {
            parsed(&plain_text(value))?
        }
        Value::Int(int) => Json::from_int(*int),
        Value::Year(year) => Json::from_int(i64::from(*year)),
        Value::UInt(uint) => Json::from_uint(*uint),
        Value::Date(time) => Json::from_date(*time),
        Value::DateTime(time) => Json::from_datetime(*time, false),
        Value::Timestamp(time) => Json::from_datetime(*time, true),
        Value::Duration(duration) => Json::from_duration(*duration),
        Value::Float(_) | Value::Double(_) | Value::Decimal(_) => {
            Json::from_double(number_of(value).to_f64())
        }
        other => Json::from_string(&plain_text(other)),
    };
    Ok(Value::Json(json))
}

fn vector(value: &Value<'_>) -> Result<Value<'static>, Unconvertible> {
    let vector = match value {
        Value::Vector(vector) => vector.reborrow().into_owned(),
        other => Vector::parse(&plain_text(other)).ok_or(Unconvertible)?,
    };
    Ok(Value::Vector(vector))
}

/// What a JSON value is when something other than JSON is asked for: a string without its quotes, else its
/// text.
pub(crate) fn unquoted(json: &Json<'_>) -> String {
    match json.root().node() {
        Ok(JsonNode::String(text)) => String::from_utf8_lossy(text).into_owned(),
        Ok(JsonNode::Date(_) | JsonNode::DateTime(_) | JsonNode::Duration(_)) => {
            plain_text(&Value::Json(json.reborrow())).trim_matches('"').to_owned()
        }
        _ => plain_text(&Value::Json(json.reborrow())),
    }
}

/// A calendar time of the type that `to` names.
pub(crate) fn time_value(tp: SqlType, time: Time) -> Value<'static> {
    match tp {
        SqlType::Date => Value::Date(time),
        SqlType::Timestamp => Value::Timestamp(time),
        _ => Value::DateTime(time),
    }
}

/// A time span as a value.
pub(crate) const fn duration_value(duration: Duration) -> Value<'static> {
    Value::Duration(duration)
}

#[cfg(test)]
mod tests;
