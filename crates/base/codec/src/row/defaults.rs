//! What a column has in rows that were written before it existed
//! (`reference/tidb-keys-and-rows.md` §6.3).

use super::cell::CellKind;
use super::layout::Missing;
use crate::convert::{fit_bytes, fit_text};
use crate::decimal::Decimal;
use crate::json::Json;
use crate::memcomparable::float_bytes;
use crate::meta::{ColumnInfo, TableInfo};
use crate::time::{Duration, FSP_MAX, Time};
use crate::vector::Vector;

/// The binary form of the JSON literal `null`.
const JSON_NULL: [u8; 2] = [4, 0];

/// What `column` has in rows that do not mention it: its origin default (never the current one, which later
/// statements change), NULL, or the zero value of a NOT NULL column.
pub(super) fn missing(table: &TableInfo, column: &ColumnInfo, kind: CellKind) -> Missing {
    let cell = match &column.origin_default {
        Some(text) => from_text(table, column, kind, &text.as_text()),
        None if !column.field_type.not_null() => return Missing::Null,
        None => zero(column, kind),
    };
    cell.map_or(Missing::Unusable, |cell| Missing::Cell(cell.into_boxed_slice()))
}

/// The cell of an origin default, which metadata holds as text.
fn from_text(table: &TableInfo, column: &ColumnInfo, kind: CellKind, text: &str) -> Option<Vec<u8>> {
    let mut cell = Vec::new();
    match kind {
        CellKind::Int | CellKind::Year => return int(text).map(|int| int.to_le_bytes().to_vec()),
        CellKind::UInt => return uint(text).map(|uint| uint.to_le_bytes().to_vec()),
        CellKind::Float | CellKind::Double => return float(kind, text),
        CellKind::Decimal(_) => encode_decimal(column, Decimal::parse(text.trim())?, &mut cell)?,
        // The metadata's text may be longer than the column: bytes that are no UTF-8 stand in it as
        // replacement characters of three bytes each, and TiDB cuts the result.
        CellKind::Text => cell = fit_text(text.to_owned(), &column.field_type).into_bytes(),
        CellKind::Bytes => cell = fit_bytes(text.as_bytes().to_vec(), &column.field_type),
        CellKind::Enum => return Some(enum_index(column, text)?.to_le_bytes().to_vec()),
        CellKind::Set => return Some(set_bits(column, text)?.to_le_bytes().to_vec()),
        CellKind::Bit(_) => {
            let bytes = column.origin_default_bit.as_deref().unwrap_or(text.as_bytes());
            return Some(big_endian(bytes).to_le_bytes().to_vec());
        }
        CellKind::Date | CellKind::DateTime(_) | CellKind::Timestamp(_) => {
            return Some(time(table, text)?.packed().to_le_bytes().to_vec());
        }
        CellKind::Duration(fsp) => return Some(Duration::parse(text, fsp)?.nanos().to_le_bytes().to_vec()),
        CellKind::Json => cell = Json::parse(text)?.as_bytes().to_vec(),
        CellKind::Vector => cell = Vector::parse(text)?.as_bytes().to_vec(),
        CellKind::Unknown(_) => return None,
    }
    Some(cell)
}

/// The zero value of a NOT NULL column without origin default: it was written while the column was on its
/// way out.
fn zero(column: &ColumnInfo, kind: CellKind) -> Option<Vec<u8>> {
    let mut cell = Vec::new();
    match kind {
        CellKind::Text => {}
        CellKind::Bytes => cell = fit_bytes(Vec::new(), &column.field_type),
        CellKind::Float | CellKind::Double => cell = float_bytes(0.0).to_vec(),
        CellKind::Decimal(_) => encode_decimal(column, Decimal::ZERO, &mut cell)?,
        // The first member, not the empty value.
        CellKind::Enum => cell.push(1),
        CellKind::Json => cell = JSON_NULL.to_vec(),
        CellKind::Vector => cell = 0_u32.to_le_bytes().to_vec(),
        CellKind::Unknown(_) => return None,
        _ => cell.push(0),
    }
    Some(cell)
}

/// Old clusters wrote integer defaults in other number forms too; those are rounded.
fn int(text: &str) -> Option<i64> {
    let text = text.trim();
    text.parse().ok().or_else(|| Decimal::parse(text)?.with_scale(0)?.to_string().parse().ok())
}

fn uint(text: &str) -> Option<u64> {
    let text = text.trim();
    text.parse().ok().or_else(|| Decimal::parse(text)?.with_scale(0)?.to_string().parse().ok())
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a FLOAT default is rounded to float32 as its values are"
)]
fn float(kind: CellKind, text: &str) -> Option<Vec<u8>> {
    let number: f64 = text.trim().parse().ok()?;
    let number = if kind == CellKind::Float { f64::from(number as f32) } else { number };
    number.is_finite().then(|| float_bytes(number).to_vec())
}

fn encode_decimal(column: &ColumnInfo, number: Decimal, out: &mut Vec<u8>) -> Option<()> {
    let precision = u8::try_from(column.field_type.flen);
    let scale = u8::try_from(column.field_type.decimal);
    match (precision, scale) {
        (Ok(precision), Ok(scale)) => number.encode(precision, scale, out),
        _ => number.encode_natural(out),
    }
}

fn big_endian(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |bits, byte| bits << 8 | u64::from(*byte))
}

/// `CURRENT_DATE` stays unevaluated in the metadata. The day of the table's last schema change stands in for
/// it: a defined answer, and the right one unless the table was changed again later.
fn time(table: &TableInfo, text: &str) -> Option<Time> {
    if let Some(time) = Time::parse(text.trim(), FSP_MAX) {
        return Some(time);
    }
    if !text.to_ascii_uppercase().starts_with("CURRENT_") {
        return None;
    }
    let day_ms = 86_400_000;
    let midnight_ms = i64::try_from(table.update_timestamp.physical_ms() / day_ms * day_ms).ok()?;
    Time::from_unix_micros(midnight_ms * 1000, 0)
}

/// The 1-based position of a member: by exact name, then by name in any case, then by number.
fn enum_index(column: &ColumnInfo, text: &str) -> Option<u64> {
    let position = member(column, text).map(|at| u64::try_from(at + 1).unwrap_or(u64::MAX));
    position.or_else(|| text.parse().ok()).or(text.is_empty().then_some(0))
}

fn set_bits(column: &ColumnInfo, text: &str) -> Option<u64> {
    if text.is_empty() {
        return Some(0);
    }
    let bit = |name: &str| 1_u64.checked_shl(u32::try_from(member(column, name)?).ok()?);
    let named = text.split(',').try_fold(0, |bits, name| Some(bits | bit(name)?));
    named.or_else(|| text.parse().ok())
}

fn member(column: &ColumnInfo, name: &str) -> Option<usize> {
    let elems = &column.field_type.elems;
    let exact = elems.iter().position(|elem| elem == name);
    exact.or_else(|| elems.iter().position(|elem| elem.to_lowercase() == name.to_lowercase()))
}
