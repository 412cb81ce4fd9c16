//! Builds binary JSON from text.

use std::borrow::Cow;

use serde_json::Value;

use super::{
    ARRAY, DATE, DATETIME, DOUBLE, DURATION, HEADER_LEN, INT, Json, KEY_ENTRY_LEN, LITERAL, OBJECT, STRING,
    TIMESTAMP, UINT, VALUE_ENTRY_LEN,
};
use crate::time::{Duration, Time};

/// Arrays and objects may be nested this deep: TiDB's own limit is 100, the parser's 128.
pub const MAX_DEPTH: usize = 128;

impl Json<'_> {
    /// Parses JSON text into the stored form. `None` when it is no JSON, or holds a key over 65,535 bytes.
    pub fn parse(text: &str) -> Option<Json<'static>> {
        Json::from_value(&serde_json::from_str(text).ok()?)
    }

    /// The stored form of a JSON value. `None` when a key is over 65,535 bytes or the whole over 4 GiB.
    pub fn from_value(value: &Value) -> Option<Json<'static>> {
        let mut bytes = vec![LITERAL];
        let code = put(value, &mut bytes)?;
        *bytes.first_mut()? = code;
        Some(Json(Cow::Owned(bytes)))
    }

    /// The stored form of a signed integer.
    pub fn from_int(value: i64) -> Json<'static> {
        scalar(INT, &value.to_le_bytes())
    }

    /// The stored form of an unsigned integer.
    pub fn from_uint(value: u64) -> Json<'static> {
        scalar(UINT, &value.to_le_bytes())
    }

    /// The stored form of a double.
    pub fn from_double(value: f64) -> Json<'static> {
        scalar(DOUBLE, &value.to_le_bytes())
    }

    /// The stored form of a DATE.
    pub fn from_date(date: Time) -> Json<'static> {
        scalar(DATE, &core_time(date).to_le_bytes())
    }

    /// The stored form of a DATETIME, or of a TIMESTAMP.
    pub fn from_datetime(time: Time, timestamp: bool) -> Json<'static> {
        scalar(if timestamp { TIMESTAMP } else { DATETIME }, &core_time(time).to_le_bytes())
    }

    /// The stored form of a TIME.
    pub fn from_duration(duration: Duration) -> Json<'static> {
        let nanos = duration.nanos().to_le_bytes();
        let fsp = u32::from(duration.fsp()).to_le_bytes();
        scalar(DURATION, &[nanos.as_slice(), &fsp].concat())
    }

    /// The stored form of a string.
    pub fn from_string(text: &str) -> Json<'static> {
        let mut bytes = vec![STRING];
        put_string(text, &mut bytes);
        Json(Cow::Owned(bytes))
    }
}

fn scalar(code: u8, body: &[u8]) -> Json<'static> {
    Json(Cow::Owned([&[code], body].concat()))
}

/// The bit layout of calendar times in JSON; its low four bits, which name type and precision, stay zero.
fn core_time(time: Time) -> u64 {
    let fields = time.fields();
    u64::from(fields.year) << 50
        | u64::from(fields.month) << 46
        | u64::from(fields.day) << 41
        | u64::from(fields.hour) << 36
        | u64::from(fields.minute) << 30
        | u64::from(fields.second) << 24
        | u64::from(fields.microsecond) << 4
}

/// Appends the body of `value` and returns its type byte.
fn put(value: &Value, out: &mut Vec<u8>) -> Option<u8> {
    match value {
        Value::Null | Value::Bool(_) => {
            out.push(literal(value));
            Some(LITERAL)
        }
        Value::Number(number) => Some(put_number(number, out)),
        Value::String(text) => {
            put_string(text, out);
            Some(STRING)
        }
        Value::Array(elements) => {
            let base = start_container(elements.len(), elements.len() * VALUE_ENTRY_LEN, out)?;
            let entries = base + HEADER_LEN;
            put_values(elements.iter(), base, entries, out)?;
            Some(ARRAY)
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by(|a, b| a.0.as_bytes().cmp(b.0.as_bytes()));
            let keys_len = members.len() * KEY_ENTRY_LEN;
            let base = start_container(members.len(), keys_len + members.len() * VALUE_ENTRY_LEN, out)?;
            put_keys(members.iter().map(|(key, _)| key.as_bytes()), base, out)?;
            put_values(members.iter().map(|(_, value)| *value), base, base + HEADER_LEN + keys_len, out)?;
            Some(OBJECT)
        }
    }
}

const fn literal(value: &Value) -> u8 {
    match value {
        Value::Bool(true) => 1,
        Value::Bool(false) => 2,
        _ => 0,
    }
}

fn put_number(number: &serde_json::Number, out: &mut Vec<u8>) -> u8 {
    if let Some(int) = number.as_i64() {
        out.extend_from_slice(&int.to_le_bytes());
        INT
    } else if let Some(uint) = number.as_u64() {
        out.extend_from_slice(&uint.to_le_bytes());
        UINT
    } else {
        out.extend_from_slice(&number.as_f64().unwrap_or_default().to_le_bytes());
        DOUBLE
    }
}

fn put_string(text: &str, out: &mut Vec<u8>) {
    let mut rest = text.len();
    loop {
        let [low, ..] = rest.to_le_bytes();
        rest >>= 7;
        if rest == 0 {
            out.push(low & 0x7f);
            break;
        }
        out.push(low | 0x80);
    }
    out.extend_from_slice(text.as_bytes());
}

/// Appends the header and zeroed entries; returns where the body begins.
fn start_container(count: usize, entries_len: usize, out: &mut Vec<u8>) -> Option<usize> {
    let base = out.len();
    out.extend_from_slice(&u32::try_from(count).ok()?.to_le_bytes());
    out.resize(base + HEADER_LEN + entries_len, 0);
    Some(base)
}

fn put_keys<'k>(keys: impl Iterator<Item = &'k [u8]>, base: usize, out: &mut Vec<u8>) -> Option<()> {
    for (index, key) in keys.enumerate() {
        let offset = u32::try_from(out.len() - base).ok()?.to_le_bytes();
        let len = u16::try_from(key.len()).ok()?.to_le_bytes();
        let entry = out.get_mut(base + HEADER_LEN + index * KEY_ENTRY_LEN..)?;
        entry.first_chunk_mut::<4>().map(|slot| *slot = offset)?;
        entry.get_mut(4..)?.first_chunk_mut::<2>().map(|slot| *slot = len)?;
        out.extend_from_slice(key);
    }
    Some(())
}

/// Appends the payloads, fills their entries from `entries` on, and writes the total size.
fn put_values<'v>(
    values: impl Iterator<Item = &'v Value>,
    base: usize,
    entries: usize,
    out: &mut Vec<u8>,
) -> Option<()> {
    for (index, value) in values.enumerate() {
        let mut field = u32::try_from(out.len() - base).ok()?.to_le_bytes();
        let code = if matches!(value, Value::Null | Value::Bool(_)) {
            field = u32::from(literal(value)).to_le_bytes();
            LITERAL
        } else {
            put(value, out)?
        };
        let [o0, o1, o2, o3] = field;
        *out.get_mut(entries + index * VALUE_ENTRY_LEN..)?.first_chunk_mut()? = [code, o0, o1, o2, o3];
    }
    let size = u32::try_from(out.len() - base).ok()?.to_le_bytes();
    *out.get_mut(base + 4..)?.first_chunk_mut()? = size;
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::hex;

    #[test]
    fn text_is_stored_as_the_reference_lists_it() {
        let cases = [
            ("null", "0400"),
            ("-1", "09 ffffffffffffffff"),
            ("18446744073709551615", "0a ffffffffffffffff"),
            ("1.5", "0b 000000000000f83f"),
            ("\"abc\"", "0c 03616263"),
            ("[1,\"a\",null]", "03 0300000021000000 0917000000 0c1f000000 0400000000 0100000000000000 0161"),
            (
                "{\"b\":1,\"aa\":true,\"a\":\"x\"}",
                "01 0300000037000000 290000000100 2a0000000200 2c0000000100 0c2d000000 0401000000 \
                 092f000000 61 6161 62 0178 0100000000000000",
            ),
            ("{\"b\":1,\"b\":2}", "01 010000001c000000 13000000 0100 09 14000000 62 0200000000000000"),
            (
                "{\"a\":{\"b\":[1.5,\"x\"]}}",
                "01 0100000044000000 130000000100 0114000000 61 0100000030000000 130000000100 0314000000 \
                 62 020000001c000000 0b12000000 0c1a000000 000000000000f83f 0178",
            ),
        ];
        for (text, bytes) in cases {
            assert_eq!(Json::parse(text).unwrap().as_bytes(), hex(bytes), "{text}");
        }
        assert!(Json::parse("{").is_none() && Json::parse("").is_none());
    }

    #[test]
    fn a_long_string_has_a_two_byte_length() {
        let text = format!("\"{}\"", "k".repeat(300));
        let json = Json::parse(&text).unwrap();
        // 300 = 0b10_0101100: low seven bits 0x2c with the continuation bit, then 2.
        assert_eq!(json.as_bytes().get(..3), Some(&[STRING, 0xac, 0x02][..]));
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            proptest::num::f64::NORMAL.prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                proptest::collection::btree_map(any::<String>(), inner, 0..6)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_json_survives_storing_and_printing(value in json()) {
            let stored = Json::from_value(&value).unwrap();
            let mut text = Vec::new();
            stored.write_text(&mut text).unwrap();
            prop_assert_eq!(serde_json::from_slice::<Value>(&text).unwrap(), value);
        }

        #[test]
        fn mutated_json_prints_or_fails_without_panic(value in json(), at: prop::sample::Index, byte: u8) {
            let mut bytes = Json::from_value(&value).unwrap().as_bytes().to_vec();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            let mut text = Vec::new();
            let _ = Json::new(&bytes).unwrap().write_text(&mut text);
            // At worst each stored byte becomes a six-byte escape, or the longest number per entry.
            prop_assert!(text.len() <= 16 + 70 * bytes.len());
        }
    }
}
