//! From stored bytes to a [`Value`], by the column's type (`reference/tidb-keys-and-rows.md` §5).

use std::borrow::Cow;

use crate::datum::Datum;
use crate::decimal::Decimal;
use crate::generated::GeneratedError;
use crate::json::{Json, JsonError};
use crate::key::KeyError;
use crate::memcomparable::float_from_bytes;
use crate::meta::{ColumnInfo, FieldType, SqlType};
use crate::time::{Duration, FSP_MAX, Time};
use crate::value::Value;
use crate::vector::Vector;

/// Why a column's bytes are not a value of its type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CellError {
    /// The row value is empty or shorter than its header says.
    #[error("row header is damaged or cut")]
    Header,
    /// A cell's offsets point outside the row or backwards, or a v1 pair is damaged.
    #[error("row structure is damaged")]
    Offsets,
    /// The cell has a length that its type never has.
    #[error("impossible length {len} for {what}")]
    Length {
        /// The type.
        what: &'static str,
        /// The length found.
        len: usize,
    },
    /// The bytes are no value of the type.
    #[error("bytes are no {what}")]
    Malformed {
        /// The type.
        what: &'static str,
    },
    /// A SET has bits that stand for no member.
    #[error("set has bits beyond its {members} members")]
    SetBits {
        /// How many members the column has.
        members: usize,
    },
    /// A datum is damaged, or of a flag that cannot be there.
    #[error(transparent)]
    Datum(KeyError),
    /// A datum is sound, but of another type than the column.
    #[error("datum is of another type than {what}")]
    DatumType {
        /// The column's type.
        what: &'static str,
    },
    /// JSON is damaged.
    #[error(transparent)]
    Json(JsonError),
    /// The handle is an integer where the table has a clustered key, or the other way round.
    #[error("handle is of another kind than the table's")]
    HandleKind,
    /// The column's type is one that TiDB cannot store.
    #[error("type code {0} is never stored")]
    UnknownType(u8),
    /// The default of an added column is no value of its type.
    #[error("origin default is no value of the column's type")]
    Default,
    /// The value of a column that MODIFY COLUMN rewrote cannot be converted to its present type.
    #[error("value cannot be converted as MODIFY COLUMN did")]
    Conversion,
    /// A virtual generated column cannot be computed.
    #[error(transparent)]
    Generated(GeneratedError),
    /// The column index is beyond the table's columns.
    #[error("table has no such column")]
    NoSuchColumn,
}

/// How a column's bytes are read: its type with all that reading needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CellKind {
    Int,
    UInt,
    Year,
    Float,
    Double,
    /// With the most fractional digits to show, where the column says so.
    Decimal(Option<u8>),
    Text,
    Bytes,
    Enum,
    Set,
    Bit(u8),
    Date,
    DateTime(u8),
    Timestamp(u8),
    Duration(u8),
    Json,
    Vector,
    Unknown(u8),
}

impl CellKind {
    pub(crate) fn of(field: &FieldType) -> Self {
        let fsp = u8::try_from(field.decimal.clamp(0, i64::from(FSP_MAX))).unwrap_or(0);
        match field.tp {
            tp if tp.is_integer() && field.unsigned() => Self::UInt,
            tp if tp.is_integer() => Self::Int,
            // Its metadata carries the unsigned flag, but it is stored signed.
            SqlType::Year => Self::Year,
            SqlType::Float => Self::Float,
            SqlType::Double => Self::Double,
            SqlType::Decimal => Self::Decimal(u8::try_from(field.decimal).ok()),
            tp if tp.is_char() || tp.is_blob() => {
                if field.charset.is_empty() || field.is_binary() {
                    Self::Bytes
                } else {
                    Self::Text
                }
            }
            SqlType::Enum => Self::Enum,
            SqlType::Set => Self::Set,
            SqlType::Bit => Self::Bit(u8::try_from(field.flen.clamp(1, 64)).unwrap_or(1)),
            SqlType::Date | SqlType::NewDate => Self::Date,
            SqlType::DateTime => Self::DateTime(fsp),
            SqlType::Timestamp => Self::Timestamp(fsp),
            SqlType::Time => Self::Duration(fsp),
            SqlType::Json => Self::Json,
            SqlType::Vector => Self::Vector,
            other => Self::Unknown(other.number()),
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Int | Self::UInt => "integer",
            Self::Year => "year",
            Self::Float | Self::Double => "float",
            Self::Decimal(_) => "decimal",
            Self::Text | Self::Bytes => "string",
            Self::Enum => "enum",
            Self::Set => "set",
            Self::Bit(_) => "bit",
            Self::Date | Self::DateTime(_) | Self::Timestamp(_) => "calendar time",
            Self::Duration(_) => "time",
            Self::Json => "json",
            Self::Vector => "vector",
            Self::Unknown(_) => "value",
        }
    }

    /// Decodes a cell of the plainest types, `None` for all others and for damage. Small enough to be inlined
    /// where it is called, so that the value is built where it is wanted and not copied there.
    #[inline]
    pub(crate) fn decode_plain(self, bytes: &[u8]) -> Option<Value<'_>> {
        match self {
            Self::Int => little_endian_int(bytes).map(Value::Int),
            Self::UInt => little_endian_uint(bytes).map(Value::UInt),
            Self::Double => bytes.as_array().map(|bytes| Value::Double(float_from_bytes(*bytes))),
            Self::Bytes => Some(Value::Bytes(Cow::Borrowed(bytes))),
            _ => None,
        }
    }

    /// Decodes a cell of format v2.
    pub(crate) fn decode<'a>(self, column: &'a ColumnInfo, bytes: &'a [u8]) -> Result<Value<'a>, CellError> {
        match self {
            Self::Text | Self::Bytes => Ok(self.string(Cow::Borrowed(bytes))),
            Self::Float | Self::Double => Ok(self.float(float_from_bytes(self.exact(bytes)?))),
            Self::Decimal(_) => {
                let (number, len) = Decimal::decode(bytes).ok_or(self.malformed())?;
                if len == bytes.len() { self.decimal(number) } else { Err(self.malformed()) }
            }
            Self::Int | Self::Year | Self::Duration(_) => self.int(bytes).and_then(|int| self.signed(int)),
            Self::Json => Json::new(bytes).map(Value::Json).ok_or(self.malformed()),
            Self::Vector => Vector::decode(bytes).map(Value::Vector).ok_or(self.malformed()),
            Self::Unknown(code) => Err(CellError::UnknownType(code)),
            _ => self.uint(bytes).and_then(|uint| self.unsigned(column, uint)),
        }
    }

    /// Interprets a datum of a key or of a v1 row.
    pub(crate) fn interpret<'a>(
        self,
        column: &'a ColumnInfo,
        datum: Datum<'a>,
    ) -> Result<Value<'a>, CellError> {
        match (self, datum) {
            (_, Datum::Null) => Ok(Value::Null),
            (Self::UInt, Datum::Int(int)) => Ok(Value::UInt(int.cast_unsigned())),
            (Self::Int | Self::Year | Self::Duration(_), Datum::Int(int)) => self.signed(int),
            (Self::Int | Self::Year | Self::Duration(_), Datum::UInt(uint)) => {
                self.signed(uint.cast_signed())
            }
            (Self::Duration(_), Datum::Duration(nanos)) => self.signed(nanos),
            (Self::Float | Self::Double, Datum::Float(number)) => Ok(self.float(number)),
            (Self::Decimal(_), Datum::Decimal(number)) => self.decimal(number),
            (Self::Text | Self::Bytes, Datum::Bytes(bytes)) => Ok(self.string(bytes)),
            (Self::Json, Datum::Json(json)) => Ok(Value::Json(json)),
            (Self::Vector, Datum::Vector(vector)) => Ok(Value::Vector(vector)),
            (Self::Unknown(code), _) => Err(CellError::UnknownType(code)),
            (_, Datum::UInt(uint)) => self.unsigned(column, uint),
            (_, Datum::Int(int)) => self.unsigned(column, int.cast_unsigned()),
            _ => Err(CellError::DatumType { what: self.name() }),
        }
    }

    /// A value of a type that is stored as a signed integer.
    fn signed<'a>(self, int: i64) -> Result<Value<'a>, CellError> {
        match self {
            Self::Year => u16::try_from(int).map(Value::Year).map_err(|_| self.malformed()),
            Self::Duration(fsp) => Ok(Value::Duration(Duration::new(int, fsp))),
            _ => Ok(Value::Int(int)),
        }
    }

    /// A value of a type that is stored as an unsigned integer.
    fn unsigned(self, column: &ColumnInfo, uint: u64) -> Result<Value<'_>, CellError> {
        let time = |fsp| Time::from_packed(uint, fsp).ok_or(self.malformed());
        match self {
            Self::Enum => Ok(enum_value(column, uint)),
            Self::Set => set_value(column, uint),
            Self::Bit(width) => Ok(Value::Bit { bits: uint, width }),
            Self::Date => time(0).map(Value::Date),
            Self::DateTime(fsp) => time(fsp).map(Value::DateTime),
            Self::Timestamp(fsp) => time(fsp).map(Value::Timestamp),
            _ => Ok(Value::UInt(uint)),
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "a FLOAT is stored widened, so nothing is lost")]
    const fn float<'a>(self, number: f64) -> Value<'a> {
        if matches!(self, Self::Float) { Value::Float(number as f32) } else { Value::Double(number) }
    }

    /// A column that was narrowed without rewriting its rows shows fewer digits than are stored.
    fn decimal<'a>(self, number: Decimal) -> Result<Value<'a>, CellError> {
        match self {
            Self::Decimal(Some(scale)) if number.scale() > scale => {
                number.with_scale(scale).map(Value::Decimal).ok_or(self.malformed())
            }
            _ => Ok(Value::Decimal(number)),
        }
    }

    fn string(self, bytes: Cow<'_, [u8]>) -> Value<'_> {
        match (self, bytes) {
            (Self::Text, Cow::Borrowed(bytes)) => match std::str::from_utf8(bytes) {
                Ok(text) => Value::Text(Cow::Borrowed(text)),
                Err(_) => Value::Bytes(Cow::Borrowed(bytes)),
            },
            (Self::Text, Cow::Owned(bytes)) => match String::from_utf8(bytes) {
                Ok(text) => Value::Text(Cow::Owned(text)),
                Err(error) => Value::Bytes(Cow::Owned(error.into_bytes())),
            },
            (_, bytes) => Value::Bytes(bytes),
        }
    }

    fn int(self, bytes: &[u8]) -> Result<i64, CellError> {
        little_endian_int(bytes).ok_or_else(|| self.length(bytes))
    }

    fn uint(self, bytes: &[u8]) -> Result<u64, CellError> {
        little_endian_uint(bytes).ok_or_else(|| self.length(bytes))
    }

    fn exact(self, bytes: &[u8]) -> Result<[u8; 8], CellError> {
        bytes.as_array().copied().ok_or_else(|| self.length(bytes))
    }

    #[cold]
    const fn length(self, bytes: &[u8]) -> CellError {
        CellError::Length { what: self.name(), len: bytes.len() }
    }

    const fn malformed(self) -> CellError {
        CellError::Malformed { what: self.name() }
    }
}

/// A little-endian two's complement integer of 1, 2, 4 or 8 bytes.
#[inline]
fn little_endian_int(bytes: &[u8]) -> Option<i64> {
    match *bytes {
        [a] => Some(i64::from(a.cast_signed())),
        [a, b] => Some(i64::from(i16::from_le_bytes([a, b]))),
        [a, b, c, d] => Some(i64::from(i32::from_le_bytes([a, b, c, d]))),
        _ => bytes.as_array().map(|bytes| i64::from_le_bytes(*bytes)),
    }
}

/// A little-endian unsigned integer of 1, 2, 4 or 8 bytes.
#[inline]
fn little_endian_uint(bytes: &[u8]) -> Option<u64> {
    match *bytes {
        [a] => Some(u64::from(a)),
        [a, b] => Some(u64::from(u16::from_le_bytes([a, b]))),
        [a, b, c, d] => Some(u64::from(u32::from_le_bytes([a, b, c, d]))),
        _ => bytes.as_array().map(|bytes| u64::from_le_bytes(*bytes)),
    }
}

/// A number beyond the members (or 0) is the empty value, as TiDB reads it.
fn enum_value(column: &ColumnInfo, index: u64) -> Value<'_> {
    let at = usize::try_from(index).ok().and_then(|index| index.checked_sub(1));
    match at.and_then(|at| column.field_type.elems.get(at)) {
        Some(name) => Value::Enum { index, name: Cow::Borrowed(name) },
        None => Value::Enum { index: 0, name: Cow::Borrowed("") },
    }
}

fn set_value(column: &ColumnInfo, bits: u64) -> Result<Value<'_>, CellError> {
    let elems = &column.field_type.elems;
    let unknown = u32::try_from(elems.len()).ok().and_then(|members| bits.checked_shr(members)).unwrap_or(0);
    if unknown != 0 {
        return Err(CellError::SetBits { members: elems.len() });
    }
    Ok(Value::Set { bits, elems: Cow::Borrowed(elems) })
}
