//! Binary JSON (`reference/tidb-keys-and-rows.md` §5.12): a borrowed view, its text form, and a builder.

mod build;
mod text;

use std::borrow::Cow;
use std::fmt;

use crate::reader::Reader;

pub use build::MAX_DEPTH;

const OBJECT: u8 = 0x01;
const ARRAY: u8 = 0x03;
const LITERAL: u8 = 0x04;
const INT: u8 = 0x09;
const UINT: u8 = 0x0a;
const DOUBLE: u8 = 0x0b;
const STRING: u8 = 0x0c;
const OPAQUE: u8 = 0x0d;
const DATE: u8 = 0x0e;
const DATETIME: u8 = 0x0f;
const TIMESTAMP: u8 = 0x10;
const DURATION: u8 = 0x11;

/// Element count and total size, in front of every array and object.
const HEADER_LEN: usize = 8;
/// Type byte and offset (or inlined literal) of one element.
const VALUE_ENTRY_LEN: usize = 5;
/// Offset and length of one object key.
const KEY_ENTRY_LEN: usize = 6;

/// Why bytes are not JSON in TiDB's binary form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The bytes end before the value does, or an offset points outside.
    #[error("json ends early")]
    Truncated,
    /// A type byte, or a literal, that does not exist.
    #[error("unknown json type {0:#04x}")]
    UnknownType(u8),
    /// Arrays and objects are nested deeper than TiDB allows.
    #[error("json nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// Elements share bytes, so that the text would be far larger than the value.
    #[error("json elements overlap")]
    Overlapping,
}

/// A whole JSON value: type byte and body.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Json<'a>(Cow<'a, [u8]>);

/// One value inside a [`Json`]: itself, an element or a member.
#[derive(Clone, Copy, Debug)]
pub struct JsonRef<'a> {
    code: u8,
    body: &'a [u8],
}

/// A JSON value taken apart by its type.
#[derive(Clone, Copy, Debug)]
pub enum JsonNode<'a> {
    /// `null`.
    Null,
    /// `true`, `false`.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer; TiDB uses it above `i64::MAX` and for unsigned SQL values.
    UInt(u64),
    /// A double.
    Double(f64),
    /// A string, meant to be UTF-8.
    String(&'a [u8]),
    /// A SQL value that JSON has no type for.
    Opaque {
        /// Its MySQL type code.
        type_code: u8,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// A DATE, in the bit layout that only JSON uses.
    Date(CoreTime),
    /// A DATETIME or TIMESTAMP.
    DateTime(CoreTime),
    /// A TIME in nanoseconds; always printed with six fractional digits.
    Duration(i64),
    /// An array.
    Array(JsonArray<'a>),
    /// An object.
    Object(JsonObject<'a>),
}

/// A calendar time in the bit layout of JSON: year, month, day, hour, minute, second, microsecond from the
/// top in 14, 4, 5, 5, 6, 6 and 20 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoreTime(pub u64);

/// The elements of an array.
#[derive(Clone, Copy, Debug)]
pub struct JsonArray<'a> {
    body: &'a [u8],
    count: usize,
}

/// The members of an object, sorted by key bytes.
#[derive(Clone, Copy, Debug)]
pub struct JsonObject<'a> {
    body: &'a [u8],
    count: usize,
}

impl<'a> Json<'a> {
    /// Wraps a stored value. `None` only when there is no type byte; the body is checked as it is read.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        (!bytes.is_empty()).then_some(Self(Cow::Borrowed(bytes)))
    }

    /// The stored form: type byte and body.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The outermost value.
    pub fn root(&self) -> JsonRef<'_> {
        let (code, body) = self.0.split_first().map_or((LITERAL, &[][..]), |(code, body)| (*code, body));
        JsonRef { code, body }
    }

    /// Appends the text form as TiDB prints it.
    ///
    /// # Errors
    /// The value is damaged; what was written so far stays in `out`.
    pub fn write_text(&self, out: &mut Vec<u8>) -> Result<(), JsonError> {
        self.root().write_text(out)
    }

    /// The same value, borrowing from this one.
    pub fn reborrow(&self) -> Json<'_> {
        Json(Cow::Borrowed(&self.0))
    }

    /// The same value, borrowing from nothing.
    pub fn into_owned(self) -> Json<'static> {
        Json(Cow::Owned(self.0.into_owned()))
    }
}

impl fmt::Debug for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::new();
        match self.write_text(&mut text) {
            Ok(()) => f.write_str(&String::from_utf8_lossy(&text)),
            Err(error) => write!(f, "{error}: {:02x?}", self.0),
        }
    }
}

impl<'a> JsonRef<'a> {
    /// Takes the value apart.
    ///
    /// # Errors
    /// The value is damaged.
    pub fn node(self) -> Result<JsonNode<'a>, JsonError> {
        let mut reader = Reader::new(self.body);
        let node = match self.code {
            LITERAL => return literal(reader.u8().ok_or(JsonError::Truncated)?),
            INT => reader.array().map(|bytes| JsonNode::Int(i64::from_le_bytes(bytes))),
            UINT => reader.array().map(|bytes| JsonNode::UInt(u64::from_le_bytes(bytes))),
            DOUBLE => reader.array().map(|bytes| JsonNode::Double(f64::from_le_bytes(bytes))),
            STRING => reader.sized().map(JsonNode::String),
            OPAQUE => reader
                .u8()
                .zip(reader.sized())
                .map(|(type_code, bytes)| JsonNode::Opaque { type_code, bytes }),
            DATE => reader.array().map(|bytes| JsonNode::Date(CoreTime(u64::from_le_bytes(bytes)))),
            DATETIME | TIMESTAMP => {
                reader.array().map(|bytes| JsonNode::DateTime(CoreTime(u64::from_le_bytes(bytes))))
            }
            DURATION => reader.array::<12>().and_then(|bytes| {
                bytes.first_chunk().map(|nanos| JsonNode::Duration(i64::from_le_bytes(*nanos)))
            }),
            ARRAY => container(self.body, VALUE_ENTRY_LEN)
                .map(|(body, count)| JsonNode::Array(JsonArray { body, count })),
            OBJECT => container(self.body, VALUE_ENTRY_LEN + KEY_ENTRY_LEN)
                .map(|(body, count)| JsonNode::Object(JsonObject { body, count })),
            code => return Err(JsonError::UnknownType(code)),
        };
        node.ok_or(JsonError::Truncated)
    }

    /// A copy of this value alone.
    ///
    /// # Errors
    /// The value is damaged.
    pub fn to_owned(self) -> Result<Json<'static>, JsonError> {
        let len = self.body_len().ok_or(JsonError::Truncated)?;
        let body = self.body.get(..len).ok_or(JsonError::Truncated)?;
        Ok(Json(Cow::Owned([&[self.code], body].concat())))
    }

    /// Length of the body, which for an element is only the front of what it borrows.
    fn body_len(self) -> Option<usize> {
        match self.code {
            LITERAL => Some(1),
            INT | UINT | DOUBLE | DATE | DATETIME | TIMESTAMP => Some(8),
            DURATION => Some(12),
            STRING => {
                let mut reader = Reader::new(self.body);
                reader.sized()?;
                Some(reader.offset())
            }
            OPAQUE => {
                let mut reader = Reader::new(self.body);
                reader.u8()?;
                reader.sized()?;
                Some(reader.offset())
            }
            ARRAY | OBJECT => {
                let mut reader = Reader::new(self.body);
                reader.u32_le()?;
                usize::try_from(reader.u32_le()?).ok()
            }
            _ => None,
        }
    }

    /// Appends the text form as TiDB prints it.
    ///
    /// # Errors
    /// The value is damaged; what was written so far stays in `out`.
    pub fn write_text(self, out: &mut Vec<u8>) -> Result<(), JsonError> {
        text::write(self, out)
    }
}

/// Bytes of the JSON value (type byte and body) at the front of `bytes`.
pub(crate) fn encoded_len(bytes: &[u8]) -> Option<usize> {
    let (code, body) = bytes.split_first()?;
    let len = JsonRef { code: *code, body }.body_len()?;
    (len <= body.len()).then_some(len + 1)
}

const fn literal<'a>(byte: u8) -> Result<JsonNode<'a>, JsonError> {
    match byte {
        0 => Ok(JsonNode::Null),
        1 => Ok(JsonNode::Bool(true)),
        2 => Ok(JsonNode::Bool(false)),
        other => Err(JsonError::UnknownType(other)),
    }
}

/// The body of an array or object, cut to its size, and its element count; entries are known to fit.
fn container(body: &[u8], entry_len: usize) -> Option<(&[u8], usize)> {
    let mut reader = Reader::new(body);
    let count = usize::try_from(reader.u32_le()?).ok()?;
    let size = usize::try_from(reader.u32_le()?).ok()?;
    let entries_end = count.checked_mul(entry_len)?.checked_add(HEADER_LEN)?;
    let body = body.get(..size)?;
    (entries_end <= size).then_some((body, count))
}

/// The element whose value entry stands at `at`.
fn element(body: &[u8], at: usize) -> Option<JsonRef<'_>> {
    let entry = body.get(at..)?.first_chunk::<VALUE_ENTRY_LEN>()?;
    let [code, offset @ ..] = *entry;
    if code == LITERAL {
        return Some(JsonRef { code, body: body.get(at + 1..)? });
    }
    let offset = usize::try_from(u32::from_le_bytes(offset)).ok()?;
    Some(JsonRef { code, body: body.get(offset..)? })
}

impl<'a> JsonArray<'a> {
    /// How many elements there are.
    pub const fn len(self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.count == 0
    }

    /// Element `index`, if there is one and its offset lies inside.
    pub fn get(self, index: usize) -> Option<JsonRef<'a>> {
        (index < self.count).then(|| element(self.body, HEADER_LEN + index * VALUE_ENTRY_LEN)).flatten()
    }
}

impl<'a> JsonObject<'a> {
    /// How many members there are.
    pub const fn len(self) -> usize {
        self.count
    }

    /// Whether there are none.
    pub const fn is_empty(self) -> bool {
        self.count == 0
    }

    /// Key `index` in byte order.
    pub fn key(self, index: usize) -> Option<&'a [u8]> {
        if index >= self.count {
            return None;
        }
        let entry = self.body.get(HEADER_LEN + index * KEY_ENTRY_LEN..)?.first_chunk::<KEY_ENTRY_LEN>()?;
        let [offset @ .., l0, l1] = *entry;
        let offset = usize::try_from(u32::from_le_bytes(offset)).ok()?;
        self.body.get(offset..)?.get(..usize::from(u16::from_le_bytes([l0, l1])))
    }

    /// The value of key `index`.
    pub fn value(self, index: usize) -> Option<JsonRef<'a>> {
        let at = HEADER_LEN + self.count * KEY_ENTRY_LEN + index * VALUE_ENTRY_LEN;
        (index < self.count).then(|| element(self.body, at)).flatten()
    }

    /// The value of `key`, found by binary search.
    pub fn get(self, key: &[u8]) -> Option<JsonRef<'a>> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.key(middle)?.cmp(key) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return self.value(middle),
            }
        }
        None
    }
}
