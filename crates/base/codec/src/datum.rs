//! Self-describing datums: a flag byte and a payload. Keys and rows of format v1 are made of them
//! (`reference/tidb-keys-and-rows.md` §1.1, §4.2).

use std::borrow::Cow;

use crate::decimal::Decimal;
use crate::json::{self, Json};
use crate::key::KeyError;
use crate::memcomparable::{
    decode_bytes, encode_bytes, float_bytes, float_from_bytes, int_bytes, int_from_bytes, split_encoded,
};
use crate::reader::Reader;
use crate::vector::Vector;

const NIL: u8 = 0;
const BYTES: u8 = 1;
const COMPACT_BYTES: u8 = 2;
const INT: u8 = 3;
const UINT: u8 = 4;
const FLOAT: u8 = 5;
const DECIMAL: u8 = 6;
const DURATION: u8 = 7;
const VARINT: u8 = 8;
const UVARINT: u8 = 9;
const JSON: u8 = 10;
const VECTOR: u8 = 20;

/// A datum as it is encoded; what it means (a time, a member of an ENUM) depends on the column.
#[derive(Clone, Debug, PartialEq)]
pub enum Datum<'a> {
    /// NULL.
    Null,
    /// A signed integer or a YEAR; nanoseconds of a TIME in rows.
    Int(i64),
    /// An unsigned integer, packed time, ENUM, SET or BIT.
    UInt(u64),
    /// FLOAT or DOUBLE.
    Float(f64),
    /// DECIMAL.
    Decimal(Decimal),
    /// A string; in keys a sort key or prefix of one.
    Bytes(Cow<'a, [u8]>),
    /// Nanoseconds of a TIME in keys.
    Duration(i64),
    /// JSON.
    Json(Json<'a>),
    /// VECTOR.
    Vector(Vector<'a>),
}

/// Reads the datum at the front of `bytes` and returns it with what follows.
///
/// # Errors
/// The flag is unknown or the payload damaged or cut.
pub fn decode(bytes: &[u8]) -> Result<(Datum<'_>, &[u8]), KeyError> {
    let mut reader = Reader::new(bytes);
    let flag = reader.u8().ok_or(KeyError::Truncated { offset: 0 })?;
    let datum = match flag {
        NIL => Some(Datum::Null),
        BYTES => {
            let (plain, rest) = decode_bytes(reader.rest())?;
            return Ok((Datum::Bytes(Cow::Owned(plain)), rest));
        }
        COMPACT_BYTES => compact_bytes(&mut reader).map(|plain| Datum::Bytes(Cow::Borrowed(plain))),
        INT => reader.array().map(|raw| Datum::Int(int_from_bytes(raw))),
        UINT => reader.u64_be().map(Datum::UInt),
        FLOAT => reader.array().map(|raw| Datum::Float(float_from_bytes(raw))),
        DECIMAL => decimal(&mut reader).map(Datum::Decimal),
        DURATION => reader.array().map(|raw| Datum::Duration(int_from_bytes(raw))),
        VARINT => reader.varint().map(Datum::Int),
        UVARINT => reader.uvarint().map(Datum::UInt),
        JSON => json(&mut reader).map(Datum::Json),
        VECTOR => vector(&mut reader).map(Datum::Vector),
        flag => return Err(KeyError::BadFlag { flag }),
    };
    let datum = datum.ok_or(KeyError::Malformed { what: name(flag) })?;
    Ok((datum, reader.rest()))
}

/// Splits the datum at the front of `bytes` off without decoding it.
///
/// # Errors
/// As [`decode`].
pub fn split(bytes: &[u8]) -> Result<(&[u8], &[u8]), KeyError> {
    let mut reader = Reader::new(bytes);
    let flag = reader.u8().ok_or(KeyError::Truncated { offset: 0 })?;
    let payload = match flag {
        NIL => Some(0),
        BYTES => Some(split_encoded(reader.rest())?.0.len()),
        COMPACT_BYTES => compact_bytes(&mut reader).map(|_| reader.offset() - 1),
        INT | UINT | FLOAT | DURATION => Some(8),
        DECIMAL => Decimal::encoded_len(reader.rest()),
        VARINT | UVARINT => reader.uvarint().map(|_| reader.offset() - 1),
        JSON => json::encoded_len(reader.rest()),
        VECTOR => Vector::encoded_len(reader.rest()),
        flag => return Err(KeyError::BadFlag { flag }),
    };
    let len = payload.ok_or(KeyError::Malformed { what: name(flag) })?;
    bytes.split_at_checked(1 + len).ok_or(KeyError::Truncated { offset: bytes.len() })
}

/// What is wrong when a datum of this flag does not decode.
const fn name(flag: u8) -> &'static str {
    match flag {
        COMPACT_BYTES => "string",
        DECIMAL => "decimal",
        JSON => "json",
        VECTOR => "vector",
        _ => "number",
    }
}

fn compact_bytes<'a>(reader: &mut Reader<'a>) -> Option<&'a [u8]> {
    let len = usize::try_from(reader.varint()?).ok()?;
    reader.take(len)
}

fn decimal(reader: &mut Reader<'_>) -> Option<Decimal> {
    let (number, len) = Decimal::decode(reader.rest())?;
    reader.take(len)?;
    Some(number)
}

fn json<'a>(reader: &mut Reader<'a>) -> Option<Json<'a>> {
    let len = json::encoded_len(reader.rest())?;
    Json::new(reader.take(len)?)
}

fn vector<'a>(reader: &mut Reader<'a>) -> Option<Vector<'a>> {
    let len = Vector::encoded_len(reader.rest())?;
    Vector::decode(reader.take(len)?)
}

/// Appends a datum in the order-preserving form that keys need.
///
/// # Errors
/// JSON and vectors cannot be in keys; a decimal may not fit the form.
pub fn encode_key(datum: &Datum<'_>, out: &mut Vec<u8>) -> Result<(), KeyError> {
    match datum {
        Datum::Null => out.push(NIL),
        Datum::Int(value) => put(INT, &int_bytes(*value), out),
        Datum::UInt(value) => put(UINT, &value.to_be_bytes(), out),
        Datum::Float(value) => put(FLOAT, &float_bytes(*value), out),
        Datum::Decimal(value) => {
            out.push(DECIMAL);
            value.encode_natural(out).ok_or(KeyError::Malformed { what: "decimal" })?;
        }
        Datum::Bytes(bytes) => {
            out.push(BYTES);
            encode_bytes(out, bytes);
        }
        Datum::Duration(nanos) => put(DURATION, &int_bytes(*nanos), out),
        Datum::Json(_) => return Err(KeyError::BadFlag { flag: JSON }),
        Datum::Vector(_) => return Err(KeyError::BadFlag { flag: VECTOR }),
    }
    Ok(())
}

/// Appends a DECIMAL key datum with the precision and scale of its column.
///
/// # Errors
/// The number does not fit.
pub fn encode_key_decimal(
    value: &Decimal,
    precision: u8,
    scale: u8,
    out: &mut Vec<u8>,
) -> Result<(), KeyError> {
    out.push(DECIMAL);
    value.encode(precision, scale, out).ok_or(KeyError::Malformed { what: "decimal" })
}

fn put(flag: u8, payload: &[u8; 8], out: &mut Vec<u8>) {
    out.push(flag);
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::hex;

    #[test]
    fn row_datums_of_the_reference_decode() {
        let cases = [
            ("00", Datum::Null),
            ("0802", Datum::Int(1)),
            ("0803", Datum::Int(-2)),
            ("09ffffffffffffffffff01", Datum::UInt(u64::MAX)),
            ("05bff8000000000000", Datum::Float(1.5)),
            ("060a028000000c32", Datum::Decimal(Decimal::parse("12.50").unwrap())),
            ("0206616263", Datum::Bytes(b"abc".into())),
            ("0200", Datum::Bytes(b"".into())),
            ("0a0400", Datum::Json(Json::parse("null").unwrap())),
            ("14030000000000803f00002040000040c0", Datum::Vector(Vector::parse("[1,2.5,-3]").unwrap())),
        ];
        for (bytes, datum) in cases {
            let bytes = hex(&format!("{bytes}ff"));
            assert_eq!(decode(&bytes), Ok((datum, &[0xff][..])), "{bytes:02x?}");
            assert_eq!(split(&bytes).unwrap().1, [0xff]);
        }
    }

    #[test]
    fn key_datums_of_the_reference_decode_and_encode() {
        let cases = [
            ("016162630000000000fa", Datum::Bytes(b"abc".into())),
            ("038000000000000007", Datum::Int(7)),
            ("0419a5a82514000000", Datum::UInt(0x19a5_a825_1400_0000)),
            ("054007ffffffffffff", Datum::Float(-1.5)),
            ("077ffffc9d2be85200", Datum::Duration(-3_723_000_000_000)),
        ];
        for (bytes, datum) in cases {
            assert_eq!(decode(&hex(bytes)).unwrap().0, datum);
            let mut out = Vec::new();
            encode_key(&datum, &mut out).unwrap();
            assert_eq!(out, hex(bytes));
            assert_eq!(split(&out).unwrap().0, out);
        }
        let mut out = Vec::new();
        encode_key_decimal(&Decimal::parse("-12345.6").unwrap(), 20, 4, &mut out).unwrap();
        assert_eq!(out, hex("0614047fffffffffffcfc6e88f"));
    }

    #[test]
    fn unknown_flags_and_cut_payloads_are_refused() {
        assert_eq!(decode(&[250]), Err(KeyError::BadFlag { flag: 250 }));
        for cut in
            ["", "03", "0380", "02", "0206", "0203", "06", "0a", "0a09", "14", "1401000000", "09ff", "01"]
        {
            assert!(decode(&hex(cut)).is_err(), "{cut}");
            assert!(split(&hex(cut)).is_err(), "{cut}");
        }
    }

    proptest! {
        #[test]
        fn splitting_agrees_with_decoding_on_any_bytes(bytes: Vec<u8>, flag in 0_u8..24) {
            let bytes = [&[flag], bytes.as_slice()].concat();
            if let Ok((_, rest)) = decode(&bytes) {
                prop_assert_eq!(split(&bytes).unwrap().1, rest);
            }
            let _ = split(&bytes);
        }
    }
}
