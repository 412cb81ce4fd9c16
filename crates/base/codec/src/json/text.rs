//! JSON as text, byte for byte as TiDB prints it (`reference/tidb-keys-and-rows.md` §5.12, text rules).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{CoreTime, JsonArray, JsonError, JsonNode, JsonObject, JsonRef, MAX_DEPTH, VALUE_ENTRY_LEN};
use crate::float_text::write_json_double;
use crate::time::{Duration, FSP_MAX, Time, TimeFields};

/// What an element may add to the text beyond the bytes it is stored in: nothing in a sound value, where no
/// two elements share bytes, so the stored size bounds the work.
struct Writer<'o> {
    out: &'o mut Vec<u8>,
    /// Stored bytes not yet accounted for.
    budget: usize,
}

pub(super) fn write(root: JsonRef<'_>, out: &mut Vec<u8>) -> Result<(), JsonError> {
    let mut writer = Writer { out, budget: root.body.len() + VALUE_ENTRY_LEN };
    writer.value(root, 0)
}

impl Writer<'_> {
    fn spend(&mut self, bytes: usize) -> Result<(), JsonError> {
        self.budget = self.budget.checked_sub(bytes).ok_or(JsonError::Overlapping)?;
        Ok(())
    }

    fn value(&mut self, value: JsonRef<'_>, depth: usize) -> Result<(), JsonError> {
        self.spend(VALUE_ENTRY_LEN)?;
        match value.node()? {
            JsonNode::Null => self.out.extend_from_slice(b"null"),
            JsonNode::Bool(true) => self.out.extend_from_slice(b"true"),
            JsonNode::Bool(false) => self.out.extend_from_slice(b"false"),
            JsonNode::Int(number) => {
                self.out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes())
            }
            JsonNode::UInt(number) => {
                self.out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes())
            }
            JsonNode::Double(number) => write_json_double(number, self.out),
            JsonNode::String(text) => {
                self.spend(text.len())?;
                write_string(text, self.out);
            }
            JsonNode::Opaque { type_code, bytes } => {
                self.spend(bytes.len())?;
                let encoded = STANDARD.encode(bytes);
                self.out.extend_from_slice(format!("\"base64:type{type_code}:{encoded}\"").as_bytes());
            }
            JsonNode::Date(date) => self.quoted(|out| date.write(out, false)),
            JsonNode::DateTime(time) => self.quoted(|out| time.write(out, true)),
            JsonNode::Duration(nanos) => self.quoted(|out| Duration::new(nanos, FSP_MAX).write_text(out)),
            JsonNode::Array(array) => return self.array(array, depth + 1),
            JsonNode::Object(object) => return self.object(object, depth + 1),
        }
        Ok(())
    }

    fn quoted(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.out.push(b'"');
        write(self.out);
        self.out.push(b'"');
    }

    fn array(&mut self, array: JsonArray<'_>, depth: usize) -> Result<(), JsonError> {
        check_depth(depth)?;
        self.out.push(b'[');
        for index in 0..array.len() {
            self.separate(index);
            self.value(array.get(index).ok_or(JsonError::Truncated)?, depth)?;
        }
        self.out.push(b']');
        Ok(())
    }

    fn object(&mut self, object: JsonObject<'_>, depth: usize) -> Result<(), JsonError> {
        check_depth(depth)?;
        self.out.push(b'{');
        for index in 0..object.len() {
            self.separate(index);
            let key = object.key(index).ok_or(JsonError::Truncated)?;
            self.spend(key.len())?;
            write_string(key, self.out);
            self.out.extend_from_slice(b": ");
            self.value(object.value(index).ok_or(JsonError::Truncated)?, depth)?;
        }
        self.out.push(b'}');
        Ok(())
    }

    fn separate(&mut self, index: usize) {
        if index > 0 {
            self.out.extend_from_slice(b", ");
        }
    }
}

const fn check_depth(depth: usize) -> Result<(), JsonError> {
    if depth > MAX_DEPTH { Err(JsonError::TooDeep) } else { Ok(()) }
}

impl CoreTime {
    /// The fields.
    pub const fn fields(self) -> TimeFields {
        TimeFields {
            year: ((self.0 >> 50) & 0x3fff) as u16,
            month: ((self.0 >> 46) & 0xf) as u8,
            day: ((self.0 >> 41) & 0x1f) as u8,
            hour: ((self.0 >> 36) & 0x1f) as u8,
            minute: ((self.0 >> 30) & 0x3f) as u8,
            second: ((self.0 >> 24) & 0x3f) as u8,
            microsecond: ((self.0 >> 4) & 0xf_ffff) as u32,
        }
    }

    /// Fields that no calendar time has are printed as the zero date.
    fn write(self, out: &mut Vec<u8>, clock: bool) {
        let zero = || Time::from_packed(0, FSP_MAX).expect("zero is the zero date");
        let time = Time::from_fields(&self.fields(), FSP_MAX).unwrap_or_else(zero);
        if clock { time.write_datetime(out) } else { time.write_date(out) }
    }
}

/// What a byte asks of [`write_string`]: nothing, an escape, or a look at whether U+2028 or U+2029 begins.
const PLAIN: u8 = 0;
const ESCAPE: u8 = 1;
const LINE_OR_PARAGRAPH: u8 = 2;

#[expect(clippy::indexing_slicing, reason = "evaluated by the compiler, which would refuse it")]
const CLASS: [u8; 256] = {
    let mut class = [PLAIN; 256];
    let mut byte = 0;
    while byte < 0x20 {
        class[byte] = ESCAPE;
        byte += 1;
    }
    class[b'"' as usize] = ESCAPE;
    class[b'\\' as usize] = ESCAPE;
    class[0xe2] = LINE_OR_PARAGRAPH;
    class
};

/// Appends a quoted, escaped string.
fn write_string(text: &[u8], out: &mut Vec<u8>) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    match std::str::from_utf8(text) {
        Ok(text) => write_escaped(text.as_bytes(), out),
        Err(_) => write_repaired(text, out),
    }
    out.push(b'"');
}

/// Each byte that belongs to no character becomes `\ufffd`.
fn write_repaired(mut text: &[u8], out: &mut Vec<u8>) {
    while !text.is_empty() {
        let sound = std::str::from_utf8(text).map_or_else(|error| error.valid_up_to(), str::len);
        let (plain, rest) = text.split_at(sound);
        write_escaped(plain, out);
        text = rest;
        if let Some((_, rest)) = text.split_first() {
            out.extend_from_slice(b"\\ufffd");
            text = rest;
        }
    }
}

fn write_escaped(mut text: &[u8], out: &mut Vec<u8>) {
    let mut from = 0;
    while let Some(at) = next_special(text, from) {
        let (plain, rest) = text.split_at(at);
        let Some((&byte, after)) = rest.split_first() else { break };
        let after = match (byte, after) {
            (0xe2, [0x80, 0xa8, after @ ..]) => {
                out.extend_from_slice(plain);
                out.extend_from_slice(b"\\u2028");
                after
            }
            (0xe2, [0x80, 0xa9, after @ ..]) => {
                out.extend_from_slice(plain);
                out.extend_from_slice(b"\\u2029");
                after
            }
            (0xe2, _) => {
                from = at + 1;
                continue;
            }
            _ => {
                out.extend_from_slice(plain);
                write_escape(byte, out);
                after
            }
        };
        text = after;
        from = 0;
    }
    out.extend_from_slice(text);
}

/// Where the next byte at or after `from` stands that may need an escape.
fn next_special(text: &[u8], from: usize) -> Option<usize> {
    let special = |byte: &u8| CLASS.get(usize::from(*byte)).is_some_and(|class| *class != PLAIN);
    text.get(from..)?.iter().position(special).map(|at| from + at)
}

fn write_escape(byte: u8, out: &mut Vec<u8>) {
    const HEX: [u8; 16] = *b"0123456789abcdef";
    let digit = |nibble: u8| HEX.get(usize::from(nibble)).copied().unwrap_or(b'0');
    match byte {
        b'"' => out.extend_from_slice(b"\\\""),
        b'\\' => out.extend_from_slice(b"\\\\"),
        b'\n' => out.extend_from_slice(b"\\n"),
        b'\r' => out.extend_from_slice(b"\\r"),
        b'\t' => out.extend_from_slice(b"\\t"),
        0x08 => out.extend_from_slice(b"\\b"),
        0x0c => out.extend_from_slice(b"\\f"),
        other => out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(other >> 4), digit(other & 15)]),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Json;
    use super::*;
    use crate::testing::hex;

    fn text(bytes: &[u8]) -> Result<String, JsonError> {
        let mut out = Vec::new();
        Json::new(bytes).unwrap().write_text(&mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn values_of_the_reference_print_as_listed() {
        let cases = [
            ("0400", "null"),
            ("0401", "true"),
            ("0402", "false"),
            ("09 ffffffffffffffff", "-1"),
            ("0a ffffffffffffffff", "18446744073709551615"),
            ("0b 000000000000f03f", "1.0"),
            ("0b 408cb5781daf1544", "1e20"),
            ("0b 2342920ca19cc73b", "1e-20"),
            ("0c 03616263", "\"abc\""),
            ("03 0000000008000000", "[]"),
            ("01 0000000008000000", "{}"),
            (
                "03 0300000021000000 0917000000 0c1f000000 0400000000 0100000000000000 0161",
                "[1, \"a\", null]",
            ),
            (
                "01 0300000037000000 290000000100 2a0000000200 2c0000000100 0c2d000000 0401000000 \
                 092f000000 61 6161 62 0178 0100000000000000",
                "{\"a\": \"x\", \"aa\": true, \"b\": 1}",
            ),
            ("01 010000001b000000 13000000 0000 09 13000000 0100000000000000", "{\"\": 1}"),
            ("03 0200000022000000 0312000000 011a000000 0000000008000000 0000000008000000", "[[], {}]"),
            (
                "01 0100000044000000 130000000100 0114000000 61 0100000030000000 130000000100 0314000000 \
                 62 020000001c000000 0b12000000 0c1a000000 000000000000f83f 0178",
                "{\"a\": {\"b\": [1.5, \"x\"]}}",
            ),
            ("0d fc 03 616263", "\"base64:type252:YWJj\""),
            ("0f 00127a1425a8901f", "\"2020-02-20 02:20:20.500000\""),
            ("0e 0000000000a8901f", "\"2020-02-20\""),
            ("11 00ed1a0e9dfcffff 03000000", "\"-01:02:03.500000\""),
        ];
        for (bytes, shown) in cases {
            assert_eq!(text(&hex(bytes)).as_deref(), Ok(shown), "{bytes}");
            assert_eq!(super::super::encoded_len(&hex(bytes)), Some(hex(bytes).len()));
        }
    }

    #[test]
    fn strings_are_escaped_as_the_reference_says() {
        let cases: [(&[u8], &str); 5] = [
            ("a\"\\\n\u{1}<>&\u{2028}é".as_bytes(), r#""a\"\\\n\u0001<>&\u2028é""#),
            ("\t\u{8}\u{c}\r\u{1f}\u{7f}".as_bytes(), "\"\\t\\b\\f\\r\\u001f\u{7f}\""),
            ("\u{2029}€\u{20ac}".as_bytes(), "\"\\u2029€€\""),
            (b"a\xffb\xe2\x80", "\"a\\ufffdb\\ufffd\\ufffd\""),
            (b"", "\"\""),
        ];
        for (plain, shown) in cases {
            let mut out = Vec::new();
            write_string(plain, &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), shown);
        }
    }

    #[test]
    fn damaged_values_fail_instead_of_growing() {
        // An array of four elements that are all the array itself.
        let own = hex("03 040000001c000000 0300000000 0300000000 0300000000 0300000000");
        assert_eq!(text(&own), Err(JsonError::Overlapping));
        assert_eq!(text(&hex("ff00")), Err(JsonError::UnknownType(0xff)));
        assert_eq!(text(&hex("0403")), Err(JsonError::UnknownType(3)));
        for cut in ["04", "0901", "0c0561", "03ffffffffffffffff", "03 0100000008000000", "11 00000000"] {
            assert_eq!(text(&hex(cut)), Err(JsonError::Truncated), "{cut}");
        }
    }
}
