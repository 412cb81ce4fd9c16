//! Numbers out of values of any type.

use crate::convert::datetime::time_number;
use crate::decimal::Decimal;
use crate::json::{Json, JsonNode};
use crate::time::Duration;
use crate::value::Value;

/// A value seen as a number, as exact as its type allows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Number {
    Int(i64),
    UInt(u64),
    Float(f64),
    Decimal(Decimal),
    /// A text; its longest numeric prefix counts.
    Text(String),
}

/// The number that a value stands for: ENUM and SET by position and bits, times as their digits.
pub(crate) fn number_of(value: &Value<'_>) -> Number {
    match value {
        Value::Null | Value::Virtual => Number::Int(0),
        Value::Int(int) => Number::Int(*int),
        Value::Year(year) => Number::Int(i64::from(*year)),
        Value::UInt(uint) => Number::UInt(*uint),
        Value::Float(float) => Number::Float(f64::from(*float)),
        Value::Double(double) => Number::Float(*double),
        Value::Decimal(decimal) => Number::Decimal(*decimal),
        Value::Text(text) => Number::Text(text.clone().into_owned()),
        Value::Bytes(bytes) => Number::Text(String::from_utf8_lossy(bytes).into_owned()),
        Value::Enum { index, .. } => Number::UInt(*index),
        Value::Set { bits, .. } | Value::Bit { bits, .. } => Number::UInt(*bits),
        Value::Date(time) => Number::Decimal(time_number(*time, true)),
        Value::DateTime(time) | Value::Timestamp(time) => Number::Decimal(time_number(*time, false)),
        Value::Duration(duration) => Number::Decimal(duration_number(*duration)),
        Value::Json(json) => json_number(json),
        Value::Vector(_) => Number::Int(0),
    }
}

fn json_number(json: &Json<'_>) -> Number {
    match json.root().node() {
        Ok(JsonNode::Bool(true)) => Number::Int(1),
        Ok(JsonNode::Int(int)) => Number::Int(int),
        Ok(JsonNode::UInt(uint)) => Number::UInt(uint),
        Ok(JsonNode::Double(double)) => Number::Float(double),
        Ok(JsonNode::String(text)) => Number::Text(String::from_utf8_lossy(text).into_owned()),
        _ => Number::Int(0),
    }
}

/// `10:11:12.5` is 101112.5.
fn duration_number(duration: Duration) -> Decimal {
    let mut text = Vec::new();
    duration.write_text(&mut text);
    text.retain(|byte| *byte != b':');
    Decimal::parse(&String::from_utf8_lossy(&text)).unwrap_or(Decimal::ZERO)
}

impl Number {
    /// Rounded and clipped: halves of exact numbers go away from zero, of floats to the even neighbour.
    pub(crate) fn to_i64(&self) -> i64 {
        match self {
            Self::Int(int) => *int,
            Self::UInt(uint) => i64::try_from(*uint).unwrap_or(i64::MAX),
            #[expect(clippy::cast_possible_truncation, reason = "a float beyond the range saturates")]
            Self::Float(float) => float.round_ties_even() as i64,
            Self::Decimal(decimal) => decimal.to_i64(),
            Self::Text(text) => match Decimal::parse(float_prefix(text)) {
                Some(decimal) => decimal.to_i64(),
                None => Self::Float(text_to_f64(text)).to_i64(),
            },
        }
    }

    /// As [`Self::to_i64`]. A negative number becomes 0, or wraps around where TiDB lets it.
    pub(crate) fn to_u64(&self, clip_negative: bool) -> u64 {
        match self {
            Self::Int(int) if clip_negative => u64::try_from(*int).unwrap_or(0),
            Self::Int(int) => int.cast_unsigned(),
            Self::UInt(uint) => *uint,
            Self::Float(float) if *float < 0.0 && !clip_negative => self.to_i64().cast_unsigned(),
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a float beyond the range saturates"
            )]
            Self::Float(float) => float.round_ties_even() as u64,
            Self::Decimal(decimal) => decimal.to_u64(),
            Self::Text(text) => match Decimal::parse(float_prefix(text)) {
                Some(decimal) => decimal.to_u64(),
                None => Self::Float(text_to_f64(text)).to_u64(true),
            },
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "rounding to the nearest double is what TiDB does")]
    pub(crate) fn to_f64(&self) -> f64 {
        match self {
            Self::Int(int) => *int as f64,
            Self::UInt(uint) => *uint as f64,
            Self::Float(float) => *float,
            Self::Decimal(decimal) => decimal.to_f64(),
            Self::Text(text) => text_to_f64(text),
        }
    }

    pub(crate) fn to_decimal(&self) -> Decimal {
        match self {
            Self::Int(int) => Decimal::from(*int),
            Self::UInt(uint) => Decimal::from(*uint),
            Self::Float(float) => Decimal::from_f64(*float),
            Self::Decimal(decimal) => *decimal,
            Self::Text(text) => {
                let prefix = float_prefix(text);
                Decimal::parse(prefix).unwrap_or_else(|| Decimal::from_f64(text_to_f64(prefix)))
            }
        }
    }
}

/// The longest prefix (after blanks) that is a number; `0` if there is none.
pub(crate) fn float_prefix(text: &str) -> &str {
    let text = text.trim();
    let bytes = text.as_bytes();
    let digits = |from: usize| {
        let rest = bytes.get(from..).unwrap_or_default();
        rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
    };
    let sign = usize::from(matches!(bytes.first(), Some(b'-' | b'+')));
    let int = digits(sign);
    let mut end = sign + int;
    let mut frac = 0;
    if bytes.get(end) == Some(&b'.') {
        frac = digits(end + 1);
        end += if int + frac > 0 { 1 + frac } else { 0 };
    }
    if int + frac == 0 {
        return "0";
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'-' | b'+')));
        let exponent = digits(end + 1 + sign);
        end += if exponent > 0 { 1 + sign + exponent } else { 0 };
    }
    text.get(..end).unwrap_or("0")
}

/// The double that a text's numeric prefix means; beyond the range it is the largest one.
fn text_to_f64(text: &str) -> f64 {
    let number: f64 = float_prefix(text).parse().unwrap_or(0.0);
    number.clamp(f64::MIN, f64::MAX)
}

/// `FLOAT(M,D)`: rounded to D digits after the point, clipped to M digits in all.
pub(super) fn truncate_float(number: f64, flen: i64, decimal: i64) -> f64 {
    let (Ok(flen), Ok(decimal)) = (i32::try_from(flen), i32::try_from(decimal)) else { return number };
    let shift = 10_f64.powi(decimal);
    let scaled = number * shift;
    let rounded = if scaled.is_infinite() { number } else { scaled.round_ties_even() / shift };
    let limit = 10_f64.powi(flen - decimal) - 10_f64.powi(-decimal);
    rounded.clamp(-limit, limit)
}

/// The number that bytes give, most significant first; beyond eight significant ones it is all ones.
pub(super) fn big_endian(bytes: &[u8]) -> u64 {
    let significant =
        bytes.iter().position(|byte| *byte != 0).and_then(|at| bytes.get(at..)).unwrap_or_default();
    if significant.len() > 8 {
        return u64::MAX;
    }
    significant.iter().fold(0, |bits, byte| bits << 8 | u64::from(*byte))
}
