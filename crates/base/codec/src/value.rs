//! A column's value, borrowed from the row it stands in wherever that is possible.

use std::borrow::Cow;

pub use crate::decimal::Decimal;
pub use crate::json::{Json, JsonRef};
pub use crate::time::{Duration, Time};
pub use crate::vector::Vector;

/// The value of one column (`reference/tidb-keys-and-rows.md` §5). Fixed-width values never allocate; texts,
/// bytes, JSON and vectors borrow from the row value, except where the key encoding had to be undone.
#[derive(Clone, Debug, PartialEq)]
pub enum Value<'a> {
    /// SQL NULL.
    Null,
    /// A virtual generated column: TiDB computes it when it is read and never stores it. See
    /// [`crate::row::RowView::selected`] for the computed value.
    Virtual,
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    UInt(u64),
    /// FLOAT.
    Float(f32),
    /// DOUBLE.
    Double(f64),
    /// DECIMAL, with as many fractional digits as the column has.
    Decimal(Decimal),
    /// CHAR, VARCHAR and the TEXT family. TiDB stores UTF-8 whatever the column's character set is.
    Text(Cow<'a, str>),
    /// BINARY, VARBINARY and the BLOB family; also the rare text that is not UTF-8, which TiDB lets
    /// through in latin1 columns and with its check switched off: it is handed out unharmed.
    Bytes(Cow<'a, [u8]>),
    /// ENUM.
    Enum {
        /// 1-based position; 0 is the empty value of a bad insert.
        index: u64,
        /// The member; empty for 0 and for a number beyond the members.
        name: Cow<'a, str>,
    },
    /// SET.
    Set {
        /// Bit `i` stands for member `i`.
        bits: u64,
        /// All members of the column, in order.
        elems: Cow<'a, [String]>,
    },
    /// BIT.
    Bit {
        /// The number.
        bits: u64,
        /// Declared width in bits, 1 to 64.
        width: u8,
    },
    /// DATE.
    Date(Time),
    /// DATETIME: a calendar time without zone.
    DateTime(Time),
    /// TIMESTAMP, in UTC.
    Timestamp(Time),
    /// TIME.
    Duration(Duration),
    /// YEAR: 0 or 1901 to 2155.
    Year(u16),
    /// JSON.
    Json(Json<'a>),
    /// VECTOR of float32.
    Vector(Vector<'a>),
}

impl Value<'_> {
    /// Whether this is SQL NULL.
    pub const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// The same value, borrowing from this one.
    pub fn reborrow(&self) -> Value<'_> {
        match self {
            Self::Text(text) => Value::Text(Cow::Borrowed(text)),
            Self::Bytes(bytes) => Value::Bytes(Cow::Borrowed(bytes)),
            Self::Enum { index, name } => Value::Enum { index: *index, name: Cow::Borrowed(name) },
            Self::Set { bits, elems } => Value::Set { bits: *bits, elems: Cow::Borrowed(elems) },
            Self::Json(json) => Value::Json(json.reborrow()),
            Self::Vector(vector) => Value::Vector(vector.reborrow()),
            fixed => fixed.clone().into_owned(),
        }
    }

    /// The same value, borrowing from nothing.
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Self::Null => Value::Null,
            Self::Virtual => Value::Virtual,
            Self::Int(v) => Value::Int(v),
            Self::UInt(v) => Value::UInt(v),
            Self::Float(v) => Value::Float(v),
            Self::Double(v) => Value::Double(v),
            Self::Decimal(v) => Value::Decimal(v),
            Self::Text(v) => Value::Text(Cow::Owned(v.into_owned())),
            Self::Bytes(v) => Value::Bytes(Cow::Owned(v.into_owned())),
            Self::Enum { index, name } => Value::Enum { index, name: Cow::Owned(name.into_owned()) },
            Self::Set { bits, elems } => Value::Set { bits, elems: Cow::Owned(elems.into_owned()) },
            Self::Bit { bits, width } => Value::Bit { bits, width },
            Self::Date(v) => Value::Date(v),
            Self::DateTime(v) => Value::DateTime(v),
            Self::Timestamp(v) => Value::Timestamp(v),
            Self::Duration(v) => Value::Duration(v),
            Self::Year(v) => Value::Year(v),
            Self::Json(v) => Value::Json(v.into_owned()),
            Self::Vector(v) => Value::Vector(v.into_owned()),
        }
    }
}
