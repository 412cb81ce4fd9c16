//! Values as MySQL's text protocol gives them in a session with time zone UTC.

use crate::float_text::{write_double, write_float};
use crate::json::JsonError;
use crate::value::Value;

/// Appends the text of `value`, byte for byte as TiDB answers it. NULL and [`Value::Virtual`] have none and
/// append nothing; ask [`Value::is_null`] first. BIT, binary strings and texts that are not UTF-8 append raw
/// bytes.
///
/// # Errors
/// A JSON value is damaged; what could be read of it stays in `out`. No other type fails.
pub fn write_text(value: &Value<'_>, out: &mut Vec<u8>) -> Result<(), JsonError> {
    match value {
        Value::Null | Value::Virtual => {}
        Value::Int(int) => out.extend_from_slice(itoa::Buffer::new().format(*int).as_bytes()),
        Value::UInt(uint) => out.extend_from_slice(itoa::Buffer::new().format(*uint).as_bytes()),
        Value::Float(number) => write_float(*number, out),
        Value::Double(number) => write_double(*number, out),
        Value::Decimal(number) => number.write_text(out),
        Value::Text(text) => out.extend_from_slice(text.as_bytes()),
        Value::Bytes(bytes) => out.extend_from_slice(bytes),
        Value::Enum { name, .. } => out.extend_from_slice(name.as_bytes()),
        Value::Set { bits, elems } => write_set(*bits, elems, out),
        Value::Bit { bits, width } => write_bit(*bits, *width, out),
        Value::Date(date) => date.write_date(out),
        Value::DateTime(time) | Value::Timestamp(time) => time.write_datetime(out),
        Value::Duration(duration) => duration.write_text(out),
        Value::Year(year) => write_year(*year, out),
        Value::Json(json) => json.write_text(out)?,
        Value::Vector(vector) => vector.write_text(out),
    }
    Ok(())
}

/// The members whose bits are set, in definition order, joined by commas.
fn write_set(bits: u64, elems: &[String], out: &mut Vec<u8>) {
    let mut first = true;
    for (at, elem) in elems.iter().enumerate().take(64) {
        if bits >> at & 1 == 1 {
            if !first {
                out.push(b',');
            }
            first = false;
            out.extend_from_slice(elem.as_bytes());
        }
    }
}

/// As many bytes as the width needs, big endian.
fn write_bit(bits: u64, width: u8, out: &mut Vec<u8>) {
    let len = usize::from(width).div_ceil(8).clamp(1, 8);
    out.extend(bits.to_be_bytes().iter().skip(8 - len));
}

/// Years are printed as they are, but year 0 has four digits.
fn write_year(year: u16, out: &mut Vec<u8>) {
    if year == 0 {
        out.extend_from_slice(b"0000");
    } else {
        out.extend_from_slice(itoa::Buffer::new().format(year).as_bytes());
    }
}
